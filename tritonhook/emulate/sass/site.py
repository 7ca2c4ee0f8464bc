"""Site: one instruction of machine code while it is decoded, with its modifiers and operands.

Modules register a function per opcode: `@opcode("IADD3")` decorates a function that takes a Site and returns the step,
i.e. the closure that executes the instruction. It takes the operands in order. A source becomes a *reader*, which
returns its bits for the threads of a group; a target becomes a *writer*. A *row* holds the values of one register: an
array with one element per thread. Uniform registers have a row, too; they are written for all threads of a warp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonhook.emulate import numbers64
from tritonhook.emulate.machine import WARP, Group, Machine, Step
from tritonhook.emulate.numbers import ABS32, SIGN32
from tritonhook.emulate.opcodes import Array as Array
from tritonhook.emulate.opcodes import Opcodes, contradict
from tritonhook.emulate.opcodes import Reader as Reader
from tritonhook.emulate.words import joined
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.cubin.sass import Instruction
    from tritonhook.emulate.sass.decode import Decoder

Writer = Callable[[Group, Array], None]
OPCODES = Opcodes()  # by base opcode, e.g. "IADD3"
opcode = OPCODES.of

_OPERAND = re.compile(r"[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)*")
_REGISTER = re.compile(r"(U?)R(\d+|Z)$")
_PREDICATE = re.compile(r"(!?)(U?)P(\d+|T)$")
_CONSTANT = re.compile(r"c\[(0x[0-9a-f]+)\]\[(?:(U?R(?:\d+|Z))\+?)?(-?0x[0-9a-f]+)?\]$")
_ADDRESS = re.compile(
    r"(?:desc\[(UR\d+|URZ)\])?\[(?:(R(?:\d+|Z))(?:\.(64|U32|X4|X8|X16))?)?(?:\+?(UR(?:\d+|Z)))?(?:\+?(-?0x[0-9a-f]+))?\](\.\w+)?$"
)
FLOAT = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|INF|QNAN|SNAN)$")


def split(text: str) -> list[str]:
    """Split an instruction's operands at commas, and drop the suffix .reuse."""
    return [part.strip() for part in _OPERAND.findall(text.replace(".reuse", "")) if part.strip()]


class Site:
    """One instruction while it is decoded. base: the opcode without modifiers. modifiers: the modifiers in order.
    given: the operands that were not taken yet. immediate: bits 32 to 63 of the instruction, which hold its
    immediate."""

    def __init__(self, decoder: Decoder, one: Instruction, immediate: int) -> None:
        self.decoder, self.one, self.immediate = decoder, one, immediate
        self.base, *rest = one.opcode.split(".")
        self.modifiers = tuple(rest)
        self.given = split(one.operands)

    @property
    def machine(self) -> Machine:
        return self.decoder.machine

    def refuse(self, why: str = "") -> NotUnderstood:
        """Return the NotUnderstood error of this instruction, for the caller to raise. why: what is not understood."""
        return NotUnderstood(self.one.opcode, self.one.offset, why)

    def known(self, *modifiers: str) -> frozenset[str]:
        """Return the instruction's modifiers. Raises NotUnderstood if one is not in `modifiers` or two exclude each
        other."""
        if unknown := [one for one in self.modifiers if one not in modifiers]:
            raise self.refuse(f".{unknown[0]}")
        kinds = [one for one in self.modifiers if one in ("U32", "S32", "U64", "S64")]
        if len(kinds) > 1 or contradict(self.modifiers):
            raise self.refuse()
        return frozenset(self.modifiers)

    def done(self) -> None:
        """Check that all operands were taken. Raises NotUnderstood if not."""
        if self.given:
            raise self.refuse(f"operands {', '.join(self.given)}")

    def text(self) -> str:
        """Take the next operand as text."""
        if not self.given:
            raise self.refuse("too few operands")
        return self.given.pop(0)

    def take(self, what: str) -> list[Any]:
        """Take several operands; each letter of `what` stands for one.

        Targets: R register, W pair of registers, P predicate. Sources: i 32-bit integer, s float32, d float64, w 64
        bits, p predicate. A dot at the end: check that no operand follows.
        """
        takers = {
            "R": self.target,
            "W": self.target_pair,
            "P": self.target_flag,
            "i": self.integer,
            "s": self.single,
            "d": self.double,
            "w": self.wide,
            "p": self.predicate,
        }
        found = [takers[letter]() for letter in what.rstrip(".")]
        if what.endswith("."):
            self.done()
        return found

    def compute(self, function: Callable[..., Array], what: str) -> Step:
        """Make the step that computes the first operand from the others. what: one letter per operand, see `take`."""
        put, *sources = self.take(what + ".")
        return lambda g: put(g, function(*[read(g) for read in sources]))

    def next_is(self, pattern: str) -> bool:
        return bool(self.given) and re.fullmatch(pattern, self.given[0]) is not None

    # --- rows --------------------------------------------------------------------------------

    def register(self, text: str, offset: int = 0) -> Array:
        """Return the row of a register, e.g. R4 or URZ. offset: number to add to the register's number."""
        match = _REGISTER.match(text)
        if match is None:
            raise self.refuse(f"operand {text}")
        if match[2] == "Z":
            return self.decoder.zeros
        return self.decoder.row(bool(match[1]), int(match[2]) + offset)

    def source_row(self, text: str, offset: int = 0) -> Array:
        """Return the row of a 32-bit source without sign: a register, constant, integer or float. offset: 1 for the
        upper word of a pair."""
        if _REGISTER.match(text):
            return self.register(text, offset)
        if (match := _CONSTANT.match(text)) is not None:
            if match[2]:
                raise self.refuse(f"operand {text}")
            at = int(match[3] or "0", 16) + 4 * offset
            return self.decoder.constant(self.decoder.bank(self, int(match[1], 16), at))
        if re.fullmatch(r"-?0x[0-9a-f]+", text):
            value = int(text, 16)
            return self.decoder.constant(value >> 32 * offset & 0xFFFF_FFFF)
        if FLOAT.match(text):
            return self.decoder.constant(self.immediate)
        raise self.refuse(f"operand {text}")

    # --- sources -----------------------------------------------------------------------------

    def integer(self) -> Reader:
        """Take a source of 32 bits, which may be negated, inverted or absolute."""
        sign, size, text = modified(self.text())
        row = self.source_row(text)
        if size:
            if sign:
                raise self.refuse(f"operand {sign}|{text}|")
            return lambda g: np.abs(row[g.s].view(np.int32)).view(np.uint32)
        if sign == "-":
            return lambda g: np.negative(row[g.s])
        return (lambda g: ~row[g.s]) if sign == "~" else lambda g: row[g.s]

    def counting(self) -> Reader:
        """Take a source of 32 bits as int64, so that carries are kept. A negated source becomes its inverted bits plus
        1."""
        sign, size, text = modified(self.text())
        row = self.source_row(text)
        if size:
            raise self.refuse(f"operand {text}")
        if sign == "-":
            return lambda g: (~row[g.s]).astype(np.int64) + 1
        return (lambda g: (~row[g.s]).astype(np.int64)) if sign == "~" else lambda g: row[g.s].astype(np.int64)

    def exact(self) -> Reader:
        """Take a signed 32-bit integer, which may be negated, as int64, so that negating it cannot overflow."""
        sign, size, text = modified(self.text())
        if size or sign == "~":
            raise self.refuse(f"operand {text}")
        row, factor = self.source_row(text), -1 if sign else 1
        return lambda g: row[g.s].view(np.int32).astype(np.int64) * factor

    def wide(self) -> Reader:
        """Take a source of 64 bits: a pair of registers, a constant, or a sign-extended number of 32 bits."""
        sign, size, text = modified(self.text().removesuffix(".64"))
        if size:
            raise self.refuse(f"operand {text}")
        read = self.pair(text)
        if sign == "-":
            return lambda g: np.negative(read(g))
        return (lambda g: ~read(g)) if sign == "~" else read

    def pair(self, text: str) -> Reader:
        low, high = self.source_row(text), self.source_row(text, 1)
        return lambda g: joined(low[g.s], high[g.s])

    def single(self) -> Reader:
        """Take a float32 as bits, after its negation or absolute value."""
        sign, size, text = modified(self.text())
        row = self.source_row(text)
        return with_sign(lambda g: row[g.s], sign, size, SIGN32, ABS32)

    def double(self) -> Reader:
        """Take a float64 as bits: a pair of registers, a constant, or an immediate, which is its upper word."""
        sign, size, text = modified(self.text().removesuffix(".64"))
        if FLOAT.match(text):
            row = np.broadcast_to(np.uint64(self.immediate << 32), self.machine.threads)
            read: Reader = lambda g: row[g.s]  # noqa: E731
        else:
            read = self.pair(text)
        if sign == "~":
            return lambda g: ~read(g)
        return (lambda g: numbers64.with_sign(read(g), sign, size)) if sign or size else read

    def predicate(self) -> Reader:
        """Take a predicate to read, which may be inverted."""
        return self.decoder.predicate(self, self.text())

    def flags(self, pattern: str = r"!?U?P(\d+|T)") -> list[str]:
        """Take all predicates that come next, as text."""
        found = []
        while self.next_is(pattern):
            found.append(self.text())
        return found

    def carries(self) -> list[Writer]:
        """Take the predicates after a target register that receive its carries; return their writers."""
        return [self.flag_writer(name) for name in self.flags(r"U?P(\d+|T)")]

    def no_flags(self, why: str = "a predicate is written") -> None:
        """Take predicate targets that must be PT, i.e. are not written. Raises NotUnderstood for others."""
        if any(not name.endswith("T") for name in self.flags(r"U?P(\d+|T)")):
            raise self.refuse(why)

    def number(self) -> int:
        """Take an operand that must be a literal integer."""
        text = self.text()
        if not re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
            raise self.refuse(f"operand {text}")
        return int(text, 0)

    def address(self, bits: int = 64) -> Reader:
        """Take an address in brackets, e.g. `desc[UR4][R2.64+0x10]`. bits: 64, or 32 for shared and local memory."""
        text = self.text()
        match = _ADDRESS.match(text)
        if match is None or match[6] or (bits == 64 and (match[3] or "").startswith("X")):
            raise self.refuse(f"address {text}")
        _, register, how, uniform, offset, _ = match.groups()
        dtype: Any = np.uint64 if bits == 64 else np.uint32
        added = dtype(int(offset or "0", 16) & (1 << bits) - 1)
        readers: list[Reader] = []
        if register and register != "RZ":
            part = self._address_part(register, bits == 64 and how != "U32", dtype)
            readers.append(_times(part, int(how[1:])) if (how or "").startswith("X") else part)
        if uniform and uniform != "URZ":
            readers.append(self._address_part(uniform, bits == 64, dtype))
        if not readers:
            row = np.broadcast_to(added, self.machine.threads)
            return lambda g: row[g.s]
        if len(readers) == 1:
            (first,) = readers
            return (lambda g: first(g) + added) if added else first
        first, second = readers
        return lambda g: first(g) + second(g) + added

    def _address_part(self, text: str, is_wide: bool, dtype: Any) -> Reader:
        if is_wide:
            return self.pair(text)
        row = self.register(text)
        return (lambda g: row[g.s]) if dtype is np.uint32 else lambda g: row[g.s].astype(np.uint64)

    # --- targets -----------------------------------------------------------------------------

    def target(self) -> Writer:
        """Take a register to write; return its writer."""
        return self.writer(self.text())

    def writer(self, text: str, offset: int = 0) -> Writer:
        match = _REGISTER.match(text)
        if match is None:
            raise self.refuse(f"target {text}")
        if match[2] == "Z":
            return _nowhere
        row = self.decoder.row(bool(match[1]), int(match[2]) + offset)
        return _uniformly(row) if match[1] else lambda g, value: g.put(row, value)

    def targets(self, count: int) -> list[Writer]:
        """Take an operand that names the first of several consecutive registers to write; return their writers."""
        name = self.text()
        return [self.writer(name, number) for number in range(count)]

    def rows(self, count: int) -> list[Array]:
        """Take an operand that names the first of several consecutive registers to read; return their rows."""
        name = self.text().removesuffix(".ROW").removesuffix(".COL")
        return [self.register(name, number) for number in range(count)]

    def target_pair(self) -> Writer:
        """Take a pair of registers to write; return a writer of 64-bit values."""
        text = self.text().removesuffix(".64")
        low, high = self.writer(text), self.writer(text, 1)
        if low is _nowhere:
            return _nowhere

        def write(g: Group, value: Array) -> None:
            low(g, (value & np.uint64(0xFFFF_FFFF)).astype(np.uint32))
            high(g, (value >> np.uint64(32)).astype(np.uint32))

        return write

    def flag_writer(self, text: str) -> Writer:
        match = _PREDICATE.match(text)
        if text in ("RZ", "URZ") or (match is not None and match[3] == "T" and not match[1]):
            return _nowhere
        if match is None or match[1]:
            raise self.refuse(f"target {text}")
        row = self.decoder.flag(bool(match[2]), int(match[3]))
        return _uniformly(row) if match[2] else lambda g, value: g.put(row, value)

    def target_flag(self) -> Writer:
        """Take a predicate to write; return its writer."""
        return self.flag_writer(self.text())


def _times(read: Reader, factor: int) -> Reader:
    return lambda g: read(g) * np.uint32(factor)


def modified(text: str) -> tuple[str, bool, str]:
    """Split a source into its sign ("-", "~" or ""), whether it is absolute, and the rest. A literal number keeps its
    sign."""
    sign = ""
    if text[:1] in "-~" and (text[1:2] in "Rc|U" or text[1:3] == "UR"):
        sign, text = text[0], text[1:]
    if text.startswith("|"):
        return sign, True, text.strip("|") if text.endswith("|") else text.replace("|", "")
    return sign, False, text


def with_sign(read: Reader, sign: str, absolute: bool, sign_bit: Any, others: Any) -> Reader:
    """Make a reader of negated or absolute floats. sign_bit: mask of the sign. others: mask of the other bits."""
    if sign == "~":
        return lambda g: ~read(g)
    if absolute:
        return (lambda g: read(g) | sign_bit) if sign == "-" else lambda g: read(g) & others
    return (lambda g: read(g) ^ sign_bit) if sign == "-" else read


def _nowhere(g: Group, value: Array) -> None:
    """Discard a value that is written to RZ or PT."""


def whole_warps(g: Group) -> Array:
    """Return a mask of the threads in the group's slice whose warp has an active lane."""
    return np.repeat(g.active.reshape(-1, WARP).any(1), WARP)


def _uniformly(row: Array) -> Writer:
    def write(g: Group, value: Array) -> None:
        if g.mask is None:
            row[g.s] = value
        else:
            np.copyto(row[g.s], value, where=whole_warps(g), casting="unsafe")

    return write


def of_first_lane(g: Group, values: Array) -> Array:
    """Give each thread the value of the first active lane of its warp."""
    first = np.zeros(g.size // WARP, np.int64) if g.mask is None else g.mask.reshape(-1, WARP).argmax(1)
    return np.repeat(values.reshape(-1, WARP)[np.arange(len(first)), first], WARP)


def any_of_warp(read: Reader) -> Reader:
    """Make a reader that gives each thread whether the predicate is true in any active lane of its warp."""
    return lambda g: np.repeat((read(g) & g.active).reshape(-1, WARP).any(1), WARP)
