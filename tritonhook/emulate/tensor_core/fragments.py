"""Convert between registers of threads and matrices: of mma.sync, wgmma and ldmatrix, and of HMMA, IMMA, QMMA, HGMMA
and LDSM.

Registers are uint32 of shape (count, threads), for whole warps; matrices have shape (warps, rows, columns). In a warp,
thread 4 g + t (t: 0 to 3) holds numbers of row g of A and C, and of column g of B. Source: PTX ISA 9, "Matrix fragments
for mma", "wgmma".
"""

from __future__ import annotations

import numpy as np

from tritonhook.emulate.numbers import FORMATS, Array, decode

BITS = ("b1", "b1.xor")  # numbers of one bit; this module treats eight adjacent ones as one number of 8 bits
_WIDTH = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "s32": 32, **dict.fromkeys(BITS, 8)}


def width(kind: str) -> int:
    """Return the bits that a number takes in a register."""
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
    """Build A, (warps, rows, k), from registers. It has 16 rows, or 8 if there is one register. bits: size of a
    number."""
    numbers = unpack(registers, bits)
    count, threads, held = numbers.shape
    rows = min(count, 2)
    parts = numbers.reshape(count // rows, rows, threads // 32, 8, 4, held)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(threads // 32, 8 * rows, -1)


def matrix_b(registers: Array, bits: int) -> Array:
    """Build B, (warps, k, 8), from registers. bits: size of a number."""
    numbers = unpack(registers, bits)
    count, threads, held = numbers.shape
    parts = numbers.reshape(count, threads // 32, 8, 4, held)
    return parts.transpose(1, 0, 3, 4, 2).reshape(threads // 32, -1, 8)


def matrix_c(registers: Array, bits: int) -> Array:
    """Build C, (warps, 16, columns), from registers. Each 8 columns take two registers if numbers have 16 bits, four if
    they have 32."""
    if bits == 32:
        registers = registers.reshape(len(registers) // 2, 2, -1).transpose(0, 2, 1)
    else:
        registers = unpack(registers, bits)
    count, threads, _ = registers.shape
    rows = min(count, 2)
    parts = registers.reshape(count // rows, rows, threads // 32, 8, 4, 2)
    return parts.transpose(2, 1, 3, 0, 4, 5).reshape(threads // 32, 8 * rows, -1)


def registers_of_c(matrix: Array, bits: int) -> Array:
    """Build registers from C or D: the inverse of `matrix_c`."""
    warps, rows, columns = matrix.shape
    parts = matrix.reshape(warps, rows // 8, 8, columns // 8, 4, 2).transpose(3, 1, 0, 2, 4, 5)
    parts = parts.reshape(-1, warps * 32, 2)
    if bits == 32:
        return parts.transpose(0, 2, 1).reshape(-1, warps * 32).astype(np.uint32, copy=False)
    return pack(parts, bits)


def kept(metadata: Array, k: int, bits: int, selector: int) -> Array:
    """Return the positions along k of the k / 2 numbers that each row of a sparse A keeps: (warps, 16, k / 2).

    metadata: the registers that hold the metadata. bits: size of a number. selector: which threads of each four hold
    the metadata (PTX: sparsity selector). Four bits of metadata describe two numbers of 32 bits, four of 16 or 8 bits,
    or eight of 4 bits, which are kept in pairs. (Measured on a GPU.)"""
    chunks = k // {32: 2, 4: 8}.get(bits, 4)  # groups of numbers that four bits describe
    words = metadata.reshape(-1, 8, 4, 1) >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
    if chunks == 16:  # of each four threads, 0 and 2 hold the metadata of row g, 1 and 3 that of row g + 8
        words = words.reshape(-1, 8, 2, 2, 8).transpose(0, 3, 1, 2, 4)
    else:
        words = words[:, :, selector * chunks // 4 : (selector + 1) * chunks // 4]
        if bits < 16:  # each thread holds the metadata of one row
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
    """Return the scale factors (powers of two) of the 16 rows of A, as float64 (warps, 16, 1). Of each four threads,
    thread 2 * pair holds the factor of row g, and the next thread that of row g + 8. byte: which byte of the
    register."""
    codes = (registers >> np.uint32(8 * byte) & np.uint32(255)).reshape(-1, 8, 4)[..., 2 * pair : 2 * pair + 2]
    return decode(codes.transpose(0, 2, 1).reshape(-1, 16, 1), "ue8m0")


def scales_of_columns(registers: Array, byte: int, thread: int) -> Array:
    """Return the scale factors of the 8 columns of B, as float64 (warps, 1, 8). thread: which of each four threads
    holds the factor of column g. byte: which byte of the register."""
    codes = (registers >> np.uint32(8 * byte) & np.uint32(255)).reshape(-1, 8, 4)[..., thread]
    return decode(codes.reshape(-1, 1, 8), "ue8m0")


# --- ldmatrix, stmatrix ----------------------------------------------------------------------------


def loaded(rows: Array, transposed: bool) -> Array:
    """Distribute matrices to registers, as ldmatrix does for 16-bit numbers. rows: uint16 (warps, matrices, 8, 8)."""
    if transposed:
        rows = rows.transpose(0, 1, 3, 2)
    pairs = np.ascontiguousarray(rows).view(np.uint32)  # (warps, matrices, 8, 4)
    return pairs.transpose(1, 0, 2, 3).reshape(rows.shape[1], -1)


def loaded_bytes(rows: Array) -> Array:
    """Distribute matrices to registers, as ldmatrix.m16n16.trans does for bytes. rows: uint8 (warps, matrices, 16, 16).
    Each matrix takes two registers."""
    words = np.ascontiguousarray(rows.transpose(0, 1, 3, 2)).view(np.uint32)  # (warps, matrices, 16, 4)
    return words.reshape(len(rows), -1, 8, 4).transpose(1, 0, 2, 3).reshape(2 * rows.shape[1], -1)


def stored(registers: Array, transposed: bool) -> Array:
    """Collect matrices from registers, as stmatrix does: the inverse of `loaded`."""
    count, threads = registers.shape
    pairs = np.ascontiguousarray(registers.reshape(count, threads // 32, 8, 4).transpose(1, 0, 2, 3))
    rows = pairs.view(np.uint16).reshape(threads // 32, count, 8, 8)
    return rows.transpose(0, 1, 3, 2) if transposed else rows
