"""A machine for machine code of one thread: what does a small integer kernel store? Pure; it needs no GPU.

It knows the integer instructions of sm_75 to sm_120 that small kernels are made of, with their modifiers, and raises
`NotUnderstood` for everything else, so that a result is never guessed. Registers that nothing has written hold
`garbage`: a kernel that stores something else with other garbage has stored what it never computed. `run` gives the
bytes of the buffers after the kernel, which `-O0` of the same PTX lets one check.

Of `wgmma` it knows the number in row 0 and column 0, which thread 0 holds, for tiles whose groups of 8 rows and columns
lie on each other, and takes it that the threads beside it hold the same registers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

WORD, LONG = 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF
PARAMETERS = {7: 0x160, 8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}  # where they begin in bank 0, by major architecture
FIRST_BUFFER, BUFFER_STEP = 0x7F00_0000_0000, 0x1000_0000
MOST_STEPS = 100_000

Code = Sequence[tuple[str, str, str]]  # predicate, opcode, operands

_SPECIAL = ("SR_TID", "SR_CTAID", "SR_LANEID", "SRZ", "SR_CgaCtaId")
_IGNORED = (
    *("NOP", "BSSY", "BSYNC", "WARPSYNC", "DEPBAR", "BAR", "CCTL", "ERRBAR", "MEMBAR", "BMOV", "YIELD", "ACQBULK"),
    *("WARPGROUP", "FENCE"),
)
_OPERAND = re.compile(r"[^,\[\]]*(?:\[[^\]]*\][^,\[\]]*)*")
_REGISTER = re.compile(r"(U?[RP])(\d+|Z|T)$")
_MEMORY = re.compile(r"(?:desc\[\w+\])?\[(U?R(?:\d+|Z))?(?:\.(?:64|U32))?(?:\+(UR\d+))?(?:\+?(-?0x[0-9a-f]+))?\]$")
_CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\]\[(?:(U?R(?:\d+|Z))\+?)?(0x[0-9a-f]+)?\]$")


class NotUnderstood(Exception):
    """An instruction, modifier or operand that this machine does not know."""


def run(code: Code, arch: str, arguments: Sequence[bytes | int], garbage: int = 0) -> list[bytes]:
    """Run thread 0 of block 0. arguments: buffers (bytes) and scalars (8 bytes). Gives the buffers, in order."""
    machine = Machine(arch, arguments, garbage)
    machine.run(code)
    return [bytes(buffer) for buffer in machine.buffers]


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

    def run(self, code: Code) -> None:
        at = 0
        for _ in range(MOST_STEPS):
            predicate, opcode, text = code[at]
            at += 1
            if predicate and not self.predicate(predicate.lstrip("@")):
                continue
            base, *modifiers = opcode.split(".")
            if base == "EXIT":
                return
            if base == "BRA":
                at = int(text.split(",")[-1].strip(" `()"), 16) // 16
            elif base not in _IGNORED:
                self.step(base, modifiers, split(text))
        raise NotUnderstood(f"more than {MOST_STEPS:,} steps")

    def step(self, base: str, modifiers: list[str], operands: list[str]) -> None:
        uniform = base.startswith("U") and base[1:] in OPERATIONS
        operation = OPERATIONS.get(base[1:] if uniform else base)
        if operation is None:
            raise NotUnderstood(".".join([base, *modifiers]))
        operation(self, Arguments(self, base, modifiers, operands))

    # --- state -----------------------------------------------------------------------------------

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
        elif match := _CONSTANT.match(text):
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
        elif match := _CONSTANT.match(text):
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


# --- operations ----------------------------------------------------------------------------------


def move(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("U32", "64", "OR", "FILL")
    target = given.text()
    if "64" in modifiers:
        given.write_pair(target, given.wide())
    else:
        machine.set(target, given.value())


def load_constant(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("64", "U8", "U16", "S8", "S16", "128")
    target = given.text()
    match = _CONSTANT.match(given.text())
    if match is None:
        raise NotUnderstood("LDC of no constant")
    size = bytes_of(modifiers)
    load(machine, target, machine.constant(given.constant_address(match), size), size, modifiers)


def load_memory(machine: Machine, given: Arguments) -> None:
    target, _ = given.targets()
    modifiers = set(given.modifiers) - {"E", "CONSTANT", "STRONG", "SYS", "GPU", "WEAK", "EF", "EL", "LU", "NA"}
    size = bytes_of(modifiers)
    buffer, at = machine.memory(given.address(), size)
    load(machine, target, int.from_bytes(buffer[at : at + size], "little"), size, modifiers)


def bytes_of(modifiers: set[str]) -> int:
    sizes = {"64": 8, "128": 16, "U8": 1, "S8": 1, "U16": 2, "S16": 2}
    if unknown := modifiers - set(sizes):
        raise NotUnderstood(f"memory access .{'.'.join(unknown)}")
    return sizes[min(modifiers)] if modifiers else 4


def load(machine: Machine, target: str, value: int, size: int, modifiers: set[str]) -> None:
    if modifiers & {"S8", "S16"}:
        value = signed(value, size * 8)
    name = target
    for part in range(max(1, size // 4)):
        machine.set(name, value >> 32 * part)
        name = following(name)


def store_memory(machine: Machine, given: Arguments) -> None:
    modifiers = set(given.modifiers) - {"E", "STRONG", "SYS", "GPU", "WEAK", "EF", "EL", "LU", "NA"}
    size = bytes_of(modifiers)
    buffer, at = machine.memory(given.address(), size)
    name, value = given.text().replace(".reuse", ""), 0
    for part in range(max(1, size // 4)):
        value |= machine.register(name) << 32 * part
        name = following(name)
    buffer[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def store_shared(machine: Machine, given: Arguments) -> None:
    size = bytes_of(set(given.modifiers))
    at = given.address() & WORD
    name = given.text().replace(".reuse", "")
    for part in range(0, size, 4):
        machine.shared.update(enumerate(machine.register(name).to_bytes(4, "little")[:size], at + part))
        name = following(name)


def multiply_matrices(machine: Machine, given: Arguments) -> None:
    """HGMMA: the first number of the result. Of a descriptor's four registers, A takes the first two, B the others."""
    if given.only("64x8x16", "F32", "BF16") != {"64x8x16", "F32", "BF16"}:
        raise NotUnderstood(f"HGMMA.{'.'.join(given.modifiers)}")
    target, *sources, added, keeps, _ = [*given.operands, *(() if given.operands[-1] == "gsb0" else ("",))]
    if (added, keeps) != ("RZ", "!UPT"):
        raise NotUnderstood("HGMMA that adds")
    match = re.fullmatch(r"gdesc\[(UR\d+)\]", sources[-1])
    if match is None:
        raise NotUnderstood(f"HGMMA of {sources[-1]}")
    second = following(following(match[1]))
    if len(sources) == 2:
        held = machine.register(sources[0]), machine.register(following(following(sources[0])))
        a = [number for pair in held for number in bf16(pair.to_bytes(4, "little")) * 4]
    else:
        a = row(machine, machine.pair(match[1]))
    total = sum(x * y for x, y in zip(a, row(machine, machine.pair(second)), strict=True))
    machine.set(target, struct.unpack("<I", struct.pack("<f", total))[0])


def row(machine: Machine, descriptor: int) -> list[float]:
    """Row 0 of a tile, 16 numbers: those of its first eight columns twice, since the others lie on them."""
    if descriptor >> 14:
        raise NotUnderstood(f"descriptor {descriptor:#x}")
    places = range(descriptor << 4, (descriptor << 4) + 16)
    if any(at not in machine.shared for at in places):
        raise NotUnderstood(f"a tile at {descriptor << 4:#x}, which nothing has written")
    return bf16(bytes(machine.shared[at] for at in places)) * 2


def bf16(data: bytes) -> list[float]:
    return [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)]


def special(machine: Machine, given: Arguments) -> None:
    target, name = given.text(), given.text()
    if not name.startswith(_SPECIAL):
        raise NotUnderstood(name)
    (given.write_pair if given.base == "CS2R" and "32" not in given.modifiers else machine.set)(target, 0)


def add(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("X", "64")
    target, carries = given.targets()
    if "64" in modifiers:
        given.write_pair(target, given.wide() + given.wide())
        return
    total = sum(given.value() for _ in range(2 if given.base.lstrip("U") == "IADD" else 3))
    if "X" in modifiers:
        total += sum(given.flag() for _ in list(given.operands))
    machine.set(target, total)
    for number, carry in enumerate(carries, 1):
        machine.set(carry, total >> 32 >= number)


def add_video(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("16x2", "U16x2", "S16x2")
    target, a, b = given.text(), given.value(), given.value()
    machine.set(target, halves(lambda x, y: x + y, a, b) if modifiers else a + b)


def halves(operation: Callable[[int, int], int], a: int, b: int) -> int:
    low, high = operation(a & 0xFFFF, b & 0xFFFF), operation(a >> 16 & 0xFFFF, b >> 16 & 0xFFFF)
    return low & 0xFFFF | (high & 0xFFFF) << 16


def least(machine: Machine, given: Arguments) -> None:
    """IMNMX, VIMNMX, VIMNMX3, VIADDMNMX: the least where the predicate is true, else the greatest."""
    modifiers = given.only("U32", "S32", "S16x2", "U16x2", "RELU", "U16", "S16")
    if "RELU" in modifiers:
        raise NotUnderstood(".RELU")
    target, flags = given.targets()
    if any(not flag.endswith("T") for flag in flags):
        raise NotUnderstood("VIMNMX that writes a predicate")
    three = given.base.endswith(("MNMX3", "ADDMNMX"))
    values = [given.value() & WORD for _ in range(3 if three else 2)]
    if "ADD" in given.base:
        values = [values[0] + values[1] & WORD, values[2]]
    picks = [min if given.flag() else max for _ in list(given.operands)]
    picks += picks[:1] * (len(values) - 1 - len(picks))

    def reduce(numbers: list[int], bits: int) -> int:
        key = (lambda x: x) if modifiers & {"U32", "U16x2"} else (lambda x: signed(x, bits))
        found = numbers[0]
        for pick, number in zip(picks, numbers[1:], strict=False):
            found = pick(found, number, key=key)
        return found

    if modifiers & {"S16x2", "U16x2"}:
        low = reduce([v & 0xFFFF for v in values], 16)
        machine.set(target, low | reduce([v >> 16 for v in values], 16) << 16)
    else:
        machine.set(target, reduce(values, 32))


def multiply(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("U32", "MOV", "SHL", "IADD", "X", "WIDE", "HI", "S32")
    target, carries = given.targets()
    a, b = given.value() & WORD, given.value() & WORD
    if not modifiers & {"U32"}:
        a, b = signed(a), signed(b)
    if modifiers & {"WIDE", "HI"}:
        total = a * b + (given.wide() if modifiers & {"WIDE", "HI"} else 0)
        if "X" in modifiers:
            total += sum(given.flag() for _ in list(given.operands))
        if carries:
            raise NotUnderstood("IMAD with a carry")
        if "HI" in modifiers:
            machine.set(target, total >> 32)
        else:
            given.write_pair(target, total)
        return
    total = a * b + given.value()
    if "X" in modifiers:
        total += sum(given.flag() for _ in list(given.operands))
    machine.set(target, total)


def logic(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("LUT", "PAND", "64")
    flags = []
    while re.fullmatch(r"U?P(\d|T)", given.operands[0]):
        flags.append(given.text())
    target = given.text()
    a, b, c, table = given.value(), given.value(), given.value(), given.value()
    result = looked_up(table, a & WORD, b & WORD, c & WORD)
    machine.set(target, result)
    if flags:
        machine.set(flags[0], (result != 0 and given.flag()) if "PAND" in modifiers else (result != 0 or given.flag()))


def looked_up(table: int, a: int, b: int, c: int, ones: int = WORD) -> int:
    found = 0
    for index in range(8):
        if table >> index & 1:
            terms = (x if index & bit else x ^ ones for x, bit in ((a, 4), (b, 2), (c, 1)))
            one, two, three = terms
            found |= one & two & three
    return found & ones


def predicate_logic(machine: Machine, given: Arguments) -> None:
    given.only("LUT")
    first, second = given.text(), given.text()
    a, b, c = (int(given.flag()) for _ in range(3))
    tables = given.value(), given.value()
    for target, table in zip((first, second), tables, strict=True):
        machine.set(target, looked_up(table, a, b, c, 1))


def compare(machine: Machine, given: Arguments) -> None:
    modifiers = given.modifiers
    how = modifiers[0]
    known = {"LT", "LE", "GT", "GE", "EQ", "NE", "U32", "S32", "AND", "OR", "XOR", "EX", "U64", "S64", "F", "T"}
    if unknown := set(modifiers) - known:
        raise NotUnderstood(f"ISETP.{'.'.join(unknown)}")
    bits = 64 if {"U64", "S64"} & set(modifiers) else 32
    targets = []
    while len(targets) < 2 and re.fullmatch(r"U?P(\d|T)", given.operands[0]):
        targets.append(given.text())
    a, b = ((given.wide() if bits == 64 else given.value() & WORD) for _ in range(2))
    if not {"U32", "U64"} & set(modifiers):
        a, b = signed(a, bits), signed(b, bits)
    other = given.flag() if given.operands else True
    result = {"LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b, "EQ": a == b, "NE": a != b, "F": False, "T": True}[
        how
    ]
    if "EX" in modifiers:
        below = given.flag()
        result = {"EQ": a == b and below, "NE": a != b or below}.get(how, below if a == b else result)
    combine = {"AND": lambda x: x and other, "OR": lambda x: x or other, "XOR": lambda x: x != other}
    join = combine[next((m for m in ("AND", "OR", "XOR") if m in modifiers), "AND")]
    machine.set(targets[0], join(result))
    if len(targets) > 1:
        machine.set(targets[1], join(not result))


def shift(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("L", "R", "U32", "S32", "U64", "S64", "W", "HI")
    target, low, count, high = given.text(), given.value() & WORD, given.value() & WORD, given.value() & WORD
    wide = bool(modifiers & {"U64", "S64"})
    count = count & (63 if wide else 31) if "W" in modifiers else min(count, 64 if wide else 32)
    both = high << 32 | low
    if "L" in modifiers:
        both = both << count & LONG
    else:
        both = (signed(both, 64) if modifiers & {"S32", "S64"} else both) >> count
        if not wide and "HI" in modifiers:  # the high word alone is shifted
            both = ((signed(high) if "S32" in modifiers else high) >> count) << 32
    machine.set(target, both >> 32 if "HI" in modifiers else both)


def permute(machine: Machine, given: Arguments) -> None:
    given.only()
    target, a, chosen, b = given.text(), given.value() & WORD, given.value(), given.value() & WORD
    taken = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for number in range(4):
        nibble = chosen >> 4 * number & 0xF
        byte = taken[nibble & 7]
        result |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << 8 * number
    machine.set(target, result)


def select(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("64")
    target = given.text()
    if "64" in modifiers:
        a, b = given.wide(), given.wide()
        given.write_pair(target, a if given.flag() else b)
    else:
        a, b = given.value(), given.value()
        machine.set(target, a if given.flag() else b)


def shift_and_add(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("HI", "X", "SX32")
    target, carries = given.targets()
    if given.operands[0].startswith("-") and ("X" in modifiers or any(not carry.endswith("T") for carry in carries)):
        raise NotUnderstood("LEA of a negated number with a carry")
    a, b = given.value() & WORD, given.value()
    high = (given.value() if "SX32" not in modifiers else (WORD if signed(a) < 0 else 0)) if "HI" in modifiers else 0
    count = given.value()
    value = ((high & WORD) << 32 | a) << count
    total = (value >> 32 & WORD if "HI" in modifiers else value & WORD) + b
    if "X" in modifiers:
        total += given.flag()
    machine.set(target, total)
    for number, carry in enumerate(carries, 1):
        machine.set(carry, total >> 32 >= number)


def leading(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("U32", "SH", "S32")
    target, _ = given.targets()
    value = given.value() & WORD
    if "U32" not in modifiers and signed(value) < 0:
        value ^= WORD
    place = value.bit_length() - 1
    machine.set(target, place if place < 0 or "SH" not in modifiers else 31 - place)


def sign_extend(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("U32", "W")
    target, value, bits = given.text(), given.value() & WORD, given.value()
    bits = bits & 31 if "W" in modifiers else min(bits, 32)
    kept = value & (1 << bits) - 1
    machine.set(target, kept if "U32" in modifiers or not bits else signed(kept, bits))


def bit_mask(machine: Machine, given: Arguments) -> None:
    modifiers = given.only("W", "C")
    target, place, count = given.text(), given.value() & WORD, given.value() & WORD
    if "W" in modifiers:
        place, count = place & 31, count & 31
    machine.set(target, ((1 << min(count, 32)) - 1) << min(place, 32))


def half_constant(machine: Machine, given: Arguments) -> None:
    """HFMA2 with two zeros to multiply, which writes two halves: a cheap move."""
    given.only("MMA", "BF16_V2")
    target, a, b, high, low = (given.text() for _ in range(5))
    if a.strip("-") != "RZ" or b.strip("-") != "RZ":
        raise NotUnderstood("HFMA2 of numbers")
    numbers = [float({"+INF": "inf", "-INF": "-inf", "+QNAN": "nan", "-QNAN": "nan"}.get(n, n)) for n in (low, high)]
    if any(number != number for number in numbers):
        raise NotUnderstood("HFMA2 of NaN")
    if "BF16_V2" in given.modifiers:
        parts = [struct.unpack("<I", struct.pack("<f", n))[0] >> 16 for n in numbers]
    else:
        parts = [struct.unpack("<H", struct.pack("<e", n))[0] for n in numbers]
    machine.set(target, parts[0] | parts[1] << 16)


def fp8_pair(machine: Machine, given: Arguments) -> None:
    """F2FP: two floats to fp8, and half of the last operand above them."""
    modifiers = given.only("SATFINITE", "E4M3", "E5M2", "F32", "PACK_AB_MERGE_C", "RELU")
    if "PACK_AB_MERGE_C" not in modifiers or "RELU" in modifiers:
        raise NotUnderstood("F2FP of other kinds")
    target, a, b, kept = given.text(), given.value(), given.value(), given.text().removesuffix(".reuse")
    mantissa = 3 if "E4M3" in modifiers else 2
    pair = nearest_fp8(a, mantissa) << 8 | nearest_fp8(b, mantissa)
    above = machine.register(kept.removesuffix(".H1")) >> (16 if kept.endswith(".H1") else 0)
    machine.set(target, above << 16 | pair)


def nearest_fp8(bits: int, mantissa: int) -> int:
    """The code of the nearest finite number, the even one of two."""
    number = struct.unpack("<f", struct.pack("<I", bits & WORD))[0]
    if number != number:
        raise NotUnderstood("fp8 of NaN")
    bias = 7 if mantissa == 3 else 15
    most = 0x7E if mantissa == 3 else 0x7B

    def worth(code: int) -> float:
        exponent, fraction = code >> mantissa, code & (1 << mantissa) - 1
        scaled = fraction + (1 << mantissa if exponent else 0)
        return float(scaled * 2.0 ** (max(exponent, 1) - bias - mantissa))

    code = min(range(most + 1), key=lambda one: (abs(worth(one) - abs(number)), one & 1))
    return code | (0x80 if bits >> 31 & 1 else 0)


def one_operand(operation: Callable[[int], int]) -> Callable[[Machine, Arguments], None]:
    def apply(machine: Machine, given: Arguments) -> None:
        given.only()
        target = given.text()
        machine.set(target, operation(given.value() & WORD))

    return apply


OPERATIONS: dict[str, Callable[[Machine, Arguments], None]] = {
    **dict.fromkeys(("MOV", "R2UR"), move),
    **dict.fromkeys(("LDC", "LDCU"), load_constant),
    "LDG": load_memory,
    "STG": store_memory,
    "STS": store_shared,
    "HGMMA": multiply_matrices,
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), special),
    **dict.fromkeys(("IADD3", "IADD"), add),
    "VIADD": add_video,
    **dict.fromkeys(("IMNMX", "VIMNMX", "VIMNMX3", "VIADDMNMX"), least),
    "IMAD": multiply,
    "LOP3": logic,
    "PLOP3": predicate_logic,
    "ISETP": compare,
    "SHF": shift,
    "PRMT": permute,
    **dict.fromkeys(("SEL", "FSEL"), select),
    "LEA": shift_and_add,
    "FLO": leading,
    "SGXT": sign_extend,
    "BMSK": bit_mask,
    "HFMA2": half_constant,
    "F2FP": fp8_pair,
    "IABS": one_operand(lambda value: abs(signed(value))),
    "POPC": one_operand(lambda value: value.bit_count()),
    "BREV": one_operand(lambda value: int(f"{value:032b}"[::-1], 2)),
}
