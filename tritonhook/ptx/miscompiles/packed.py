"""Miscompilations of two numbers packed in one register, and of 16-bit numbers."""

from __future__ import annotations

from tritonhook.ptx.dataflow import Operation, number, only_maker
from tritonhook.ptx.miscompiles.record import Miscompilation, Range, all_targets


def _twice_the_pair(operation: Operation) -> bool:
    """Match an instruction that puts the same pair of fp8 numbers, h, twice into a register or into memory: `mov.b32 r,
    {h, h}`, a `mov.b64` with `{h, h}` as one half, or a store of `{h, h}`. Two conversions of equal operands count as
    the same pair, as in ptxas."""
    if not operation.is_a("mov", "b32", "b64") and not operation.name.startswith("st."):
        return False
    makers = [only_maker(source) for source in operation.sources[operation.name.startswith("st.") :]]
    return any(
        first is not None and first is second and first.name.endswith(("e4m3x2", "e5m2x2")) and first.type == "f32"
        for first, second in zip(makers[::2], makers[1::2], strict=False)
    )


def _adds_to_half(operation: Operation) -> bool:
    """Match `add.s16x2` of a constant, if only one half of its result is used."""
    if not operation.is_a("add", "s16x2", "u16x2") or all(operation.number(index) is None for index in (0, 1)):
        return False
    halves: set[int] = set()
    for _, reader in operation.readers:
        if reader.is_a("cvt.u32", "u16") or reader.is_a("cvt.u16", "u32") or reader.type in ("b16", "u16", "s16"):
            halves.add(0)
        elif reader.is_a("mov", "b32") and reader.results == 2:
            halves |= {index for index, user in reader.readers if not user.name.startswith("setp")}
        else:
            return False
    numbers = [number for index in (0, 1) if (number := operation.number(index)) is not None]
    return len(halves) == 1 and any(number >> 16 * half & 0xFFFF for number in numbers for half in halves)


def _widens_a_negated(operation: Operation) -> bool:
    """Match an operation that widens, compares, divides or shifts a signed 16-bit number made by a negation."""
    is_wider = operation.name.startswith(_WIDENING) and operation.name not in CUTS
    return is_wider and operation.type == "s16" and has_negated_16_bits(operation)


def has_negated_16_bits(operation: Operation) -> bool:
    """Return True if a 16-bit operand is the result of a negation. The third operand of `sad`, which is added, does not
    count."""
    negated = (*operation.operands("neg", "b16"), *operation.operands("abs", "s16"))
    for made in {made for made, index in negated if index < 2 or operation.name != "sad"}:
        name, is_unsigned = made.statement.opcode.partition(".")[0], made.statement.opcode.endswith("u16")
        is_of_not = name == "add" and number(made.statement.operands[-1]) == 1
        if name in ("neg", "sub", "add", "abs") and not is_unsigned and not is_of_not:
            return True
    return False


_WIDENING = ("cvt.s", "cvt.u", "mul.", "mad.", "set", "shr", "div", "rem", "sad")
# Saturating conversions of .s16, which newer versions also miscompile: the bug `saturated-negation`.
CUTS = ("cvt.sat.u8", "cvt.sat.s8", "cvt.sat.u16")

_VIDEO = tuple(f"v{name}." for name in ("add", "sub", "absdiff", "min", "max"))


def _writes_an_upper_half(operation: Operation) -> bool:
    statement = operation.statement
    return statement.opcode.startswith(_VIDEO) and statement.operands[0].endswith(".h1")


PACKED = (
    Miscompilation(
        name="fp8-pair-twice",
        does="writes garbage into one half of a register that contains the same pair of fp8 numbers twice",
        instead="build the pair with integer operations",
        sources=(),
        ranges=(Range(("sm_89", "sm_90a", "sm_100a", "sm_120a"), "12.6.85", "12.9.86"),),
        words=(("e4m3x2.f32", "e5m2x2.f32"),),
        matches=_twice_the_pair,
        executed=True,
    ),
    Miscompilation(
        name="packed-add-one-half",
        does="adds 0 instead of the constant if only one half of the result of an `add.s16x2` is used",
        instead="add 16-bit numbers one by one (`add.s16`)",
        sources=("https://github.com/triton-lang/triton/issues/11581",),
        ranges=(Range(("sm_90a", "sm_100a", "sm_120a"), "12.0.140", "13.1.80"),),
        words=(("add.s16x2", "add.u16x2"),),
        matches=_adds_to_half,
        executed=True,
    ),
    Miscompilation(
        name="negated-16-bits",
        does="treats the 16-bit negation of -32768 as +32768 when it is widened or compared",
        instead="negate in 32 bits and convert to 16 bits and back",
        sources=(
            "https://github.com/llvm/llvm-project/issues/160482",
            "https://github.com/SemiAnalysisAI/FuzzX/tree/master/ptx/known-miscompiles/m060-scalar16-sub-intmin-fold",
        ),
        ranges=all_targets("11.7.99", "13.2.86"),
        words=((".s16",), ("neg.s16", "sub.", "abs.s16")),
        matches=_widens_a_negated,
        executed=True,
    ),
    Miscompilation(
        name="video-upper-half",
        does="writes the upper half of a result into `.h1`; PTX requires the lower half there",
        instead="write `.h0` and move it with `prmt`",
        sources=(),
        ranges=all_targets("11.7.99", "13.2.86"),
        words=((".h1",), _VIDEO),
        matches=_writes_an_upper_half,
        unoptimised=True,
        executed=True,
    ),
)
