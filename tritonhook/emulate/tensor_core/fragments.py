"""Which thread holds which numbers of a matrix: mma.sync, wgmma, ldmatrix; HMMA, IMMA, QMMA, HGMMA, LDSM alike.

Registers are uint32 of shape (count, threads), the threads of whole warps; matrices are (warps, rows, columns). In a
warp, thread 4 g + t holds row g (of A, C) or column g (of B). Source: PTX ISA 9, "Matrix fragments for mma", "wgmma".
"""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.numbers import FORMATS, Array, decode

BITS = ("b1", "b1.xor")  # numbers of one bit: here eight of them, which lie together, are one
_WIDTH = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "s32": 32, **dict.fromkeys(BITS, 8)}


def width(kind: str) -> int:
    """Bits that a number takes in a register."""
    return _WIDTH[kind] if kind in _WIDTH else FORMATS[kind].bits


def unpack(registers: Array, bits: int) -> Array:
    """Unpack the numbers of each register, lowest first, along a new last axis."""
    if bits == 32:
        return registers[..., None]
    if bits == 16:
        return np.ascontiguousarray(registers).view(np.uint16).reshape(*registers.shape, 2)
    octets = np.ascontiguousarray(registers).view(np.uint8).reshape(*registers.shape, 4)
    if bits == 8:
        return octets
    return np.stack([octets & 15, octets >> 4], -1).reshape(*registers.shape, 8)


def pack(numbers: Array, bits: int) -> Array:
    """Pack registers from numbers along the last axis."""
    if bits == 32:
        return numbers[..., 0].astype(np.uint32, copy=False)
    if bits == 16:
        return np.ascontiguousarray(numbers.astype(np.uint16)).view(np.uint32)[..., 0]
    return np.ascontiguousarray(numbers.astype(np.uint8)).view(np.uint32)[..., 0]


def matrix_a(registers: Array, bits: int) -> Array:
    """Build A of 16 rows (8 if there is one register) from (count, threads): (warps, rows, k)."""
    numbers = unpack(registers, bits)
    count, threads, held = numbers.shape
    rows = min(count, 2)
    parts = numbers.reshape(count // rows, rows, threads // 32, 8, 4, held)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(threads // 32, 8 * rows, -1)


def matrix_b(registers: Array, bits: int) -> Array:
    """B of 8 columns from (count, threads): (warps, k, 8)."""
    numbers = unpack(registers, bits)
    count, threads, held = numbers.shape
    parts = numbers.reshape(count, threads // 32, 8, 4, held)
    return parts.transpose(1, 0, 3, 4, 2).reshape(threads // 32, -1, 8)


def matrix_c(registers: Array, bits: int) -> Array:
    """C of 16 rows and 8 columns for each two registers of 16 bits or four of 32: (warps, 16, columns)."""
    if bits == 32:
        registers = registers.reshape(len(registers) // 2, 2, -1).transpose(0, 2, 1)
    else:
        registers = unpack(registers, bits)
    count, threads, _ = registers.shape
    rows = min(count, 2)
    parts = registers.reshape(count // rows, rows, threads // 32, 8, 4, 2)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(threads // 32, 8 * rows, -1)


def registers_of_c(matrix: Array, bits: int) -> Array:
    """Build registers (count, threads) from C or D; the inverse of `matrix_c`."""
    warps, rows, columns = matrix.shape
    parts = matrix.reshape(warps, rows // 8, 8, columns // 8, 4, 2).transpose(3, 1, 0, 2, 4, 5)
    parts = parts.reshape(-1, warps * 32, 2)
    if bits == 32:
        return parts.transpose(0, 2, 1).reshape(-1, warps * 32).astype(np.uint32, copy=False)
    return pack(parts, bits)


def kept(metadata: Array, k: int, bits: int, selector: int) -> Array:
    """Return which rows of B belong to the k / 2 numbers that each row of a sparse A keeps, (warps, 16, k / 2). Four
    bits of the metadata are for each two or four numbers, of 4 bits for each eight, which are kept in pairs.
    (Executed.)"""
    chunks = k // {32: 2, 4: 8}.get(bits, 4)
    words = metadata.reshape(-1, 8, 4, 1) >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
    if chunks == 16:  # threads 0 and 2 have those of row g, 1 and 3 those of row g + 8
        words = words.reshape(-1, 8, 2, 2, 8).transpose(0, 3, 1, 2, 4)
    else:
        words = words[:, :, selector * chunks // 4 : (selector + 1) * chunks // 4]
        if bits < 16:  # a thread has those of one row
            words = words.transpose(0, 2, 1, 3)
        else:
            words = words.reshape(-1, 8, chunks // 4, 2, 4).transpose(0, 3, 1, 2, 4)
    words, place = words.reshape(-1, 16, chunks).astype(np.int64), np.arange(k // 2)
    if bits == 32:
        return 2 * place + (words >> 1 & 1)
    together = 2 if bits == 4 else 1
    pair, inside = np.divmod(place, together)
    return together * (4 * (pair // 2) + (words[..., pair // 2] >> 2 * (pair % 2) & 3)) + inside


def scales_of_rows(registers: Array, byte: int, pair: int) -> Array:
    """Return the factors 2^n of a block-scaled product's 16 rows, as float64 (warps, 16, 1): threads 2 pair and 2 pair
    + 1 of each four have those of rows g and g + 8."""
    codes = (registers >> np.uint32(8 * byte) & np.uint32(255)).reshape(-1, 8, 4)[..., 2 * pair : 2 * pair + 2]
    return decode(codes.transpose(0, 2, 1).reshape(-1, 16, 1), "ue8m0")


def scales_of_columns(registers: Array, byte: int, thread: int) -> Array:
    """Those of its 8 columns, (warps, 1, 8): a thread of each four has that of column g."""
    codes = (registers >> np.uint32(8 * byte) & np.uint32(255)).reshape(-1, 8, 4)[..., thread]
    return decode(codes.reshape(-1, 1, 8), "ue8m0")


# --- ldmatrix, stmatrix ----------------------------------------------------------------------------


def loaded(rows: Array, transposed: bool) -> Array:
    """ldmatrix of 16-bit numbers. rows: (warps, matrices, 8, 8) uint16. Gives registers (matrices, threads)."""
    if transposed:
        rows = rows.transpose(0, 1, 3, 2)
    pairs = np.ascontiguousarray(rows).view(np.uint32)  # (warps, matrices, 8, 4)
    return pairs.transpose(1, 0, 2, 3).reshape(rows.shape[1], -1)


def loaded_bytes(rows: Array) -> Array:
    """ldmatrix.m16n16.trans of bytes. rows: (warps, matrices, 16, 16) uint8. Gives registers (2 matrices, threads)."""
    words = np.ascontiguousarray(rows.transpose(0, 1, 3, 2)).view(np.uint32)  # (warps, matrices, 16, 4)
    return words.reshape(len(rows), -1, 8, 4).transpose(1, 0, 2, 3).reshape(2 * rows.shape[1], -1)


def stored(registers: Array, transposed: bool) -> Array:
    """stmatrix: the inverse of `loaded`."""
    count, threads = registers.shape
    pairs = np.ascontiguousarray(registers.reshape(count, threads // 32, 8, 4).transpose(1, 0, 2, 3))
    rows = pairs.view(np.uint16).reshape(threads // 32, count, 8, 8)
    return rows.transpose(0, 1, 3, 2) if transposed else rows
