"""Miscompilations of floats, conversions and sums. In some, ptxas reads a register as a number of another type."""

from __future__ import annotations

import re
import struct

from tritonhook.ptx.dataflow import Operation, Part, Source, elements, only_maker
from tritonhook.ptx.miscompiles.packed import CUTS, has_negated_16_bits
from tritonhook.ptx.miscompiles.record import Miscompilation, Range, all_targets

_LEAST = 1 << 31  # the bits of the smallest .s32 number, -2147483648
_TYPE = re.compile(r"(?:[bsuf]|bf|tf|e\dm)\d+(?:x2)?")


def _counts_by_a_float(operation: Operation) -> bool:
    """Match a 64-bit shift whose count is a register that a float32 instruction wrote directly; a copy of such a
    register is compiled correctly."""
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
    """Return True if ptxas expands an opcode with these modifiers to several instructions."""
    return "full" in parts or ("approx" in parts and "ftz" not in parts)


def _converts_a_pair(operation: Operation) -> bool:
    """Match `cvt.rn.tf32` or `cvt.rz.tf32` of the result of an instruction on two packed halves."""
    how, made = operation.name.split("."), operation.made_by(0)
    if made is None or made.statement.guard or how[0] != "cvt" or how[-1] != "tf32" or "rna" in how:
        return False
    name, *parts = made.statement.opcode.split(".")
    return name in _OF_PAIRS and next((part for part in parts if _TYPE.fullmatch(part)), "").endswith("x2")


_OF_PAIRS = ("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "set", "cvt")


def _subtracts_the_least(operation: Operation) -> bool:
    """Match a `sub.sat` that subtracts -2147483648, and an `add.sat` or `sub.sat` with a negated operand."""
    if operation.is_a("sub.sat", "s32") and operation.number(1) == _LEAST:
        return True
    return operation.name in ("add.sat", "sub.sat") and _has_a_negation(operation)


def _converts_a_negated(operation: Operation) -> bool:
    """Match a `cvt.sat` of a negated .s32, and a `cvt.sat` from a negated .s16 to .u8, .s8 or .u16."""
    if operation.type == "s16" and operation.name in CUTS:
        return has_negated_16_bits(operation)
    return operation.name.startswith("cvt.sat.") and operation.type == "s32" and _has_a_negation(operation)


def _has_a_negation(operation: Operation) -> bool:
    made = (made.statement.opcode.partition(".")[0] for made, _ in operation.operands("neg", "b32"))
    if any(name in ("neg", "sub", "mul", "mad") for name in made):
        return True
    products = (made for made, _ in operation.operands("mul24.lo", "s32"))
    return any((made.number(1) or 0) & 0xFF_FFFF == 0xFF_FFFF for made in products)


def _saturates_a_cancelled_sum(operation: Operation) -> bool:
    """Match a `sub.sat` of two sums that have a term in common, or of a sum and one of its terms. Match `add.sat`
    likewise if one of the equal terms is negated."""
    if operation.name not in ("add.sat", "sub.sat") or operation.source(0) == operation.source(1):
        return False
    first, second = (_terms(operation, index) for index in (0, 1))
    if operation.name == "add.sat":
        second = {_negated(*term) for term in second}
    return bool(first & second)


def _terms(operation: Operation, index: int) -> set[tuple[Source | None, int]]:
    """Return the set of an operand and the terms of the sum that produced it, each with its sign."""
    found, made = {(operation.source(index), 1)}, operation.made_by(index)
    if made is None or made.statement.opcode.partition(".")[0] not in ("add", "sub"):
        return found  # a `mad` is no such sum: ptxas does not split it into terms
    if made.is_a("add", "b32"):
        found |= {(source, 1) for source in made.sources}
    elif made.is_a("sub", "b32") or made.is_a("sub.cc", "u32", "s32"):
        found |= {(made.sources[0], 1), _negated(made.sources[1], 1)}
    return found


def _negated(source: Source | None, sign: int) -> tuple[Source | None, int]:
    return (-source & 0xFFFF_FFFF, 1) if isinstance(source, int) else (source, -sign)


def _shifts_a_product_away(operation: Operation) -> bool:
    """Match `shl.b64` by 64 or more of a 64-bit product with a constant."""
    count, made = operation.number(1), operation.made_by(0)
    if not operation.is_a("shl", "b64") or made is None or (count or 0) & 0xFFFF_FFFF < 64:
        return False
    is_product = made.statement.opcode.startswith(("mul.lo", "mul.wide"))
    return is_product and any(isinstance(source, int) for source in made.sources)


def _saturates_a_converted(operation: Operation) -> bool:
    """Match `cvt.sat` of an integer that was converted from a float; ptxas merges the two conversions."""
    made = only_maker(operation.source(0))
    sources = _AT_ONCE.get((operation.name, operation.type), ())
    return made is not None and made.name.startswith("cvt.") and (
        made.name.endswith(f".{operation.type}") and made.type in sources
    )  # fmt: skip


def _takes_a_set_for_an_integer(operation: Operation) -> bool:
    """Match `abs.f32` or `neg.f32` of the result of a `set`, whose bits are all ones or 0."""
    made = operation.made_by(0) if operation.name in ("abs", "neg") and operation.type == "f32" else None
    return made is not None and made.is_a("selp", "b32") and _is_set(made.statement.opcode)


def _is_set(opcode: str) -> bool:
    return opcode.startswith("set.") and not opcode.endswith(".f64")


def _converts_what_was_there(operation: Operation) -> bool:
    """Match a guarded `set` with a float result whose register has an old value other than 0."""
    name, *parts = operation.statement.opcode.split(".")
    return name == "set" and parts[-2:-1] in (["f32"], ["f16"], ["bf16"]) and kept(operation) not in (None, 0)


def kept(operation: Operation) -> Source | None:
    """Return the value that a register had before a guarded statement and keeps if the statement is not executed; None
    if nothing wrote the register before."""
    guard = operation.statement.guard
    if not guard or not operation.is_a("selp", "b32"):
        return None
    old = operation.sources[not guard.startswith("!")]
    return None if isinstance(old, str) and " behind label " not in old else old


def _drops_its_guard(operation: Operation) -> bool:
    return operation.statement.opcode in _BYTE_SUMS and kept(operation) is not None


_BYTE_SUMS = ("vadd4.u32.u32.u32.add", "vsub4.u32.u32.u32.add")


def _takes_nan_for_a_number(operation: Operation) -> bool:
    """Match a comparison or `slct` that is true for each possible float32 value except NaN."""
    name, sources = operation.name.removesuffix(".ftz"), operation.sources
    if operation.type != "f32" or len(sources) < 2:
        return False
    limit: float | None = 0.0
    if name.startswith("slct."):
        name, value = "setp.le", sources[-1]
    else:
        value, other = (sources if name in ("setp.ge", "setp.gt") else sources[::-1])[:2]
        limit = _least(other) if only_maker(other) is None else None
    least = _least(value) if only_maker(value) is not None else None
    if least is None or limit is None or name not in ("setp.ge", "setp.gt", "setp.le", "setp.lt"):
        return False
    return least > limit or (least == limit and name in ("setp.ge", "setp.le"))


def _least(value: Source) -> float | None:
    """Compute the lower bound that ptxas assumes for a float32; None if it assumes none."""
    if isinstance(value, str):
        value = int(value[2:], 16) if re.fullmatch("0[fF][0-9a-fA-F]{8}", value) else value
    if isinstance(value, int):
        return float(struct.unpack("f", struct.pack("I", value & 0xFFFF_FFFF))[0])
    made = only_maker(value)
    name = made.name.removesuffix(".ftz") if made is not None else ""
    if made is None or (made.type != "f32" and name != "selp"):
        return None
    if made.is_a("abs") or name == "ex2.approx" or (name == "mul" and made.sources[0] == made.sources[1]):
        return 0.0
    parts = [_least(source) for source in made.sources[:2]] if name in ("add", "selp") else []
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return None
    return sum(known) if name == "add" else min(known)


def _adds_products_in_a_loop(operation: Operation) -> bool:
    """Match `mad.hi` that adds to its own earlier result after a label. The label need not begin a loop."""
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
        does="uses the value of a float32, not its bits, as the count of a 64-bit shift",
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
        does="drops the upper half of a register with two packed halves in `cvt.rn.tf32` and `cvt.rz.tf32`",
        instead="convert with `cvt.rna.tf32`, or move the register through `mov.b32 {h, h}`",
        sources=(),
        ranges=(Range(("sm_90a", "sm_100a", "sm_120a"), "12.3.107", "13.5.37"),),
        words=((".tf32",), ("x2",)),
        matches=_converts_a_pair,
        executed=True,
    ),
    Miscompilation(
        name="saturated-difference",
        does="mistakes the sign of -2147483648 in `add.sat.s32` and `sub.sat.s32`: adds it instead of subtracting it, "
        "or negates it to +2147483648",
        instead="negate with `not.b32` and add 1",
        sources=(),
        ranges=all_targets("11.7.99", "12.9.86"),
        words=(("add.sat.s32", "sub.sat.s32"),),
        matches=_subtracts_the_least,
        executed=True,
    ),
    Miscompilation(
        name="saturated-cancellation",
        does="replaces `sub.sat.s32` of `x + y` and `x` by `y`, even if `x + y` overflowed",
        instead="write the sum with `add.sat.s32`, or in 64 bits",
        sources=(),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("add.sat.s32", "sub.sat.s32"),),
        matches=_saturates_a_cancelled_sum,
        executed=True,
    ),
    Miscompilation(
        name="product-shifted-away",
        does="leaves out a `shl.b64` by 64 or more that shifts a product with a constant; the result should be 0",
        instead="write 0",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("shl.b64",), ("mul.",)),
        matches=_shifts_a_product_away,
        executed=True,
    ),
    Miscompilation(
        name="set-as-integer",
        does="treats the all-ones result of `set` as 1 in `abs.f32` and `neg.f32`, if the module has a `div` or `rcp` "
        "with directed rounding",
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
        name="guarded-set-to-float",
        does="converts the old value of the register, too, if a guarded `set` with a float result is not executed",
        instead="write `set` without a guard, and `selp`",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("set.",), (".f32.", ".f16.", ".bf16."), ("@",)),
        matches=_converts_what_was_there,
        unoptimised=True,
        executed=True,
    ),
    Miscompilation(
        name="nan-at-least",
        does="evaluates `x >= y` as true for NaN, too, if y is a lower bound of x, e.g. `abs(z) >= 0`",
        instead="write the opposite, `setp.ltu`",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("setp.", "slct."), (".f32",), ("abs.f32", "mul.", "ex2.")),
        matches=_takes_nan_for_a_number,
        executed=True,
    ),
    Miscompilation(
        name="guarded-byte-sums",
        does="executes a guarded `vadd4...add` or `vsub4...add` of unsigned bytes even if the guard is false",
        instead="branch around it",
        sources=(),
        ranges=all_targets("12.2.140", "13.5.37"),
        words=(("vadd4.", "vsub4."), ("@",)),
        matches=_drops_its_guard,
        unoptimised=True,
        executed=True,
    ),
    Miscompilation(
        name="saturated-negation",
        does="evaluates -(-2147483648) as +2147483648 in `cvt.sat`, and -(-32768) as +32768",
        instead="negate with `not` and add 1",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("cvt.sat.",), ("neg.s", "abs.s16", "sub.", "mul.lo")),
        matches=_converts_a_negated,
        executed=True,
    ),
    Miscompilation(
        name="saturated-conversion",
        does="merges `cvt.sat` with a preceding conversion of a float to an integer; the result is wrong for NaN, and "
        "from .u32 to .s16 also for negative numbers",
        instead="clamp with `min` and `max`",
        sources=(),
        ranges=all_targets("11.7.99", "13.5.37"),
        words=(("cvt.sat.",), (".f32", ".f16")),
        matches=_saturates_a_converted,
        executed=True,
    ),
    Miscompilation(
        name="high-products-in-loop",
        does="adds the product twice in a `mad.hi` that adds to its own result, if the loop is unrolled four times",
        instead="write `mul.wide`, a shift and `add` instead of `mad.hi`",
        sources=(),
        ranges=all_targets("11.7.99", "13.3.73"),
        words=(("mad.hi.",), ("bra",)),
        matches=_adds_products_in_a_loop,
        executed=True,
    ),
)
