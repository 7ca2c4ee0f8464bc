"""Capture kernels from programs that call ptxas, such as nvcc: a wrapper that replaces ptxas, and a copy of the CUDA
toolkit made of links."""
