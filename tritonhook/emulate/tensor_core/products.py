"""Matrix products of a warp or a warpgroup with results in registers: mma, wgmma, HMMA, IMMA, QMMA, HGMMA.

`kinds` are always three formats: that of C and D, that of A, and that of B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.errors import OutOfBounds
from tritonhook.emulate.memory import UNSIGNED
from tritonhook.emulate.numbers import Array
from tritonhook.emulate.tensor_core import compiled, fragments
from tritonhook.emulate.tensor_core import sums as adding
from tritonhook.emulate.tensor_core.architectures import FP8, generation, mma_sums, scaled_sums, wgmma_sums
from tritonhook.emulate.tensor_core.fragments import matrix_a, matrix_b, matrix_c, registers_of_c, width
from tritonhook.emulate.tensor_core.shared_tiles import Descriptor, addresses
from tritonhook.errors import NotUnderstood

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Machine

Product = Callable[..., Array]
_FLOATS = ("f16", "bf16", "tf32", *FP8)
_WHOLE = ("s8", "u8", "s4", "u4")
_WARP, _WARPGROUP = 32, 128
_TOGETHER = 16  # products computed at once: their numbers fit into the caches and into the estimated memory of a CTA


def _integers(codes: Array, kind: str) -> Array:
    """Convert bit patterns of 4-bit or 8-bit integers to float64."""
    if kind[0] == "u":
        return codes.astype(np.float64)
    half = 1 << width(kind) - 1
    return ((codes.astype(np.int64) ^ half) - half).astype(np.float64)


def _bits(codes: Array, axis: int, xor: bool) -> Array:
    """Unpack bytes to bits, as float64, along an axis. xor: also append the negated bits, so that a sum of products
    counts the bits that differ; A (axis -1) and B (axis -2) append them in opposite order."""
    bits = np.unpackbits(codes.astype(np.uint8), axis=axis).astype(np.float64)
    return np.concatenate([bits, 1 - bits] if axis == -1 else [1 - bits, bits], axis) if xor else bits


def _product(kinds: tuple[str, str, str], k: int, arch: str, saturate: bool = False) -> Product:
    """Return the function that computes D from A, B and C, as bit patterns. k: numbers along K in the instruction.
    arch: e.g. "sm_90"; "" for products of a warpgroup. saturate: clamp integers. Raises NotUnderstood."""
    d, a, b = kinds
    if a in _WHOLE and b in _WHOLE and d == "s32":
        return lambda x, y, z: adding.multiply_integers(_integers(x, a), _integers(y, b), z, saturate)
    if a == b and a in fragments.BITS and d == "s32" and not saturate:
        xor = a.endswith("xor")
        return lambda x, y, z: adding.multiply_integers(_bits(x, -1, xor), _bits(y, -2, xor), z, False)
    if saturate or a not in _FLOATS or b not in _FLOATS or d not in ("f32", "f16"):
        raise NotUnderstood(f"a product of {a} and {b} to {d}")
    if arch and a in FP8 and generation(arch) == "sm_90":
        return lambda x, y, z: adding.hopper_fp8(x, y, z, (a, b), d)
    sums = mma_sums(arch, a, k, d) if arch else wgmma_sums(a, k, d)
    return lambda x, y, z: adding.multiply(x, y, z, (a, b, d), sums)


# --- products of a warp --------------------------------------------------------------------------


def of_warp(kinds: tuple[str, str, str], k: int, arch: str, saturate: bool = False) -> Product:
    """Return the function that computes the registers of D from those of A, B and C, for m16n8 shapes. Arguments: see
    `_product`."""
    product = _product(kinds, k, arch, saturate)
    wide, wide_a, wide_b = map(width, kinds)

    def apply(a: Array, b: Array, c: Array) -> Array:
        return registers_of_c(product(matrix_a(a, wide_a), matrix_b(b, wide_b), matrix_c(c, wide)), wide)

    return apply


def of_sparse_warp(kinds: tuple[str, str, str], k: int, arch: str, saturate: bool, selector: int) -> Product:
    """Return the function for m16n8 products with a sparse A, which stores half of its numbers. The function's fourth
    argument is the register with the metadata. selector: see fragments.kept. Sums of floats are supported for sm_90
    only, where they were measured on a GPU."""
    if kinds[1] in _FLOATS and generation(arch) != "sm_90":
        raise NotUnderstood("a sparse product of floating-point numbers", why=arch)
    product = _product(kinds, k // 2, arch, saturate)
    wide, wide_a, wide_b = map(width, kinds)

    def apply(a: Array, b: Array, c: Array, metadata: Array) -> Array:
        rows, z = fragments.kept(metadata, k, wide_a, selector), matrix_c(c, wide)
        y = np.take_along_axis(matrix_b(b, wide_b)[:, None], rows[..., None], 2)
        x = matrix_a(a, wide_a).reshape(-1, 1, k // 2)
        return registers_of_c(product(x, y.reshape(-1, k // 2, 8), z.reshape(-1, 1, 8)).reshape(z.shape), wide)

    return apply


def scaled(
    kinds: tuple[str, str], of_a: tuple[int, int] = (0, 0), of_b: tuple[int, int] = (0, 0)
) -> Callable[..., Array]:
    """Return the function for m16n8k32 of fp8 with a scale factor for each row of A and each column of B. kinds:
    formats of A and B. of_a, of_b: which byte of the register, and which lanes, hold the factors (PTX: byte-id,
    thread-id)."""
    sums = scaled_sums("mxf8f6f4")

    def apply(a: Array, b: Array, c: Array, scale_a: Array, scale_b: Array) -> Array:
        scales = adding.Scales(fragments.scales_of_rows(scale_a, *of_a), fragments.scales_of_columns(scale_b, *of_b))
        return registers_of_c(
            adding.multiply_scaled(matrix_a(a, 8), matrix_b(b, 8), matrix_c(c, 32), kinds, scales, sums), 32
        )

    return apply


def of_doubles(a: Array, b: Array, c: Array) -> Array:
    """Compute registers of D for float64: m8n8k4, m16n8k4, m16n8k8 and m16n8k16. Registers have 64 bits."""
    rows, warps = len(c) // 2, c.shape[1] // _WARP
    x = a.reshape(-1, rows, warps, 8, 4).transpose(2, 1, 3, 0, 4).reshape(warps, 8 * rows, -1)
    y = b.reshape(-1, warps, 8, 4).transpose(1, 0, 3, 2).reshape(warps, -1, 8)
    z = c.reshape(rows, 2, warps, 8, 4).transpose(2, 0, 3, 4, 1).reshape(warps, 8 * rows, 8)
    found = adding.multiply_f64(*(np.ascontiguousarray(one) for one in (x, y, z)))
    return found.reshape(-1, rows, 8, 4, 2).transpose(1, 4, 0, 2, 3).reshape(2 * rows, -1)


# --- products of a warpgroup ---------------------------------------------------------------------


class Tile:
    """A matrix in shared memory that each warpgroup names by a descriptor: (length, k) numbers. descriptor: reads
    the descriptor for a group's threads. length: m or n. bits: size of a number. is_k_major: numbers along k are
    adjacent."""

    def __init__(
        self, machine: Machine, descriptor: Callable[[Group], Array], length: int, k: int, bits: int, is_k_major: bool
    ) -> None:
        self.machine, self.descriptor, self.size = machine, descriptor, bits // 8
        self._shape = length, k, self.size, is_k_major
        self._places: dict[int, Array] = {}
        self._pieces: dict[int, Array] = {}

    def keys(self, g: Group) -> Array:
        """Return CTA and descriptor of the matrix of each warp of the slice, shape (warps, 2)."""
        return np.stack([self.machine.cta[g.s][::_WARP].astype(np.uint64), self.descriptor(g)[::_WARP]], 1)

    def codes(self, cta: int, descriptor: int, threads: Array) -> Array:
        """Return the numbers of a CTA's matrix, (length, k). threads: first thread of each warpgroup that reads it."""
        self.watched(np.full(len(threads), cta), descriptor, threads)
        found: Array = self.of_ctas(np.array([cta]), descriptor)[0]
        return found

    def watched(self, ctas: Array, descriptor: int, threads: Array) -> None:
        """Inform the sanitizer of reads. ctas, threads: CTA and first thread of each warpgroup that reads."""
        memory = self.machine.memory
        if memory.watch is None:
            return
        if descriptor not in self._pieces:
            self._pieces[descriptor] = np.unique(self._at(descriptor) * self.size // 16) * 16
        pieces = self._pieces[descriptor] + ctas[:, None] * memory.shared_bytes
        memory.watch.flights.read("wgmma", threads[:, None] + np.arange(0, _WARPGROUP, _WARP), pieces, 16)

    def of_ctas(self, ctas: Array, descriptor: int) -> Array:
        """Return the numbers of the matrices of several CTAs with the same descriptor, (ctas, length, k)."""
        begins = ctas * (self.machine.memory.shared_bytes // self.size)
        return self.machine.memory.shared.data.view(UNSIGNED[self.size])[self._at(descriptor) + begins[:, None, None]]

    def _at(self, descriptor: int) -> Array:
        """Return the indices of the numbers in the shared memory of a CTA. Raises Fault if they lie outside."""
        if descriptor not in self._places:
            places = addresses(Descriptor.of(descriptor), *self._shape)
            if int(places.max()) + self.size > self.machine.memory.shared_end:
                text = f"matrix descriptor {descriptor:#x}: outside of shared memory"
                raise OutOfBounds(text, self.machine.first_thread)
            self._places[descriptor] = places // self.size
        return self._places[descriptor]


def of_warpgroup(
    kinds: tuple[str, str, str], n: int, k: int, a_tile: Tile | None, b_tile: Tile, flips: tuple[bool, bool]
) -> Callable[[Group, Array | None, Array], Array]:
    """Return the function that computes the registers of D from those of A and C, for a group. n, k: sizes N and K of
    the instruction. a_tile: A in shared memory; None: A is in registers. flips: whether A and B are negated."""
    product, (wide, bits, _) = _product(kinds, k, ""), map(width, kinds)
    sign = UNSIGNED[bits // 8](1 << bits - 1)

    def apply(g: Group, a: Array | None, c: Array) -> Array:
        g.converge_warpgroups()
        added = matrix_c(c, wide)
        found = np.zeros_like(added)
        rows = None if a is None else matrix_a(a, bits)
        for warps, x, y in _together(g, rows, a_tile, b_tile) or _operands(g, rows, a_tile, b_tile):
            x, y = (one ^ sign if flip else one for one, flip in zip((x, y), flips, strict=True))
            tiles = x.shape[:-3]
            held = added[warps].reshape(*tiles, -1, n)
            found[warps] = product(x.reshape(*tiles, -1, k), y, held).reshape(-1, 16, n)
        return registers_of_c(found, wide)

    return apply


def _together(
    g: Group, rows: Array | None, a_tile: Tile | None, b_tile: Tile
) -> list[tuple[Array, Array, Array]] | None:
    """Return operands of several warpgroups at once, see `_operands`, for compiled code (NumPy is faster with one
    warpgroup at a time). Return None if compiled code is missing, or if the warpgroups' descriptors differ."""
    warps = np.flatnonzero(g.active.reshape(-1, _WARP).any(1)).reshape(-1, 4)
    tiles = [tile for tile in (a_tile, b_tile) if tile is not None]
    keys = [tile.keys(g)[warps].reshape(-1, 2) for tile in tiles]
    if not compiled.is_there():
        return None
    if any((one[:, 1] != one[0, 1]).any() for one in keys):
        return None
    ctas, descriptors, found = keys[0][::4, 0].astype(np.int64), [int(one[0, 1]) for one in keys], []
    for begin in range(0, len(warps), _TOGETHER):
        some = slice(begin, begin + _TOGETHER)
        for tile, descriptor in zip(tiles[::-1], descriptors[::-1], strict=True):
            tile.watched(ctas[some], descriptor, g.s.start + warps[some, 0] * _WARP)
        y = b_tile.of_ctas(ctas[some], descriptors[-1]).transpose(0, 2, 1)
        if a_tile is not None:
            x = a_tile.of_ctas(ctas[some], descriptors[0])
            x = x.reshape(len(x), 4, 16, -1)
        else:
            assert rows is not None
            x = rows[warps[some]]
        found.append((warps[some].reshape(-1), x, y))
    return found


def _operands(g: Group, rows: Array | None, a_tile: Tile | None, b_tile: Tile) -> Iterator[tuple[Array, Array, Array]]:
    """Yield each set of warps with the same matrix B (and A, if in shared memory): their numbers in the slice, their
    rows of A, and B."""
    keys = b_tile.keys(g)
    if a_tile is not None:
        keys = np.concatenate([keys, a_tile.keys(g)], 1)
    active = g.active.reshape(-1, _WARP).any(1)
    place = b_tile.machine.warp[g.s][::_WARP] % 4
    for key in np.unique(keys[active], axis=0):
        warps = np.flatnonzero((keys == key).all(1) & active)
        firsts = np.unique((g.s.start // _WARP + warps - place[warps]) * _WARP).astype(int)
        b = b_tile.codes(int(key[0]), int(key[1]), firsts).T
        if a_tile is not None:
            a = a_tile.codes(int(key[2]), int(key[3]), firsts).reshape(4, 16, -1)[place[warps]]
        else:
            assert rows is not None
            a = rows[warps]
        yield warps, a, b
