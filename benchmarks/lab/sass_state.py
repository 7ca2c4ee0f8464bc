"""What the machine for machine code holds: registers, memory, constants; and the operands of an instruction. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

WORD, LONG = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF
PARAMETERS = {7: 0x160, 8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}  # where they begin in bank 0, by major architecture
FIRST_BUFFER, BUFFER_STEP = 0x7F00_0000_0000, 0x1000_0000


_OPERAND = re.compile(r"[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)*")
_REGISTER = re.compile(r"(U?[RP])(\d+|Z|T)$")
_MEMORY = re.compile(r"(?:desc\[\w+\])?\[(U?R(?:\d+|Z))?(?:\.(?:64|U32))?(?:\+(UR\d+))?(?:\+?(-?0x[0-9a-f]+))?\]$")
CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\]\[(?:(U?R(?:\d+|Z))\+?)?(0x[0-9a-f]+)?\]$")


class NotUnderstood(Exception):
    """An instruction, modifier or operand that this machine does not know."""


class Machine:
    def __init__(self, arch: str, arguments: Sequence[bytes | int], garbage: int) -> None:
        self.buffers = [bytearray(one) for one in arguments if isinstance(one, bytes)]
        self.registers: dict[str, int] = {}
        self.garbage = garbage
        self.constants: dict[int, int] = {}  # bytes of bank 0
        self.shared: dict[int, int] = {}  # bytes of shared memory
        major = int(re.sub(r"\D", "", arch)) // 10
        at, buffers = PARAMETERS[major], iter(range(len(self.buffers)))
        for one in arguments:
            value = FIRST_BUFFER + next(buffers) * BUFFER_STEP if isinstance(one, bytes) else one
            self.constants.update(enumerate(value.to_bytes(8, "little"), at))
            at += 8

    def register(self, name: str) -> int:
        if name.endswith("Z"):
            return 0
        return self.registers.get(name, (self.garbage * 0x9E37_79B1 * (int(name.lstrip("UR")) + 1)) & WORD)

    def pair(self, name: str) -> int:
        return self.register(name) | self.register(following(name)) << 32

    def predicate(self, name: str) -> bool:
        inverted, name = name.startswith("!"), name.lstrip("!")
        if not re.fullmatch(r"U?P(\d|T)", name):
            raise NotUnderstood(f"predicate {name}")
        value = True if name.endswith("T") else bool(self.registers.get(name, self.garbage & 1))
        return value != inverted

    def set(self, name: str, value: int) -> None:
        name = name.removesuffix(".reuse")
        if not _REGISTER.fullmatch(name):
            raise NotUnderstood(f"target {name}")
        if not name.endswith(("Z", "T")):
            self.registers[name] = value & WORD

    def constant(self, at: int, size: int) -> int:
        return int.from_bytes(bytes(self.constants.get(at + i, 0) for i in range(size)), "little")

    def memory(self, address: int, size: int) -> tuple[bytearray, int]:
        index, offset = divmod(address - FIRST_BUFFER, BUFFER_STEP)
        if not 0 <= index < len(self.buffers) or offset + size > len(self.buffers[index]):
            raise NotUnderstood(f"{size} bytes at {address:#x}, outside of all buffers")
        return self.buffers[index], offset


class Arguments:
    """The operands of one instruction: the leading ones are written, `value`, `wide` and `flag` take the others."""

    def __init__(self, machine: Machine, base: str, modifiers: list[str], operands: list[str]) -> None:
        self.machine, self.base, self.modifiers, self.operands = machine, base, modifiers, operands

    def only(self, *known: str) -> set[str]:
        """The modifiers. Raises NotUnderstood if one is not known."""
        if unknown := set(self.modifiers) - set(known):
            raise NotUnderstood(f"{self.base}.{'.'.join(sorted(unknown))}")
        return set(self.modifiers)

    def targets(self) -> tuple[str, list[str]]:
        """Take the register that is written and the predicates behind it."""
        target = self.operands.pop(0)
        flags = []
        while self.operands and re.fullmatch(r"U?P(\d|T)", self.operands[0]):
            flags.append(self.operands.pop(0))
        return target, flags

    def flag(self) -> bool:
        return self.machine.predicate(self.operands.pop(0))

    def text(self) -> str:
        return self.operands.pop(0)

    def value(self, inverted_is_negated: bool = False) -> int:
        """A source of 32 bits. A negated one can have 33: `~x + 1`, so that its carry is not lost."""
        text = self.operands.pop(0).replace(".reuse", "")
        if text.startswith("-") and not text.startswith("-0x"):
            return (self.source(text[1:]) ^ WORD) + 1
        if text.startswith("~"):
            return self.source(text[1:]) ^ WORD
        return self.source(text)

    def source(self, text: str) -> int:
        absolute = text.startswith("|")
        text = text.strip("|")
        if _REGISTER.fullmatch(text):
            value = self.machine.register(text)
        elif match := CONSTANT.match(text):
            value = self.machine.constant(self.constant_address(match), 4)
        elif re.fullmatch(r"-?0x[0-9a-f]+", text):
            value = int(text, 16) & WORD
        elif re.fullmatch(r"-?\d+", text):
            value = int(text) & WORD
        else:
            raise NotUnderstood(f"operand {text}")
        return abs(signed(value)) if absolute else value

    def wide(self) -> int:
        """A source of 64 bits: a pair of registers, a constant or a number."""
        text = self.operands.pop(0).replace(".reuse", "").removesuffix(".64")
        negated, text = (
            text.startswith("-") and not text.startswith("-0x"),
            text.lstrip("-~") if "0x" not in text else text,
        )
        if _REGISTER.fullmatch(text):
            value = 0 if text.endswith("Z") else self.machine.pair(text)
        elif match := CONSTANT.match(text):
            value = self.machine.constant(self.constant_address(match), 8)
        elif re.fullmatch(r"-?0x[0-9a-f]+", text):
            value = int(text, 16) & LONG
        else:
            raise NotUnderstood(f"operand {text}")
        return -value & LONG if negated else value

    def constant_address(self, match: re.Match[str]) -> int:
        if match[1] != "0":
            raise NotUnderstood(f"constant bank {match[1]}")
        return (self.machine.register(match[2]) if match[2] else 0) + int(match[3] or "0", 16)

    def address(self) -> int:
        text = self.operands.pop(0).replace(".reuse", "")
        match = _MEMORY.match(text)
        if match is None:
            raise NotUnderstood(f"address {text}")
        base = self.machine.pair(match[1]) if match[1] else 0
        added = self.machine.pair(match[2]) if match[2] else 0
        return (base + added + int(match[3] or "0", 16)) & LONG

    def write_pair(self, name: str, value: int) -> None:
        name = name.removesuffix(".64")
        self.machine.set(name, value)
        if not name.endswith("Z"):
            self.machine.set(following(name), value >> 32)


def split(text: str) -> list[str]:
    return [part.strip() for part in _OPERAND.findall(text) if part.strip()]


def following(name: str) -> str:
    kind, number = _REGISTER.fullmatch(name).groups()  # type: ignore[union-attr]
    return name if number in "ZT" else f"{kind}{int(number) + 1}"


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
