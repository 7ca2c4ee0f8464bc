"""Comparisons, minima and maxima, for PTX and machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tritonhook.emulate.numbers import FORMATS, decode, flush, is_nan
from tritonhook.emulate.words import Array

Test = Callable[[Array, Array], Array]
WHOLE: Mapping[str, Test] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "f": lambda a, b: np.zeros(a.shape, bool),
    "t": lambda a, b: np.ones(a.shape, bool),
}
FLOATS: Mapping[str, Test] = {  # names with u (unordered): also true if an operand is NaN
    **{name: WHOLE[name] for name in ("eq", "lt", "le", "gt", "ge")},
    "ne": lambda a, b: (a < b) | (a > b),
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
JOINS: Mapping[str, Test] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def shown(codes: Array, kind: str) -> Array:
    """Convert bit patterns to numbers that NumPy can compare."""
    return codes.view(np.float32) if kind == "f32" else decode(codes, kind)


def extreme(
    x: Array, y: Array, lower: Any, nan: bool, kind: str, ftz: bool = False, signs: bool = False
) -> Array:  # fmt: skip
    """Return the bit patterns of min (where `lower` is true) or max; -0 is below +0.

    nan: True: the result is NaN if one operand is NaN; False: it is the other operand. Two NaNs give the canonical NaN;
    two NaNs of f64 give the second one as a quiet NaN. signs: compare absolute values, and give the result the product
    of both signs (.xorsign). (Measured on a GPU.)"""
    dtype, one = x.dtype.type, FORMATS[kind]
    sign, others = dtype(1 << one.bits - 1), dtype((1 << one.bits - 1) - 1)
    if ftz:
        x, y = flush(x, kind), flush(y, kind)
    if kind == "f32" and isinstance(lower, bool) and not signs:
        below, above = x.view(np.float32) <= y.view(np.float32), x.view(np.float32) >= y.view(np.float32)
        if (below | above).all():  # no NaN; equal numbers with different bits are +0 and -0: | gives -0, & gives +0
            return np.where(below & above, x | y if lower else x & y, np.where(below if lower else above, x, y))
    negative = (x ^ y) & sign
    if signs:
        x, y = x & others, y & others
    order = [np.where(code & sign, code ^ (sign | others), code | sign) for code in (x, y)]
    found = np.where((order[0] <= order[1]) == lower, x, y)
    a, b = is_nan(x, kind), is_nan(y, kind)
    if not nan:
        found = np.where(a, y, np.where(b, x, found))
    if signs:
        found = found ^ negative
    none = y | dtype(1 << 51) if kind == "f64" else dtype(one.nan or 0)
    return np.where(a | b if nan else a & b, none, found)
