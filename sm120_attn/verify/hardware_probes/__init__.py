"""Small kernels that ask a GPU what the FP8 kernels take for granted of it."""
