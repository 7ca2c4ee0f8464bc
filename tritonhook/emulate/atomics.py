"""What atomic operations make of old contents and operands, for both front ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np

from tritonhook.emulate import comparisons, numbers, numbers64
from tritonhook.emulate.words import REDUCTIONS, Array
from tritonhook.errors import NotUnderstood

_WHOLE: dict[str, Callable[..., Array]] = {
    **REDUCTIONS,
    "exch": lambda old, new: new,
    "cas": lambda old, wanted, new: np.where(old == wanted, new, old),
    "inc": lambda old, most: np.where(old >= most, 0, old + 1).astype(old.dtype),
    "dec": lambda old, most: np.where((old == 0) | (old > most), most, old - 1).astype(old.dtype),
}
OPERATIONS = tuple(_WHOLE)


def combination(operation: str, kind: str, ftz: bool, in_a_loop: bool = False) -> Callable[..., Array]:
    """Choose the function of old contents and operands, all unsigned. kind: u32, s64, b16, f32, f16x2, ...;
    floating-point numbers are added, and those of 16 bits compared. ftz: of f32. in_a_loop: other memory than global
    one has no sum of f64: ptxas writes a plain sum and a comparison with the old contents."""
    if re.fullmatch(r"[usb]\d+", kind) or operation in ("exch", "cas"):
        return partial(_viewed, _WHOLE[operation], "i" if kind[0] == "s" else "u")
    if operation in ("min", "max") and "16" in kind:
        half = kind.removesuffix("x2")
        extreme = partial(comparisons.extreme, lower=operation == "min", nan=False, kind=half)
        return partial(numbers.by_halves, extreme) if kind != half else extreme
    if operation != "add":
        raise NotUnderstood(f"atomic {operation} of {kind}")
    if kind == "f32":
        return partial(numbers.add32, ftz=ftz)
    if kind == "f64":
        return (lambda old, new: numbers64.add64(new, old)) if in_a_loop else numbers64.atomic_add64
    added = numbers.of_format(numbers.odd_sum, kind.removesuffix("x2"))
    if kind.endswith("x2"):
        return partial(numbers.by_halves, added)
    return lambda old, new: added(old, new).astype(np.uint16)


def _viewed(function: Callable[..., Array], sign: str, old: Array, *given: Array) -> Array:
    kind = f"{sign}{old.itemsize}"
    return function(old.view(kind), *(one.view(kind) for one in given)).view(old.dtype)
