"""Floating-point instructions for the simulated machine: conversions, sums, matrix products. Pure.

A matrix product computes one number: row 0, column 0, which thread 0 holds. Two things are assumed: the neighbouring
threads hold the same registers as thread 0, and all 8x8 groups of a tile in shared memory have the same contents.
"""

from __future__ import annotations

import re
import struct

from benchmarks.lab.sass_state import WORD, Arguments, Machine, NotUnderstood, following


def multiply_matrices(machine: Machine, given: Arguments) -> None:
    """HGMMA: compute the result's first number. A takes the first two registers of a descriptor, B the last two."""
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
    machine.set(target, bits_of(total))


def multiply_registers(machine: Machine, given: Arguments) -> None:
    """HMMA of f16 and QMMA of e4m3: the first number of the result. Four threads hold a row of A, a column of B."""
    kinds = {"HMMA": ({"16816", "F32"}, f16), "QMMA": ({"16832", "F32", "E4M3"}, e4m3)}
    known, numbers = kinds[given.base]
    if given.only(*known) != known:
        raise NotUnderstood(f"{given.base}.{'.'.join(given.modifiers)}")
    target, *names = (name.replace(".reuse", "").removesuffix(".ROW").removesuffix(".COL") for name in given.operands)
    a, b, added = names
    total = single(machine.register(added))
    for first, second in ((a, b), (following(following(a)), following(b))):
        words = [machine.register(name).to_bytes(4, "little") for name in (first, second)]
        total += 4 * sum(x * y for x, y in zip(*map(numbers, words), strict=True))
    machine.set(target, bits_of(total))


def unpack_fp8(machine: Machine, given: Arguments) -> None:
    """F2FP.UNPACK_B: two fp8 numbers of a register's lower or upper half to f16."""
    if given.only("F16", "E4M3", "UNPACK_B") != {"F16", "E4M3", "UNPACK_B"}:
        raise NotUnderstood("F2FP of other kinds")
    target, name = given.text(), given.text().replace(".reuse", "")
    half = machine.register(name.removesuffix(".H1")) >> (16 if name.endswith(".H1") else 0) & 0xFFFF
    low, high = e4m3(half.to_bytes(2, "little"))
    machine.set(target, int.from_bytes(struct.pack("<ee", low, high), "little"))


def to_fp8(machine: Machine, given: Arguments) -> None:
    (unpack_fp8 if "UNPACK_B" in given.modifiers else fp8_pair)(machine, given)


def add_floats(machine: Machine, given: Arguments) -> None:
    given.only()
    target, a, b = given.text(), given.value(), given.value()
    machine.set(target, bits_of(single(a) + single(b)))


def single(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & WORD))[0])


def bits_of(number: float) -> int:
    return int.from_bytes(struct.pack("<f", number), "little")


def f16(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 2}e", data))


def e4m3(data: bytes) -> list[float]:
    if any(byte & 0x7F == 0x7F for byte in data):
        raise NotUnderstood("fp8 NaN")
    return [(-1) ** (byte >> 7) * worth_of_fp8(byte & 0x7F, 3) for byte in data]


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
    most = 0x7E if mantissa == 3 else 0x7B

    code = min(range(most + 1), key=lambda one: (abs(worth_of_fp8(one, mantissa) - abs(number)), one & 1))
    return code | (0x80 if bits >> 31 & 1 else 0)


def worth_of_fp8(code: int, mantissa: int) -> float:
    """The number of a code without its sign."""
    exponent, fraction = code >> mantissa, code & (1 << mantissa) - 1
    scaled = fraction + (1 << mantissa if exponent else 0)
    return float(scaled * 2.0 ** (max(exponent, 1) - (7 if mantissa == 3 else 15) - mantissa))
