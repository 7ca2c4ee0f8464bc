"""A machine for machine code of one thread: what does a small integer kernel store? Pure; it needs no GPU.

It knows the integer instructions of sm_75 to sm_120 that small kernels are made of, with their modifiers, and raises
`NotUnderstood` for everything else, so that a result is never guessed. Registers that nothing has written hold
`garbage`: a kernel that stores something else with other garbage has stored what it never computed. `run` gives the
bytes of the buffers after the kernel, which `-O0` of the same PTX lets one check.

sass_numbers.py says what it knows of matrix products.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from benchmarks.lab.sass_numbers import add_floats, half_constant, multiply_matrices, multiply_registers, to_fp8
from benchmarks.lab.sass_state import (
    CONSTANT,
    LONG,
    WORD,
    Arguments,
    Machine,
    NotUnderstood,
    following,
    signed,
    split,
)

MOST_STEPS = 100_000

Code = Sequence[tuple[str, str, str]]  # predicate, opcode, operands

_IGNORED = (
    *("NOP", "BSSY", "BSYNC", "WARPSYNC", "DEPBAR", "BAR", "CCTL", "ERRBAR", "MEMBAR", "BMOV", "YIELD", "ACQBULK"),
    *("WARPGROUP", "FENCE"),
)
_SPECIAL = ("SR_TID", "SR_CTAID", "SR_LANEID", "SRZ", "SR_CgaCtaId")


def run(code: Code, arch: str, arguments: Sequence[bytes | int], garbage: int = 0) -> list[bytes]:
    """Run thread 0 of block 0. arguments: buffers (bytes) and scalars (8 bytes). Gives the buffers, in order."""
    machine = Machine(arch, arguments, garbage)
    at = 0
    for _ in range(MOST_STEPS):
        predicate, opcode, text = code[at]
        at += 1
        if predicate and not machine.predicate(predicate.lstrip("@")):
            continue
        base, *modifiers = opcode.split(".")
        if base == "EXIT":
            return [bytes(buffer) for buffer in machine.buffers]
        if base == "BRA":
            at = int(text.split(",")[-1].strip(" `()"), 16) // 16
        elif base not in _IGNORED:
            step(machine, base, modifiers, split(text))
    raise NotUnderstood(f"more than {MOST_STEPS:,} steps")


def step(machine: Machine, base: str, modifiers: list[str], operands: list[str]) -> None:
    uniform = base.startswith("U") and base[1:] in OPERATIONS
    operation = OPERATIONS.get(base[1:] if uniform else base)
    if operation is None:
        raise NotUnderstood(".".join([base, *modifiers]))
    operation(machine, Arguments(machine, base, modifiers, operands))


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
    match = CONSTANT.match(given.text())
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
    is_negated = given.operands[0].startswith("-")
    if is_negated and modifiers:
        raise NotUnderstood(f"LEA.{'.'.join(modifiers)} of a negated number")
    given.operands[0] = given.operands[0].removeprefix("-")
    a, b = given.value() & WORD, given.value()
    high = (given.value() if "SX32" not in modifiers else (WORD if signed(a) < 0 else 0)) if "HI" in modifiers else 0
    count = given.value()
    value = ((high & WORD) << 32 | a) << count
    shifted = value >> 32 & WORD if "HI" in modifiers else value & WORD
    # Executed: 3285 - (0 << 4) carries, so that the 1 of the negation counts as in IADD3.
    total = b + ((shifted ^ WORD) + 1 if is_negated else shifted)
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
    "F2FP": to_fp8,
    **dict.fromkeys(("HMMA", "QMMA"), multiply_registers),
    "FADD": add_floats,
    "IABS": one_operand(lambda value: abs(signed(value))),
    "POPC": one_operand(lambda value: value.bit_count()),
    "BREV": one_operand(lambda value: int(f"{value:032b}"[::-1], 2)),
}
