"""Device code of the attention kernels, in the CuTe DSL."""
