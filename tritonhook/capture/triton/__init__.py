"""Capture from Triton: its hooks, the metadata of its kernels, its autotuner."""
