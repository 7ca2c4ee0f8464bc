"""mma and wgmma: products of matrices by the tensor cores."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tritonhook.emulate.machine import WARP, Group, Step
from tritonhook.emulate.memory import RANK_SHIFT, UNSIGNED
from tritonhook.emulate.ptx.kernel import list_of
from tritonhook.emulate.ptx.site import Array, Site, opcode
from tritonhook.emulate.ptx.warps import watched
from tritonhook.emulate.tensor_core.architectures import FP8, generation, mma_sums, scaled_sums, wgmma_sums
from tritonhook.emulate.tensor_core.fragments import (
    by_warp,
    by_warpgroup,
    matrix_a,
    matrix_b,
    matrix_c,
    registers_of_c,
    scales_of_columns,
    scales_of_rows,
    width,
)
from tritonhook.emulate.tensor_core.shared_tiles import Descriptor, addresses
from tritonhook.emulate.tensor_core.sums import (
    Scales,
    hopper_fp8,
    multiply,
    multiply_f64,
    multiply_integers,
    multiply_scaled,
)
from tritonhook.ptx.dataflow import number

_ALL = 0xFFFF_FFFF
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_FLOATS = ("f16", "bf16", "tf32", *FP8)
_WHOLE = ("s8", "u8", "s4", "u4")
WARPGROUP = 128


def _whole(codes: Array, kind: str) -> Array:
    """Integers of 4 or 8 bits as float64."""
    if kind == "s8":
        return codes.view(np.int8).astype(np.float64)
    if kind == "s4":
        return ((codes.astype(np.int64) ^ 8) - 8).astype(np.float64)
    return codes.astype(np.float64)


def _product(site: Site, kinds: tuple[str, str, str, str], k: int, how: frozenset[str]) -> Callable[..., Array]:
    """What computes D of codes of A, B and C."""
    d, a, b, c = kinds
    target = site.decoder.kernel.target
    if a in _WHOLE and b in _WHOLE and c == d == "s32":
        saturates = "satfinite" in how
        return lambda x, y, z: multiply_integers(_whole(x, a), _whole(y, b), z, saturates)
    if "satfinite" in how or a not in _FLOATS or b not in _FLOATS or c != d or d not in ("f32", "f16"):
        raise site.refuse()
    if a in FP8 and generation(target) == "sm_90":
        if a != b:
            raise site.refuse()
        return lambda x, y, z: hopper_fp8(x, y, z, a, d)
    sums = mma_sums(target, a, k, d)
    return lambda x, y, z: multiply(x, y, z, (a, b, c), sums)


@opcode("mma.sync.aligned")
def multiply_by_warp(site: Site) -> Step:
    if "block_scale" in site.modifiers:
        return _scaled(site)
    *others, d, a, b, c = site.modifiers
    shape = _SHAPE.fullmatch(others[0]) if others else None
    site.modifiers = tuple(others[1:])
    how = site.known("row", "col", "satfinite", "kind::f8f6f4")
    if shape is None or "row" not in how or len(site.operands) != 4:
        raise site.refuse()
    m, n, k = map(int, shape.groups())
    if n != 8 or m not in (8, 16):
        raise site.refuse()
    if (d, a, b, c) == ("f64",) * 4:
        return _doubles(site, m)
    targets = site.targets(0, "b32")
    x, y, z = (site.rows(number, "b32") for number in (1, 2, 3))
    wide_a, wide_b, wide_c = width(a), width(b), width(c)
    if (
        len(x) * 32 // wide_a * 32 != m * k
        or len(y) * 32 // wide_b * 32 != n * k
        or len(z) * 32 // wide_c * 32 != m * n
    ):
        raise site.refuse("operands")
    product = _product(site, (d, a, b, c), k, how)

    def step(g: Group) -> None:
        g.converge(_ALL)
        one, two, three = (np.stack([row[g.s] for row in rows]) for rows in (x, y, z))
        if m == 8:
            raise site.refuse()
        found = product(matrix_a(one, wide_a), matrix_b(two, wide_b), matrix_c(three, wide_c))
        for target, register in zip(targets, registers_of_c(found, wide_c), strict=True):
            g.put(target, register)

    return step


def _scaled(site: Site) -> Step:
    """m16n8k32 of fp8, with a factor for each row of A and each column of B."""
    known = site.modifiers[:6] == ("m16n8k32", "row", "col", "kind::mxf8f6f4", "block_scale", "scale_vec::1X")
    d, a, b, c, scale = site.modifiers[6:] if len(site.modifiers) == 11 else ("",) * 5
    if not known or (d, c, scale) != ("f32", "f32", "ue8m0") or a not in FP8 or b not in FP8:
        raise site.refuse()
    targets, sums = site.targets(0, "b32"), scaled_sums("mxf8f6f4")
    x, y, z = (site.rows(at, "b32") for at in (1, 2, 3))
    of_a, of_b = site.row(4, "b32"), site.row(6, "b32")
    (byte_a, pair), (byte_b, thread) = ([number(one) for one in list_of(site.operands[at])] for at in (5, 7))
    if None in (byte_a, pair, byte_b, thread) or len(site.operands) != 8:
        raise site.refuse("operands")

    def step(g: Group) -> None:
        g.converge(_ALL)
        one, two, three = (np.stack([row[g.s] for row in rows]) for rows in (x, y, z))
        scales = Scales(scales_of_rows(of_a[g.s], byte_a, pair), scales_of_columns(of_b[g.s], byte_b, thread))  # type: ignore[arg-type]
        found = multiply_scaled(matrix_a(one, 8), matrix_b(two, 8), matrix_c(three, 32), (a, b), scales, sums)
        for target, register in zip(targets, registers_of_c(found, 32), strict=True):
            g.put(target, register)

    return step


def _doubles(site: Site, m: int) -> Step:
    """m8n8k4 and m16n8k4 to k16 of float64."""
    targets = site.targets(0, "b64")
    x, y, z = (site.rows(number, "b64") for number in (1, 2, 3))

    def step(g: Group) -> None:
        g.converge(_ALL)
        one, two, three = (np.stack([row[g.s] for row in rows]) for rows in (x, y, z))
        rows = m // 8
        a = one.reshape(-1, rows, g.size // 32, 8, 4).transpose(2, 1, 3, 0, 4).reshape(g.size // 32, m, -1)
        b = two.reshape(-1, g.size // 32, 8, 4).transpose(1, 0, 3, 2).reshape(g.size // 32, -1, 8)
        c = three.reshape(rows, 2, g.size // 32, 8, 4).transpose(2, 0, 3, 4, 1).reshape(g.size // 32, m, 8)
        found = multiply_f64(a.view(np.float64), b.view(np.float64), c.view(np.float64)).view(np.uint64)
        back = found.reshape(-1, rows, 8, 4, 2).transpose(1, 4, 0, 2, 3).reshape(2 * rows, -1)
        for target, register in zip(targets, back, strict=True):
            g.put(target, register)

    return step


# --- wgmma ---------------------------------------------------------------------------------------


@opcode("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group")
def order(site: Site) -> Step:
    """What has no effect where each product is done at once; but who watches wants to know."""
    site.known("sync", "aligned")
    return (lambda g: None) if site.name.endswith("fence") else watched(site, "wgmma")


@lru_cache(maxsize=4096)
def _places(descriptor: Descriptor, length: int, k: int, size: int, is_k_major: bool) -> Array:
    return addresses(descriptor, length, k, size, is_k_major)


@opcode("wgmma.mma_async.sync.aligned")
def multiply_by_warpgroup(site: Site) -> Step:
    shape = _SHAPE.fullmatch(site.modifiers[0])
    *others, d, a, b = site.modifiers[1:]
    if shape is None or others or d not in ("f32", "f16", "s32"):
        raise site.refuse()
    _, n, k = map(int, shape.groups())
    targets, wide, size = site.targets(0, "b32"), width(d), width(a) // 8
    in_registers = site.operands[1].startswith("{")
    x = site.rows(1, "b32") if in_registers else None
    a_row = None if in_registers else site.row(1, "b64")
    b_row, adds = site.row(2, "b64"), site.predicate(3)
    rest = [site.integer(number) for number in range(4, len(site.operands))]
    if d == "s32":
        signs, majors = (1, 1), rest
    else:
        signs, majors = (rest[0], rest[1]), rest[2:]
    majors = majors or [0] * (1 if in_registers else 2)
    k_major_a, k_major_b = (True, not majors[0]) if in_registers else (not majors[0], not majors[1])
    product = _wide_product(site, d, a, b, k, signs)

    def step(g: Group) -> None:
        if g.mask is not None or g.size % WARPGROUP:
            raise site.refuse("part of a warpgroup")
        groups = range(g.s.start, g.s.stop, WARPGROUP)
        if x is None:
            assert a_row is not None
            one = np.stack([_tile(site, a_row, begin, 64, k, size, k_major_a) for begin in groups])
        else:
            one = by_warpgroup(matrix_a(np.stack([row[g.s] for row in x]), width(a)))
        two = np.stack([_tile(site, b_row, begin, n, k, size, k_major_b) for begin in groups]).transpose(0, 2, 1)
        held = np.stack([row[g.s] for row in targets])
        held = np.where(adds(g), held, np.uint32(0))
        found = product(one, two, by_warpgroup(matrix_c(held, wide)))
        for target, register in zip(targets, registers_of_c(by_warp(found), wide), strict=True):
            g.put(target, register)

    return step


def _wide_product(site: Site, d: str, a: str, b: str, k: int, signs: tuple[int, int]) -> Callable[..., Array]:
    if a in _WHOLE and d == "s32":
        return lambda x, y, z: multiply_integers(_whole(x, a), _whole(y, b), z, False)
    if a not in _FLOATS or b not in _FLOATS:
        raise site.refuse()
    sums, flips = wgmma_sums(a, k, d), [sign == -1 for sign in signs]
    bit = {8: np.uint8(0x80), 16: np.uint16(0x8000), 32: np.uint32(1 << 31)}[width(a)]

    def product(x: Array, y: Array, z: Array) -> Array:
        x, y = (one ^ bit if flip else one for one, flip in zip((x, y), flips, strict=True))
        return multiply(x, y, z, (a, b, d), sums)

    return product


def _tile(site: Site, row: Array, begin: int, length: int, k: int, size: int, is_k_major: bool) -> Array:
    """The numbers of a tile (length, k), found by the descriptor of the warpgroup that begins with this thread."""
    machine = site.machine
    places = _places(Descriptor.of(int(row[begin])), length, k, size, is_k_major)
    offset = int(machine.cta[begin]) * machine.memory.shared_bytes
    store, watch = machine.memory.shared, machine.memory.watch
    index = (places & (1 << RANK_SHIFT) - 1) + offset
    if int(places.max()) + size > machine.memory.shared_bytes:
        raise site.refuse("a descriptor of memory that the CTA has not")
    if watch is not None:
        watch.bulk_read("wgmma", range(begin, begin + WARPGROUP, WARP), np.unique(index // 16) * 16, 16)
    return store.data.view(UNSIGNED[size])[index // size]
