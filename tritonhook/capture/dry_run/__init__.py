"""Dry runs: run whole programs without a GPU. Every kernel is compiled for an architecture and captured; no kernel is
launched."""
