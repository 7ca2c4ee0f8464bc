"""Tensor cores: HMMA, IMMA, QMMA, DMMA of a warp; HGMMA, QGMMA, IGMMA of a warpgroup: each warp has its own rows."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tritonhook.emulate.machine import WARP, Group, Step
from tritonhook.emulate.sass.site import Array, Reader, Site, opcode
from tritonhook.emulate.tensor_core import fragments, shared_tiles
from tritonhook.emulate.tensor_core.architectures import mma_sums, scaled_sums, wgmma_sums
from tritonhook.emulate.tensor_core.sums import Scales, Sums, multiply, multiply_f64, multiply_integers, multiply_scaled

_ALL = 0xFFFF_FFFF
_FORMATS = {"BF16": "bf16", "TF32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}
_INTEGERS = {"S8": "s8", "U8": "u8", "S4": "s4", "U4": "u4"}
_SHAPES = {"16816": 16, "1688": 8, "1684": 4, "16832": 32, "16864": 64}


def _stacked(site: Site, count: int) -> Callable[[Group], Array]:
    """Take registers behind one another: their rows, shape (count, threads)."""
    text = site.text().removesuffix(".ROW").removesuffix(".COL")
    rows = [site.register(text, number) for number in range(count)]
    return lambda g: np.stack([row[g.s] for row in rows])


def _writers(site: Site, count: int) -> Callable[[Group, Array], None]:
    name = site.text()
    puts = [site.writer(name, number) for number in range(count)]

    def write(g: Group, registers: Array) -> None:
        for put, row in zip(puts, registers, strict=True):
            put(g, row)

    return write


def _shape(site: Site) -> int:
    """k of a warp's product of 16 rows and 8 columns."""
    (name,) = [one for one in site.modifiers if one in _SHAPES] or [""]
    if not name:
        raise site.refuse()
    return _SHAPES[name]


@opcode("HMMA", "QMMA")
def multiply_floats(site: Site) -> Step:
    if "SF" in site.modifiers:
        return _multiply_scaled(site)
    how = site.known(*_SHAPES, *_FORMATS, "F32", "F16")
    k, result = _shape(site), "f32" if "F32" in how else "f16"
    kinds = [_FORMATS[one] for one in site.modifiers if one in _FORMATS] or ["f16"]
    kind_a, kind_b = kinds[0], kinds[-1]
    sums = mma_sums(f"sm_{site.decoder.kernel.arch}", kind_a, k, result)
    bits, wide = fragments.width(kind_a), fragments.width(result)
    put = _writers(site, wide // 8)
    a, b, c = _stacked(site, 16 * k * bits // 1024), _stacked(site, 8 * k * bits // 1024), _stacked(site, wide // 8)
    site.done()

    def step(g: Group) -> None:
        g.converge(_ALL)
        x, y, z = fragments.matrix_a(a(g), bits), fragments.matrix_b(b(g), bits), fragments.matrix_c(c(g), wide)
        found = multiply(x, y, z, (kind_a, kind_b, result), sums)
        put(g, fragments.registers_of_c(found, wide))

    return step


def _multiply_scaled(site: Site) -> Step:
    """QMMA.SF.16832: a factor for each row of A and each column of B, in the lowest byte."""
    how = site.known("SF", "16832", "F32", "E4M3", "E5M2", "E8")
    kinds = [_FORMATS[one] for one in site.modifiers if one in _FORMATS]
    if not how >= {"16832", "F32", "E8"} or len(kinds) != 2:
        raise site.refuse()
    put, a, b, c = _writers(site, 4), _stacked(site, 4), _stacked(site, 2), _stacked(site, 4)
    of_a, of_b = site.register(site.text()), site.register(site.text())
    if site.text() != "URZ":
        raise site.refuse("a choice of factors")
    site.done()
    sums = scaled_sums("mxf8f6f4")

    def step(g: Group) -> None:
        g.converge(_ALL)
        x, y, z = fragments.matrix_a(a(g), 8), fragments.matrix_b(b(g), 8), fragments.matrix_c(c(g), 32)
        scales = Scales(fragments.scales_of_rows(of_a[g.s], 0, 0), fragments.scales_of_columns(of_b[g.s], 0, 0))
        found = multiply_scaled(x, y, z, (kinds[0], kinds[1]), scales, sums)
        put(g, fragments.registers_of_c(found, 32))

    return step


def _values(codes: Array, kind: str) -> Array:
    """Integers as float64."""
    bits = fragments.width(kind)
    values = codes.astype(np.float64)
    return np.where(codes >> np.uint8(bits - 1) == 1, values - (1 << bits), values) if kind[0] == "s" else values


@opcode("IMMA")
def multiply_whole(site: Site) -> Step:
    how = site.known(*_SHAPES, *_INTEGERS, "SAT")
    kind_a, kind_b = [_INTEGERS[one] for one in site.modifiers if one in _INTEGERS]
    k, bits = _shape(site), fragments.width(kind_a)
    put = _writers(site, 4)
    a, b, c = _stacked(site, 16 * k * bits // 1024), _stacked(site, 8 * k * bits // 1024), _stacked(site, 4)
    site.done()

    def step(g: Group) -> None:
        g.converge(_ALL)
        x = _values(fragments.matrix_a(a(g), bits), kind_a)
        y = _values(fragments.matrix_b(b(g), bits), kind_b)
        found = multiply_integers(x, y, fragments.matrix_c(c(g), 32), "SAT" in how)
        put(g, fragments.registers_of_c(found, 32))

    return step


@opcode("DMMA")
def multiply_doubles(site: Site) -> Step:
    if site.known("884") != {"884"}:
        raise site.refuse()
    put, a, b, c = _writers(site, 4), _stacked(site, 2), _stacked(site, 2), _stacked(site, 4)
    site.done()

    def joined(words: Array) -> Array:
        return words[0::2].astype(np.uint64) | words[1::2].astype(np.uint64) << np.uint64(32)

    def step(g: Group) -> None:
        g.converge(_ALL)
        x = joined(a(g)).reshape(-1, 8, 4)
        y = joined(b(g)).reshape(-1, 8, 4).transpose(0, 2, 1)
        z = joined(c(g)).reshape(2, -1, 8, 4).transpose(1, 2, 3, 0).reshape(-1, 8, 8)
        found = multiply_f64(x, y, z).reshape(-1, 8, 4, 2).transpose(3, 0, 1, 2).reshape(2, -1)
        low, high = (found & np.uint64(_ALL)).astype(np.uint32), (found >> np.uint64(32)).astype(np.uint32)
        put(g, np.stack([low[0], high[0], low[1], high[1]]))

    return step


# --- warpgroups ----------------------------------------------------------------------------------


@opcode("WARPGROUP", "WARPGROUPSET")
def order(site: Site) -> Step:
    """Products are done at once: there is nothing to wait for."""
    site.known("ARRIVE", "DEPBAR", "LE")
    return lambda g: None


class _Tile:
    """A tile of shared memory that a descriptor names: `length` numbers of m or n, k of each."""

    def __init__(self, site: Site, name: str, length: int, k: int, bits: int, is_k_major: bool) -> None:
        self.read: Reader = site.pair(name)
        self.machine, self.length, self.k, self.size = site.machine, length, k, bits // 8
        self.is_k_major = is_k_major
        self._places: dict[int, Array] = {}

    def keys(self, g: Group) -> Array:
        """What tile each warp of the slice has: its CTA and its descriptor."""
        return np.stack([self.machine.cta[g.s][::WARP].astype(np.uint64), self.read(g)[::WARP]], 1)

    def codes(self, cta: int, descriptor: int) -> Array:
        """The numbers, (length, k)."""
        if descriptor not in self._places:
            one = shared_tiles.Descriptor.of(descriptor)
            self._places[descriptor] = shared_tiles.addresses(one, self.length, self.k, self.size, self.is_k_major)
        memory = self.machine.memory
        places = self._places[descriptor] + cta * memory.shared_bytes
        kind = {1: np.uint8, 2: np.uint16, 4: np.uint32}[self.size]
        return memory.shared.data.view(kind)[places // self.size]


@opcode("HGMMA", "QGMMA", "IGMMA")
def multiply_warpgroup(site: Site) -> Step:
    shape = re.fullmatch(r"64x(\d+)x(\d+)", site.modifiers[0])
    if shape is None:
        raise site.refuse()
    n, k = int(shape[1]), int(shape[2])
    how = site.known(site.modifiers[0], "F32", "F16", *_FORMATS, *_INTEGERS)
    table = _INTEGERS if site.base == "IGMMA" else _FORMATS
    kinds = [table[one] for one in site.modifiers if one in table] or ["f16"]
    result = "s32" if site.base == "IGMMA" else "f32" if "F32" in how else "f16"
    bits, wide = fragments.width(kinds[0]), fragments.width(result)
    count = n * wide // 64
    put = _writers(site, count)
    a = _stacked(site, 4) if site.next_is(r"R(\d+|Z)") else None
    match = re.fullmatch(r"gdesc\[UR(\d+)\]((?:\.tnsp[AB])*)", site.text())
    if match is None:
        raise site.refuse()
    first = int(match[1])
    b_tile = _Tile(site, f"UR{first + 2}", n, k, bits, ".tnspB" not in match[2])
    a_tile = _Tile(site, f"UR{first}", 64, k, bits, ".tnspA" not in match[2]) if a is None else None
    c = _stacked(site, count)
    keeps = site.predicate() if site.next_is(r"!?UP(\d|T)") else None
    if site.next_is("gsb0"):
        site.text()
    site.done()
    product = _product(result, kinds, k)

    def step(g: Group) -> None:
        g.converge(_ALL)
        added = fragments.matrix_c(c(g), wide)
        if keeps is not None:
            added = np.where(keeps(g)[::WARP, None, None], added, np.uint32(0))
        rows = None if a is None else fragments.matrix_a(a(g), bits)
        found = np.zeros_like(added)
        for warps, x, y in _operands(g, rows, a_tile, b_tile):
            whole = added[warps].reshape(-1, n)
            found[warps] = product(x.reshape(-1, k), y, whole).reshape(-1, 16, n)
        put(g, fragments.registers_of_c(found, wide))

    return step


def _operands(g: Group, rows: Array | None, a_tile: _Tile | None, b_tile: _Tile) -> list[tuple[Array, Array, Array]]:
    """For each set of warps that share a tile of B: the warps, their rows of A, and B."""
    keys = b_tile.keys(g)
    if a_tile is not None:
        keys = np.concatenate([keys, a_tile.keys(g)], 1)
    active = g.active.reshape(-1, WARP).any(1)
    place = b_tile.machine.warp[g.s][::WARP] % 4
    found = []
    for key in np.unique(keys[active], axis=0):
        warps = np.flatnonzero((keys == key).all(1) & active)
        b = b_tile.codes(int(key[0]), int(key[1])).T
        if a_tile is not None:
            a = a_tile.codes(int(key[2]), int(key[3])).reshape(4, 16, -1)[place[warps]]
        else:
            assert rows is not None
            a = rows[warps]
        found.append((warps, a, b))
    return found


def _product(result: str, kinds: list[str], k: int) -> Callable[[Array, Array, Array], Array]:
    if result == "s32":
        return lambda a, b, c: multiply_integers(_values(a, kinds[0]), _values(b, kinds[-1]), c, False)
    sums: Sums = wgmma_sums(kinds[0], k, result)
    return lambda a, b, c: multiply(a, b, c, (kinds[0], kinds[-1], result), sums)
