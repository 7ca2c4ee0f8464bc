"""Capture from programs that call ptxas, such as nvcc: a wrapper in place of ptxas, and a linked CUDA toolkit."""
