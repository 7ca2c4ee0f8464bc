"""What the FP8 kernels assume of a GPU, asked of it."""
