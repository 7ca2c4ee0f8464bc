"""The CuTe DSL's types of tensor elements."""

import cutlass
from cutlass import Float32

# FP8 and FP4 tensors are moved as bytes; only the MMA and conversion instructions depend on their format.
ELEMENT_TYPES = {
    "bf16": cutlass.BFloat16,
    "fp16": cutlass.Float16,
    "fp32": Float32,
    "e4m3": cutlass.Uint8,
    "e5m2": cutlass.Uint8,
    "mxfp8": cutlass.Uint8,
    "nvfp4": cutlass.Uint8,
}
