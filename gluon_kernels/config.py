"""Base class of the kernels' configurations: dtypes, masks, entry names. Imports neither triton nor torch."""

from __future__ import annotations

import re
from typing import Any, ClassVar

# By Triton's name of a dtype, which configurations use. BITS: bits of an element. TORCH_NAMES: PyTorch's name.
BITS = {"fp8e5": 8, "fp8e4nv": 8, "fp16": 16, "bf16": 16}
TORCH_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
# Values of `causal`. None: no mask; "top-left": query 0 sees only key 0; "bottom-right": the last query sees all keys.
CAUSAL = (None, "top-left", "bottom-right")
# Shared memory that a CTA can use on sm_90, sm_100 and sm_103.
SHARED_BYTES = 227 * 1024


class KernelConfig:
    """Base class of the configurations. A configuration has all values from which one kernel is compiled."""

    __slots__ = ()
    # Name of the kernel's subpackage, and the compute capability for which it is compiled by default.
    KERNEL: ClassVar[str]
    ARCH: ClassVar[int]

    dtype: str

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8

    @property
    def fp8(self) -> bool:
        return self.element_bytes == 1

    @property
    def out_dtype(self) -> str:
        """dtype of O: bf16 for fp8, else the dtype of Q."""
        return "bf16" if self.fp8 else self.dtype

    def why_not(self, arch: int) -> str | None:
        """Return the first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        raise NotImplementedError

    def require(self, arch: int, *problem: Any) -> None:
        """Raise ValueError if why_not(arch, *problem) returns a reason."""
        reason = self.why_not(arch, *problem)
        if reason is not None:
            raise ValueError(f"{self.KERNEL} attention on sm_{arch}: {reason}")


def causal_offset(causal: str | None, seqlen_q: int, seqlen_k: int) -> int:
    """Compute the shift of the mask: with `causal`, query i sees keys 0 .. i + causal_offset."""
    return seqlen_k - seqlen_q if causal == "bottom-right" else 0


def why_not_causal(causal: Any) -> str | None:
    """Return the reason why `causal` is invalid, or None."""
    if causal not in CAUSAL:
        return f"causal {causal!r}: must be None, 'top-left' or 'bottom-right'"
    return None


def entry_name(specialization: Any) -> str:
    """Return the constexpr NAME as the entry's name. It is a constexpr so that Triton's compile hash covers it."""
    return str(specialization.constants["NAME"])


def why_not_name(name: str) -> str | None:
    """Return the reason why an entry cannot have this name, or None."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return f"name {name!r}: must have only letters, digits and underscores, and must not begin with a digit"
    return None
