"""Compute the new contents of memory after an atomic operation, for PTX and machine code."""

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
    """Return the function that computes new contents from old contents and operands, all as unsigned integers.

    kind: type of the numbers: u32, s64, b16, f32, f16x2, ... ftz: flush subnormal f32 to zero. in_a_loop: add f64 as
    ptxas's loop of a plain sum and a compare-and-swap does; ptxas writes it for memory other than global, which has no
    atomic f64 sum. Floating-point types have only add, and those of 16 bits also min and max; other operations raise
    NotUnderstood."""
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
