"""The GPU as its driver shows it: the CUDA driver, NVML, the SM clock, the conditions of a measurement."""
