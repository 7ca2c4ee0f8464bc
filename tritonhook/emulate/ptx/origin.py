"""Find how an address was computed: from which pointers, and whether a 32-bit number in its computation overflowed.

Used once, after an access failed: the registers still hold the values of the thread's computation. Instructions are
followed backwards from the access; branches are ignored. An overflow is reported only if the registers' values prove
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritonhook.emulate.errors import Origin
from tritonhook.emulate.opcodes import Array
from tritonhook.ptx.dataflow import flow_of, number
from tritonhook.ptx.program import REGISTER, Item

_ADDRESS = re.compile(r"\[\s*(%rd\d+)\s*(?:\+\s*(-?\w+))?\s*\]")
_ARITHMETIC = frozenset({"add", "sub", "mul", "mad", "shl", "mov", "cvt", "cvta", "selp", "or", "and", "min", "max"})
_HALF, _MASK = 1 << 31, (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Part:
    """The instructions of one function. begin: index of the first one. row: returns the array of a register, by name
    and prefix. parameter: reads 8 bytes of the parameter that an operand names; None if it names none."""

    begin: int
    items: Sequence[Item]
    row: Callable[[str, str], Array]
    parameter: Callable[[str], int | None]

    def value(self, name: str, thread: int) -> int:
        """Return the value of a register in a thread."""
        match = REGISTER.fullmatch(name)
        assert match is not None
        return int(self.row(name, match[1])[thread])


def origin(parts: Sequence[Part], pc: int, thread: int, address: int) -> Origin:
    """Find how the address of the instruction at `pc` was computed. Return an empty Origin if no operand of the
    instruction holds this address."""
    part = next(one for one in reversed(parts) if one.begin <= pc)
    for operand in part.items[pc - part.begin].operands:
        if (match := _ADDRESS.search(operand)) is not None:
            offset = number(match[2] or "0") or 0
            if (part.value(match[1], thread) + offset) % (1 << 64) == address:
                return _Walk(part, thread).from_register(match[1])
    return Origin()


class _Walk:
    """A search backwards from an address. makers: indices of the instructions that write each register."""

    def __init__(self, part: Part, thread: int) -> None:
        self.part, self.thread = part, thread
        self.makers: dict[str, list[int]] = {}
        for index, item in enumerate(part.items):
            for name in flow_of(item).writes:
                self.makers.setdefault(name, []).append(index)

    def from_register(self, name: str) -> Origin:
        """Collect the pointers that a register was computed from, and the first 32-bit number that overflowed."""
        pointers, wrapped = list[int](), list[tuple[int, str]]()
        left, seen = [(name, True)], set[tuple[str, bool]]()  # registers, and whether they are widened with a sign
        while left:
            name, is_signed = left.pop()
            if (name, is_signed) in seen:
                continue
            seen.add((name, is_signed))
            for index in self.makers.get(name, ()):
                item = self.part.items[index]
                base, *parts = item.opcode.split(".")
                if base in _ARITHMETIC:
                    if name.startswith("%rd"):
                        is_signed = not parts[-1].startswith("u")
                    elif (text := self._wrapped(item, is_signed)) is not None:
                        wrapped.append((self.part.begin + index, text))
                    # The halves of a 64-bit number overflow by design: do not follow a mov that joins them.
                    if item.opcode != "mov.b64" or not item.operands[1].startswith("{"):
                        left += [(source, is_signed) for source in flow_of(item).reads if source.startswith("%r")]
                elif name.startswith("%rd"):
                    pointers.append(self._loaded(item, name))
        return Origin(tuple(pointers), *min(wrapped, default=(None, "")))

    def _loaded(self, item: Item, name: str) -> int:
        """Return the value that a load gave to a register. For the load of a parameter, read the parameter itself,
        because the register may have changed since."""
        parameter = self.part.parameter(item.operands[-1]) if item.opcode.startswith("ld.param") else None
        return self.part.value(name, self.thread) if parameter is None else parameter

    def _wrapped(self, item: Item, is_signed: bool) -> str | None:
        """Describe a 32-bit product or sum that overflowed; None if it did not, or if the instruction is neither."""
        base, *parts = item.opcode.split(".")
        if "wide" in parts or "hi" in parts or parts[-1] not in ("b32", "u32", "s32"):
            return None
        if not {base} & {"mul", "mad", "shl", "add", "sub"} or any(map(_is_no_number, item.operands)):
            return None
        stored, *operands = (self._number(one) for one in item.operands)
        if base == "shl":
            operands[1] = 1 << (operands[1] & 31)
        exact = [_exact(base, list(map(as_read, operands))) for as_read in (_signed, _unsigned)]
        then = _signed(stored) if is_signed else stored
        if then in exact or exact[1] & _MASK != stored:  # no overflow, or an operand has changed since
            return None
        kind = "sum" if base in ("add", "sub") else "product"
        return f"a 32-bit {kind} wrapped: {_written(base, list(map(_signed, operands)))} became {then:,}"

    def _number(self, operand: str) -> int:
        """Return the 32 bits of an operand."""
        value = number(operand)
        return (self.part.value(operand, self.thread) if value is None else value) & _MASK


def _is_no_number(operand: str) -> bool:
    return number(operand) is None and re.fullmatch(r"%r\d+", operand) is None


def _signed(bits: int) -> int:
    return (bits + _HALF & _MASK) - _HALF


def _unsigned(bits: int) -> int:
    return bits


def _exact(base: str, operands: Sequence[int]) -> int:
    a, b, *c = operands
    if base in ("add", "sub"):
        return a + b if base == "add" else a - b
    return a * b + sum(c)


def _written(base: str, operands: Sequence[int]) -> str:
    a, b, *c = (f"{one:,}" for one in operands)
    sign = {"add": "+", "sub": "-"}.get(base, "*")
    return " ".join([a, sign, b, *(f"+ {one}" for one in c if one != "0")])
