"""Capture from programs that call ptxas, such as nvcc: a wrapper that replaces ptxas, and a linked CUDA toolkit."""
