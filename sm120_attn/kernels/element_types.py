"""Element types as the CuTe DSL calls them."""

import cutlass
from cutlass import Float32

# FP8 and FP4 tensors are moved as bytes; only the instructions know their format.
ELEMENT_TYPES = {
    "bf16": cutlass.BFloat16,
    "fp16": cutlass.Float16,
    "fp32": Float32,
    "e4m3": cutlass.Uint8,
    "e5m2": cutlass.Uint8,
    "mxfp8": cutlass.Uint8,
    "nvfp4": cutlass.Uint8,
}
