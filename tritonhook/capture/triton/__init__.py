"""Capture kernels from Triton: hooks, kernel metadata, rewriting, autotuner."""
