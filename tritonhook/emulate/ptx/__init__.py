"""Decode PTX kernels for the machine."""
