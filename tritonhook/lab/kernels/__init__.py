"""Kernels of the experiments: probes of one PTX instruction, and a Triton kernel."""
