"""What PTX leaves open in a kernel's arithmetic: contraction, approximate instructions, the order of atomics. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import statements

_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp", "rna", "rs"})
_CONTRACTED = frozenset({"add", "sub", "mul"})
# The largest relative error of approximate instructions (PTX ISA, "Floating Point Instructions"), as powers of 2.
# Absolute errors (sin, cos, lg2) are taken as shares of 1.
_ERRORS: Mapping[str, int] = {"div": -22, "rcp": -23, "sqrt": -22, "rsqrt": -22, "ex2": -22, "lg2": -22, "sin": -20}
_ERRORS = {**_ERRORS, "cos": -20, "tanh": -10}
_HALF_ERRORS: Mapping[str, int] = {"ex2": -7, "tanh": -8}  # of f16 and bf16: the larger of the two
_PROPAGATED = 64  # a result may add the errors of so many such instructions, as a share of its largest value


@dataclass(frozen=True, slots=True)
class Latitude:
    """What two correct builds of one kernel may store differently.

    contraction: whether a multiplication and an addition may become one instruction; `--fmad=false` forbids it.
    contracted: whether builds were made without that option, as cubins from elsewhere may be.
    approximate: opcodes of approximate instructions. share: how far results may differ because of these, as a share of
    a buffer's largest magnitude; 0 without them. float_atomics: whether atomics add floating-point numbers, in any
    order.
    """

    contraction: bool = False
    contracted: bool = False
    approximate: tuple[str, ...] = ()
    share: float = 0.0
    float_atomics: bool = False


def latitude_of(ptx: Ptx) -> Latitude:
    """What the instructions of a module allow. Inline assembly and called functions count too."""
    contraction, atomics, errors = False, False, dict[str, float]()
    for opcode in _opcodes(ptx):
        root, *rest = opcode.split(".")
        if root in _CONTRACTED and _FLOATS & set(rest) and not _ROUNDINGS & set(rest):
            contraction = True
        elif root in ("atom", "red") and "add" in rest and any(part.lstrip("v248.") in _FLOATS for part in rest):
            atomics = True
        elif root in _ERRORS and ({"approx", "full"} & set(rest) or root == "tanh"):
            half = any(part.startswith(("f16", "bf16")) for part in rest)
            errors[opcode] = 2.0 ** (_HALF_ERRORS.get(root, -10) if half else _ERRORS[root])
    share = min(_PROPAGATED * max(errors.values(), default=0.0), 0.05)
    return Latitude(contraction, approximate=tuple(sorted(errors)), share=share, float_atomics=atomics)


def _opcodes(ptx: Ptx) -> Iterator[str]:
    return (item.opcode for item in statements(ptx) if item.opcode and not item.opcode.startswith("."))
