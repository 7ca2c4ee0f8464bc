"""Access to the GPU: the CUDA driver, NVML, the SM clock, the conditions of a measurement, child processes that use a
GPU."""
