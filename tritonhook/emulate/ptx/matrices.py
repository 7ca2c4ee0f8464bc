"""Steps of mma and wgmma: matrix products by the tensor cores."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tritonhook.emulate.lanes import ALL
from tritonhook.emulate.machine import Group, Step
from tritonhook.emulate.ptx.kernel import list_of
from tritonhook.emulate.ptx.site import Array, Site, opcode
from tritonhook.emulate.tensor_core import products
from tritonhook.emulate.tensor_core.architectures import FP8
from tritonhook.emulate.tensor_core.fragments import BITS, width
from tritonhook.ptx.dataflow import number

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def _computing(site: Site, product: Callable[..., Array], kind: str = "b32", more: tuple[int, ...] = ()) -> Step:
    """Make the step that computes D from A, B and C, and from further operands. more: numbers of these further
    operands, which are one register each."""
    targets, stacks = site.targets(0, kind), [site.rows(at, kind) for at in (1, 2, 3)]
    others = [site.row(at, kind) for at in more]

    def step(g: Group) -> None:
        g.converge(ALL)
        given = [np.stack([row[g.s] for row in rows]) for rows in stacks]
        for target, register in zip(targets, product(*given, *(row[g.s] for row in others)), strict=True):
            g.put(target, register)

    return step


@opcode("mma.sync.aligned", "mma.sp.sync.aligned", "mma.sp::ordered_metadata.sync.aligned")
def multiply_by_warp(site: Site) -> Step:
    is_sparse = site.name.startswith("mma.sp")
    if "block_scale" in site.modifiers and not is_sparse:
        return _scaled(site)
    counts = site.modifiers[-1] == "popc"  # a product of bits: counts the ones of A & B, or of A ^ B
    *others, d, a, b, c = site.modifiers[: -2 if counts else None]
    if counts:
        if (a, b) != ("b1", "b1") or site.modifiers[-2] not in ("and", "xor"):
            raise site.refuse()
        a = b = BITS[site.modifiers[-2] == "xor"]
    shape = _SHAPE.fullmatch(others[0]) if others else None
    site.modifiers = tuple(others[1:])
    how = site.known("row", "col", "satfinite", "kind::f8f6f4")
    if shape is None or "row" not in how or c != d:
        raise site.refuse()
    site.count(6 if is_sparse else 4)
    m, n, k = map(int, shape.groups())
    if (d, a, b, n) == ("f64", "f64", "f64", 8) and m in (8, 16) and not is_sparse:
        return _computing(site, products.of_doubles, "b64")
    if (m, n) != (16, 8) and ((m, n) != (8, 8) or c != "s32"):
        raise site.refuse()
    if counts:
        k //= 8
    sizes = [len(list_of(site.operands[at])) * 1024 // width(kind) for at, kind in ((1, a), (2, b), (3, c))]
    if sizes != [m * k // (1 + is_sparse), n * k, m * n]:
        raise site.refuse("operands")
    if is_sparse:
        if m != 16 or counts or a == "b1":
            raise site.refuse()
        product = products.of_sparse_warp((d, a, b), k, site.decoder.kernel.target, "satfinite" in how, site.integer(5))
        return _computing(site, product, more=(4,))
    return _computing(site, products.of_warp((d, a, b), k, site.decoder.kernel.target, "satfinite" in how))


def _scaled(site: Site) -> Step:
    """Make the step of m16n8k32 of fp8 with a scale factor for each row of A and each column of B."""
    known = site.modifiers[:6] == ("m16n8k32", "row", "col", "kind::mxf8f6f4", "block_scale", "scale_vec::1X")
    d, a, b, c, scale = site.modifiers[6:] if len(site.modifiers) == 11 else ("",) * 5
    if not known or (d, c, scale) != ("f32", "f32", "ue8m0") or a not in FP8 or b not in FP8:
        raise site.refuse()
    site.count(8)
    places = [tuple(number(one) for one in list_of(site.operands[at])) for at in (5, 7)]
    if any(None in place for place in places):
        raise site.refuse("operands")
    return _computing(site, products.scaled((a, b), *places), more=(4, 6))  # type: ignore[arg-type]


# --- wgmma ---------------------------------------------------------------------------------------


@opcode("wgmma.fence")
def wgmma_fence(site: Site) -> Step:
    """Make a step that only informs the sanitizer: products complete at once."""
    site.known("sync", "aligned")
    memory = site.machine.memory
    return lambda g: None if memory.watch is None else memory.watch.flights.fence_registers(g)


@opcode("wgmma.mma_async.sync.aligned")
def multiply_by_warpgroup(site: Site) -> Step:
    shape = _SHAPE.fullmatch(site.modifiers[0])
    counts = site.modifiers[-2:] == ("and", "popc")  # a product of bits
    *others, d, a, b = site.modifiers[1 : -2 if counts else None]
    if shape is None or counts != (a == "b1") or others or d not in ("f32", "f16", "s32"):
        raise site.refuse()
    _, n, k = map(int, shape.groups())
    k = k // 8 if counts else k
    targets, adds = site.targets(0, "b32"), site.predicate(3)
    rows = site.rows(1, "b32") if site.operands[1].startswith("{") else None
    rest = [site.integer(number) for number in range(4, len(site.operands))]
    signs, majors = ([1, 1], rest) if d == "s32" else (rest[:2], rest[2:])
    *major_a, major_b = majors or ([0] if rows else [0, 0])

    def tile(operand: int, length: int, major: int) -> products.Tile:
        row = site.row(operand, "b64")
        return products.Tile(site.machine, lambda g: row[g.s], length, k, width(a), not major)

    tiles = None if rows else tile(1, 64, major_a[0]), tile(2, n, major_b)
    product = products.of_warpgroup((d, a, b), n, k, *tiles, (signs[0] == -1, signs[1] == -1))

    def step(g: Group) -> None:
        held = np.where(adds(g), np.stack([row[g.s] for row in targets]), np.uint32(0))
        found = product(g, None if rows is None else np.stack([row[g.s] for row in rows]), held)
        for target, register in zip(targets, found, strict=True):
            g.put(target, register)

    return step
