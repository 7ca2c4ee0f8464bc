"""Decode tensor-core products of a warp (HMMA, IMMA, QMMA, DMMA) and of a warpgroup (HGMMA, QGMMA, IGMMA).

Each warp of a warpgroup computes its own rows of the product.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from tritonhook.emulate.lanes import ALL
from tritonhook.emulate.machine import WARP, Group, Step
from tritonhook.emulate.opcodes import nothing, only
from tritonhook.emulate.sass.site import Array, Reader, Site, Writer, opcode
from tritonhook.emulate.tensor_core import products
from tritonhook.emulate.tensor_core.fragments import width
from tritonhook.emulate.words import WORD, joined

_FORMATS = {"BF16": "bf16", "TF32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}
_INTEGERS = {"S8": "s8", "U8": "u8", "S4": "s4", "U4": "u4"}
_SHAPES = {"16816": (16, 16), "1688": (16, 8), "1684": (16, 4), "16832": (16, 32), "16864": (16, 64), "8816": (8, 16)}
_OF_BITS = {"88128": (8, 128), "168128": (16, 128), "168256": (16, 256)}
_OF_DOUBLES = {"884": (8, 4), "8x8x4": (8, 4), "16x8x4": (16, 4), "16x8x8": (16, 8), "16x8x16": (16, 16)}  # (m, k)


def _stacked(site: Site, count: int) -> Reader:
    """Take consecutive registers; the reader returns an array of shape (count, threads)."""
    rows = site.rows(count)
    return lambda g: np.stack([row[g.s] for row in rows])


def _put(g: Group, puts: Sequence[Writer], registers: Array) -> None:
    for put, row in zip(puts, registers, strict=True):
        put(g, row)


def _computing(site: Site, product: Callable[..., Array], d: int, a: int, b: int, more: int = 0) -> Step:
    """Make the step of a product D = A * B + C. d, a, b: number of registers of D (and C), A and B. more: number of
    single registers that follow, e.g. for scale factors."""
    if not a or not b:
        raise site.refuse("a shape that does not fill a register")
    puts, *stacks = site.targets(d), _stacked(site, a), _stacked(site, b), _stacked(site, d)
    others = [site.register(site.text()) for _ in range(more)]
    if more > 1 and site.text() != "URZ":
        raise site.refuse("selectors of scale factors")
    site.done()

    def step(g: Group) -> None:
        g.converge(ALL)
        _put(g, puts, product(*(read(g) for read in stacks), *(row[g.s] for row in others)))

    return step


def _kinds(site: Site) -> tuple[str, str, str]:
    """Return the type of D and C, the type of A and the type of B, e.g. ("f32", "bf16", "bf16")."""
    table = _INTEGERS if site.base.startswith("I") else _FORMATS
    kinds = [table[one] for one in site.modifiers if one in table] or ["f16"]
    result = "s32" if table is _INTEGERS else "f32" if "F32" in site.modifiers else "f16"
    return result, kinds[0], kinds[-1]


@opcode("HMMA", "QMMA", "IMMA")
def multiply(site: Site) -> Step:
    """Decode HMMA, QMMA and IMMA. SF: each row of A and each column of B has a scale factor, in the lowest byte of a
    register."""
    if "SF" in site.modifiers:
        if not site.known("SF", "16832", "F32", "E4M3", "E5M2", "E8") >= {"16832", "F32", "E8"}:
            raise site.refuse()
        return _computing(site, products.scaled(_kinds(site)[1:]), 4, 4, 2, 2)
    how = site.known("SP", *_SHAPES, *(("SAT", *_INTEGERS) if site.base == "IMMA" else ("F32", "F16", *_FORMATS)))
    shape = only(site, (one for one in site.modifiers if one in _SHAPES))
    m, k = _SHAPES[shape]
    if not k or (m == 8 and site.base != "IMMA"):
        raise site.refuse()
    kinds = _kinds(site)
    bits, wide = width(kinds[1]), width(kinds[0])
    if "SP" in how:
        return _sparse(site, kinds, k, "SAT" in how)
    product = products.of_warp(kinds, k, f"sm_{site.decoder.kernel.arch}", "SAT" in how)
    return _computing(site, product, m * wide // 128, m * k * bits // 1024, 8 * k * bits // 1024)


def _sparse(site: Site, kinds: tuple[str, str, str], k: int, saturate: bool) -> Step:
    """Decode a product with a sparse A. Behind C, the operands are the metadata of A and a selector of the threads that
    hold them."""
    if not re.fullmatch("0x[0-3]", site.given[-1]):
        raise site.refuse()
    selector, bits = int(site.given.pop(), 16), width(kinds[1])
    product = products.of_sparse_warp(kinds, k, f"sm_{site.decoder.kernel.arch}", saturate, selector)
    return _computing(site, product, width(kinds[0]) // 8, k * bits // 128, k * bits // 128, 1)


@opcode("BMMA")
def multiply_bits(site: Site) -> Step:
    how = site.known(*_OF_BITS, "AND", "POPC")
    m, k = next((_OF_BITS[one] for one in how if one in _OF_BITS), (0, 0))
    if len(how) != 3 or not k:
        raise site.refuse()
    product = products.of_warp(("s32", "b1", "b1"), k // 8, f"sm_{site.decoder.kernel.arch}")
    return _computing(site, product, m // 4, m * k // 1024, 8 * k // 1024)


@opcode("DMMA")
def multiply_doubles(site: Site) -> Step:
    (m, k) = next((_OF_DOUBLES[one] for one in site.known(*_OF_DOUBLES)), (0, 0))
    if not k:
        raise site.refuse()

    def product(*given: Array) -> Array:
        found = products.of_doubles(*(joined(words[0::2], words[1::2]) for words in given))
        return np.stack([half.astype(np.uint32) for one in found for half in (one & WORD, one >> np.uint64(32))])

    return _computing(site, product, m // 2, m * k // 16, k // 2)


# --- warpgroups ----------------------------------------------------------------------------------

opcode("WARPGROUP", "WARPGROUPSET")(nothing)  # without effect, because products complete at once


@opcode("HGMMA", "QGMMA", "IGMMA", "BGMMA")
def multiply_warpgroup(site: Site) -> Step:
    shape = re.fullmatch(r"64x(\d+)x(\d+)", site.modifiers[0])
    if shape is None:
        raise site.refuse()
    n, k = int(shape[1]), int(shape[2])
    of_bits = site.base == "BGMMA"
    how = site.known(site.modifiers[0], *(("AND", "POPC") if of_bits else ("F32", "F16", *_FORMATS, *_INTEGERS)))
    if of_bits and not how >= {"AND", "POPC"}:
        raise site.refuse()
    kinds, k = (("s32", "b1", "b1"), k // 8) if of_bits else (_kinds(site), k)
    bits, count = width(kinds[1]), n * width(kinds[0]) // 64
    puts = site.targets(count)
    a = _stacked(site, 4) if site.next_is(r"R(\d+|Z)") else None
    match = re.fullmatch(r"gdesc\[UR(\d+)\]((?:\.(?:tnsp|neg)[AB])*)", site.text())
    if match is None:
        raise site.refuse()

    def tile(register: int, length: int, letter: str) -> products.Tile:
        is_k_major = f".tnsp{letter}" not in match[2]
        return products.Tile(site.machine, site.pair(f"UR{register}"), length, k, bits, is_k_major)

    first = int(match[1])
    tiles = tile(first, 64, "A") if a is None else None, tile(first + 2, n, "B")
    c = _stacked(site, count)
    keeps = site.predicate() if site.next_is(r"!?UP(\d|T)") else None
    if site.next_is("gsb0"):
        site.text()
    site.done()
    product = products.of_warpgroup(kinds, n, k, *tiles, (".negA" in match[2], ".negB" in match[2]))

    def step(g: Group) -> None:
        held = c(g)
        if keeps is not None:
            held = np.where(np.repeat(keeps(g)[::WARP], WARP), held, np.uint32(0))
        _put(g, puts, product(g, None if a is None else a(g), held))

    return step
