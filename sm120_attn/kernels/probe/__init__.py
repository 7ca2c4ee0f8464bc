"""Probes: small kernels that test on a GPU the hardware behaviour that the FP8 kernels assume."""
