"""One instruction during decoding: its modifiers, and its operands as arrays.

Modules of opcodes register makers: `@opcode("add", "sub")` on a function that takes a Site and returns the step. Every
operand becomes a *row*, an array with one element per thread of the machine: that of a register, or one made for an
immediate, a special register or an address. A maker reads `site.row` and `site.target` once; the step uses a group's
slice of these rows: `g.put(d, a[g.s] + b[g.s])`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate.machine import Step
from tritonhook.emulate.opcodes import Array as Array
from tritonhook.emulate.opcodes import Opcodes, contradict
from tritonhook.emulate.opcodes import Reader as Reader
from tritonhook.emulate.ptx.kernel import SIZES, list_of
from tritonhook.errors import NotUnderstood
from tritonhook.ptx.dataflow import number
from tritonhook.ptx.program import REGISTER, Item

if TYPE_CHECKING:
    from tritonhook.emulate.ptx.decode import Decoder

OPCODES = Opcodes()  # by the first parts of an opcode, e.g. "mul.lo" for mul.lo.s32
opcode = OPCODES.of
KINDS: Mapping[str, Any] = {  # NumPy's type for each PTX type; floating-point numbers are kept as bit patterns
    "pred": np.bool_,
    **{
        name: {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[size] for name, size in SIZES.items() if size < 16
    },
    **{f"s{8 * size}": kind for size, kind in ((1, np.int8), (2, np.int16), (4, np.int32), (8, np.int64))},
}
FILES: Mapping[str, Any] = {  # types of registers, by the prefix of their names
    "p": np.bool_, "rb": np.uint8, "rs": np.uint16, "r": np.uint32, "rd": np.uint64,
}  # fmt: skip
_INTEGER_OF = {1: (np.uint8, np.int8), 2: (np.uint16, np.int16), 4: (np.uint32, np.int32), 8: (np.uint64, np.int64)}
_NUMBER = r"(?:0[xX][0-9a-fA-F]+|\d+)"
_ADDRESS = re.compile(rf"\[\s*([%$\w.]+)\s*(?:\+\s*(-?\s*{_NUMBER})|(-\s*{_NUMBER}))?\s*\]$")


class Site:
    """One instruction during decoding. name: first parts of the opcode, for which its maker is registered. modifiers:
    the other parts, in order."""

    def __init__(self, decoder: Decoder, item: Item, line: int) -> None:
        self.decoder, self.machine, self.item, self.line = decoder, decoder.machine, item, line
        self.operands = item.operands
        self.name = known_name(item.opcode)
        self.modifiers = tuple(item.opcode[len(self.name) + 1 :].split(".")) if item.opcode != self.name else ()

    def refuse(self, why: str = "") -> NotUnderstood:
        """Return the error to raise if the instruction is not understood. why: the operand or state that is not
        understood; "": the opcode itself is not understood."""
        return NotUnderstood(self.item.opcode, self.line, why)

    def known(self, *modifiers: str) -> frozenset[str]:
        """Return the site's modifiers. Raises NotUnderstood if one is not listed, or if two exclude each other."""
        if unknown := [one for one in self.modifiers if one not in modifiers]:
            raise self.refuse("" if len(self.modifiers) == 1 else f".{unknown[0]}")
        if contradict(self.modifiers):
            raise self.refuse()
        return frozenset(self.modifiers)

    def typed(self, types: str, *modifiers: str) -> tuple[str, frozenset[str]]:
        """Remove the last modifier, the type, and return it with the other modifiers. types: allowed types, separated
        by blanks. Raises NotUnderstood, see `known`."""
        if not self.modifiers or self.modifiers[-1] not in types.split():
            raise self.refuse("type" if self.modifiers else "")
        kind, self.modifiers = self.modifiers[-1], self.modifiers[:-1]
        return kind, self.known(*modifiers)

    def count(self, *numbers: int) -> None:
        """Check the number of operands. numbers: the allowed numbers. Raises NotUnderstood."""
        if len(self.operands) not in numbers:
            raise self.refuse(f"{len(self.operands)} operands")

    def compute(self, function: Callable[..., Array], target: str, *sources: str) -> Step:
        """Make the step that computes the first operand from the others. target: type of the first operand. sources:
        types of the others."""
        rows = [self.row(number, kind) for number, kind in enumerate(sources, 1)]
        return computing(self.target(0, target), function, *rows)

    # --- rows --------------------------------------------------------------------------------

    def _text(self, operand: int | str) -> str:
        return self.operands[operand] if isinstance(operand, int) else operand

    def row(self, operand: int | str, kind: str) -> Array:
        """Return the row of a source operand, as numbers of a PTX type. operand: its number or its text."""
        text = self._text(operand)
        if kind == "pred":
            return self._predicate(text)
        wanted = KINDS[kind]
        if (match := REGISTER.fullmatch(text)) is not None:
            row = self.decoder.register(text, match[1])
            if row.dtype.itemsize == np.dtype(wanted).itemsize and row.dtype != np.bool_:
                return row.view(wanted)
            if row.dtype == np.bool_ or row.dtype.itemsize < np.dtype(wanted).itemsize:
                raise self.refuse(f"{text} as .{kind}")
            return row.view(wanted)[:: row.dtype.itemsize // np.dtype(wanted).itemsize]  # low bits of a wider register
        if (special := self.decoder.specials.get(text)) is not None:
            return special if special.dtype.itemsize == np.dtype(wanted).itemsize else special.astype(wanted)
        if (address := self.decoder.address_of(text)) is not None:
            return address.astype(wanted)
        return self.constant(self._immediate(text, kind), wanted)

    def constant(self, value: int, kind: Any) -> Array:
        """Return a row with one number for all threads. value: its bits. kind: NumPy's type."""
        return self.decoder.constant(value, np.dtype(kind))

    def _predicate(self, text: str) -> Array:
        if text.startswith("!"):
            raise self.refuse("a negated predicate")
        if (value := number(text)) is not None:
            return self.constant(int(value != 0), np.bool_)
        if text == "%is_explicit_cluster":
            return self.constant(int(self.machine.geometry.cluster_size > 1), np.bool_)
        if not text.startswith("%p"):
            raise self.refuse(f"{text} as a predicate")
        return self.decoder.register(text, "p")

    def predicate(self, operand: int | str) -> Reader:
        """Return the reader of a predicate operand, which may be negated."""
        text = self._text(operand)
        row = self._predicate(text.lstrip("!").strip())
        return (lambda g: ~row[g.s]) if text.startswith("!") else (lambda g: row[g.s])

    def _immediate(self, text: str, kind: str) -> int:
        bits = 8 * SIZES[kind]
        if text[:2] in ("0f", "0F", "0d", "0D") and re.fullmatch(r"0[fFdD][0-9a-fA-F]+", text):
            value = int(text[2:], 16)
            if text[1] in "fF" and kind == "f64":
                return int(struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", value))[0]))[0])
            return value & (1 << bits) - 1
        if kind in ("f32", "f64") and re.fullmatch(
            r"-?\d*\.\d+(?:[eE][-+]?\d+)?|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?", text
        ):
            return int.from_bytes(struct.pack("<f" if kind == "f32" else "<d", float(text)), "little")
        if text == "WARP_SZ":
            return 32
        value_ = number(text)
        if value_ is None:
            raise self.refuse(f"operand {text}")
        return value_ & (1 << bits) - 1

    def target(self, operand: int | str, kind: str) -> Array:
        """Return the row that a result of this type is written to. In a wider register, the result is extended with its
        sign, or with zeros if it is unsigned."""
        text = self._text(operand)
        if text == "_":
            return self.machine.registers(1, KINDS[kind])[0]  # "_": the result is discarded
        match = REGISTER.fullmatch(text)
        if match is None:
            raise self.refuse(f"target {text}")
        row = self.decoder.register(text, match[1])
        if kind == "pred" or row.dtype == np.bool_:
            if kind != "pred" or row.dtype != np.bool_:
                raise self.refuse(f"target {text}")
            return row
        size = row.dtype.itemsize
        if size < SIZES[kind]:
            raise self.refuse(f"target {text} as .{kind}")
        if size == SIZES[kind]:
            return row.view(KINDS[kind])
        return row.view(_INTEGER_OF[size][kind.startswith("s")])

    def rows(self, operand: int | str, kind: str) -> list[Array]:
        """Return the rows of the elements of a vector operand, e.g. `{%r1, %r2}`."""
        return [self.row(one, kind) for one in list_of(self._text(operand))]

    def targets(self, operand: int | str, kind: str) -> list[Array]:
        """Return the rows that the elements of a vector result are written to."""
        return [self.target(one, kind) for one in list_of(self._text(operand))]

    def two(self, operand: int) -> tuple[str, str]:
        """Split an operand of two parts, e.g. `%p1|%p2`. The second part is "_" if it is missing."""
        first, _, second = self.operands[operand].partition("|")
        return first.strip(), second.strip() or "_"

    def integer(self, operand: int) -> int:
        """Return the value of an operand that must be an immediate. Raises NotUnderstood."""
        found = number(self.operands[operand])
        if found is None:
            raise self.refuse(f"operand {self.operands[operand]}")
        return found

    def address(self, operand: int | str) -> Reader:
        """Return the reader of an address operand, e.g. `[%rd1 + 16]`."""
        text = self._text(operand)
        match = _ADDRESS.match(text)
        if match is None:
            raise self.refuse(f"address {text}")
        base, offset = match[1], int((match[2] or match[3] or "0").replace(" ", ""), 0)
        if re.fullmatch(_NUMBER, base):
            return self._given(int(base, 0) + offset)
        if (register := REGISTER.fullmatch(base)) is not None:
            row = self.decoder.register(base, register[1])
        else:
            found = self.decoder.address_of(base)
            if found is None:
                raise self.refuse(f"address {text}")
            row = found
        if row.dtype not in (np.uint32, np.uint64):
            raise self.refuse(f"address {text}")
        if not offset:
            return lambda g: row[g.s]
        added = row.dtype.type(offset & (1 << 8 * row.dtype.itemsize) - 1)
        return lambda g: row[g.s] + added

    def _given(self, address: int) -> Reader:
        row = self.constant(address & (1 << 64) - 1, np.uint64)
        return lambda g: row[g.s]


def known_name(text: str) -> str:
    """Return the longest registered name that is the beginning of an opcode; "" if there is none."""
    parts = text.split(".")
    for count in range(len(parts), 0, -1):
        if (name := ".".join(parts[:count])) in OPCODES:
            return name
    return ""


def computing(target: Array, function: Callable[..., Array], *rows: Array) -> Step:
    """Make the step that writes function(*rows) to target."""
    return lambda g: g.put(target, function(*[row[g.s] for row in rows]))
