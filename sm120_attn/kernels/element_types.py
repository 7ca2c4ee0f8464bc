"""Element types as the CuTe DSL calls them."""

import cutlass
from cutlass import Float32

# FP8 tensors are moved as bytes; only the MMA instruction says which FP8 format they have.
ELEMENT_TYPES = {
    "bf16": cutlass.BFloat16,
    "fp16": cutlass.Float16,
    "fp32": Float32,
    "e4m3": cutlass.Uint8,
    "e5m2": cutlass.Uint8,
}
