"""Device code that the kernels share: layouts, barriers, arithmetic, and the differences between Triton versions."""
