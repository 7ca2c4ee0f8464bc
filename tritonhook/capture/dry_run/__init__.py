"""Dry runs: whole programs without a GPU. Every kernel is compiled for an architecture, captured, and not launched."""
