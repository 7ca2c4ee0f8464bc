"""What the kernels share on the device: layouts, barriers, arithmetic, and the differences between Triton versions."""
