"""Miscompilations where a register is taken for another kind of number, of conversions, and of sums."""

from __future__ import annotations

import re

from tritonhook.ptx.dataflow import Operation, Part, Source, elements, only_maker
from tritonhook.ptx.miscompiles.record import Miscompilation, Range, all_targets

_LEAST = 1 << 31  # the bits of the least number of .s32
_TYPE = re.compile(r"(?:[bsuf]|bf|tf|e\dm)\d+(?:x2)?")


def _counts_by_a_float(operation: Operation) -> bool:
    """Match a 64-bit shift whose count is the register of a float32 instruction. A register that was copied counts as
    bits."""
    count = operation.source(1)
    is_shift = operation.is_a("shl", "b64") or operation.is_a("shr", "u64", "s64")
    if not is_shift or not isinstance(count, Part):
        return False
    made = count.operation.statement
    return operation.statement.operands[-1] in elements(made.operands[0]) and _gives_a_float(made.opcode)


def _gives_a_float(opcode: str) -> bool:
    name, *parts = opcode.split(".")
    if name == "copysign" or (name not in ("sin", "cos", "tanh") and _is_expanded(parts)):
        return False
    result = next((part for part in parts if _TYPE.fullmatch(part)), "")
    return result == "f32" or (result == "tf32" and "rna" not in parts)


def _is_expanded(parts: list[str]) -> bool:
    """Check whether ptxas makes several instructions of it."""
    return "full" in parts or ("approx" in parts and "ftz" not in parts)


def _converts_a_pair(operation: Operation) -> bool:
    """Match `cvt.rn.tf32` or `cvt.rz.tf32` of what an instruction on two halves gives."""
    how, made = operation.name.split("."), operation.made_by(0)
    if made is None or made.statement.guard or how[0] != "cvt" or how[-1] != "tf32" or "rna" in how:
        return False
    name, *parts = made.statement.opcode.split(".")
    return name in _OF_PAIRS and next((part for part in parts if _TYPE.fullmatch(part)), "").endswith("x2")


_OF_PAIRS = ("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "set", "cvt")


def _subtracts_the_least(operation: Operation) -> bool:
    """Match `sub.sat` of -2147483648, and `add.sat` and `sub.sat` of a negation."""
    if operation.is_a("sub.sat", "s32") and operation.number(1) == _LEAST:
        return True
    return operation.name in ("add.sat", "sub.sat") and _has_a_negation(operation)


def _converts_a_negated(operation: Operation) -> bool:
    return operation.name.startswith("cvt.sat.") and operation.type == "s32" and _has_a_negation(operation)


def _has_a_negation(operation: Operation) -> bool:
    made = (made.statement.opcode.partition(".")[0] for made, _ in operation.operands("neg", "b32"))
    if any(name in ("neg", "sub", "mul", "mad") for name in made):
        return True
    products = (made for made, _ in operation.operands("mul24.lo", "s32"))
    return any((made.number(1) or 0) & 0xFF_FFFF == 0xFF_FFFF for made in products)


def _saturates_a_cancelled_sum(operation: Operation) -> bool:
    """Match `sub.sat` of two sums with the same term, or of a sum and its term; `add.sat`, if a term is negated."""
    if operation.name not in ("add.sat", "sub.sat") or operation.source(0) == operation.source(1):
        return False
    first, second = (_terms(operation, index) for index in (0, 1))
    if operation.name == "add.sat":
        second = {_negated(*term) for term in second}
    return bool(first & second)


def _terms(operation: Operation, index: int) -> set[tuple[Source | None, int]]:
    """List an operand, and what it is a sum of, each with its sign."""
    found, made = {(operation.source(index), 1)}, operation.made_by(index)
    if made is None or made.statement.opcode.partition(".")[0] not in ("add", "sub"):
        return found  # of `mad`, ptxas leaves the sum
    if made.is_a("add", "b32"):
        found |= {(source, 1) for source in made.sources}
    elif made.is_a("sub", "b32") or made.is_a("sub.cc", "u32", "s32"):
        found |= {(made.sources[0], 1), _negated(made.sources[1], 1)}
    return found


def _negated(source: Source | None, sign: int) -> tuple[Source | None, int]:
    return (-source & 0xFFFF_FFFF, 1) if isinstance(source, int) else (source, -sign)


def _shifts_a_product_away(operation: Operation) -> bool:
    """Match `shl.b64` by 64 or more of the product of 64 bits with a number."""
    count, made = operation.number(1), operation.made_by(0)
    if not operation.is_a("shl", "b64") or made is None or (count or 0) & 0xFFFF_FFFF < 64:
        return False
    is_product = made.statement.opcode.startswith(("mul.lo", "mul.wide"))
    return is_product and any(isinstance(source, int) for source in made.sources)


def _saturates_a_converted(operation: Operation) -> bool:
    """Match `cvt.sat` of the integer that a float became, which ptxas converts at once."""
    made = only_maker(operation.source(0))
    sources = _AT_ONCE.get((operation.name, operation.type), ())
    return made is not None and made.name.startswith("cvt.") and (
        made.name.endswith(f".{operation.type}") and made.type in sources
    )  # fmt: skip


def _takes_a_set_for_an_integer(operation: Operation) -> bool:
    """Match `abs.f32` or `neg.f32` of the ones of a `set`."""
    made = operation.made_by(0) if operation.name in ("abs", "neg") and operation.type == "f32" else None
    return made is not None and made.is_a("selp", "b32") and _is_set(made.statement.opcode)


def _is_set(opcode: str) -> bool:
    return opcode.startswith("set.") and not opcode.endswith(".f64")


def _adds_products_in_a_loop(operation: Operation) -> bool:
    """Match `mad.hi` that adds to its own result behind a label. Whether the label begins a loop is not looked at."""
    operands, added = operation.statement.operands, operation.source(2)
    is_sum = operation.is_a("mad.hi", "s32", "u32") and operands[3:4] == operands[:1]
    return is_sum and isinstance(added, str) and " behind label " in added


_DIRECTED = ("rz", "rm", "rp")
_AT_ONCE = {
    ("cvt.sat.s32", "s64"): ("f32", "f16"),
    ("cvt.sat.u32", "u64"): ("f32", "f16"),
    ("cvt.sat.s16", "u32"): ("f32",),
}

FLOATS = (
    Miscompilation(
        name="float-as-count",
        does="takes a float32 for a number, not for its bits, in the count of a 64-bit shift",
        instead="copy the count with `mov.u32`",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("shl.b64", "shr."), ("f32",)),
        matches=_counts_by_a_float,
        executed=True,
        unoptimised=True,
    ),
    Miscompilation(
        name="pair-to-tf32",
        does="loses the upper half of a register of two halves in `cvt.rn.tf32` and `cvt.rz.tf32`",
        instead="convert with `cvt.rna.tf32`, or move the register through `mov.b32 {h, h}`",
        sources=(),
        ranges=(Range(("sm_90a", "sm_100a", "sm_120a"), "12.3.107", "13.5.37"),),
        words=((".tf32",), ("x2",)),
        matches=_converts_a_pair,
        executed=True,
    ),
    Miscompilation(
        name="saturated-difference",
        does="takes -(-2147483648) for +2147483648 or for itself in `add.sat.s32` and `sub.sat.s32`",
        instead="write `not.b32` with 1 added for the negation",
        sources=(),
        ranges=all_targets("11.7.99", "12.9.86"),
        words=(("add.sat.s32", "sub.sat.s32"),),
        matches=_subtracts_the_least,
        executed=True,
    ),
    Miscompilation(
        name="saturated-cancellation",
        does="takes `y` for `sub.sat.s32` of `x + y` and `x`, also where `x + y` has wrapped",
        instead="write the sum with `add.sat.s32`, or in 64 bits",
        sources=(),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("add.sat.s32", "sub.sat.s32"),),
        matches=_saturates_a_cancelled_sum,
        executed=True,
    ),
    Miscompilation(
        name="product-shifted-away",
        does="drops a `shl.b64` by 64 or more of a product with a number; the result is 0",
        instead="write 0",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("shl.b64",), ("mul.",)),
        matches=_shifts_a_product_away,
        executed=True,
    ),
    Miscompilation(
        name="set-as-integer",
        does="takes `abs.f32` and `neg.f32` of the ones of `set` for 1, in a module with a directed `div` or `rcp`",
        instead="write `setp` and `selp`",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(
            ("set.",),
            ("abs.f32", "neg.f32"),
            tuple(f"{one}.{how}." for one in ("div", "rcp") for how in _DIRECTED),
        ),
        matches=_takes_a_set_for_an_integer,
        executed=True,
    ),
    Miscompilation(
        name="saturated-negation",
        does="takes -(-2147483648) for +2147483648 in `cvt.sat`",
        instead="write `not.b32` with 1 added for the negation",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("cvt.sat.",), ("neg.s32", "sub.", "mul.lo")),
        matches=_converts_a_negated,
        executed=True,
    ),
    Miscompilation(
        name="saturated-conversion",
        does="makes one conversion of `cvt.sat` and the conversion of a float before it: other integers for NaN, and "
        "from .u32 to .s16 for negative numbers",
        instead="clamp with `min` and `max`",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("cvt.sat.",), (".f32", ".f16")),
        matches=_saturates_a_converted,
        executed=True,
    ),
    Miscompilation(
        name="high-products-in-loop",
        does="does `mad.hi` that adds to its own result twice where it unrolls a loop four times",
        instead="write `mul.wide`, a shift and `add`",
        sources=(),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("mad.hi.",), ("bra",)),
        matches=_adds_products_in_a_loop,
        executed=True,
    ),
)
