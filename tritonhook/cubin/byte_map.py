"""Where a cubin's bytes go: every byte of the file has one label, so that the parts add up to the file's size.

Sections may lie over each other (ptxas 12.9 points .nv.merc.nv_debug_ptx_txt at .nv_debug_ptx_txt): a byte counts for
the first that claims it, in file order. Sums of section sizes would exceed the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tritonhook.cubin.image import Cubin

_HEADER_BYTES = 64
PADDING = "padding"


class Extent(NamedTuple):
    """Bytes [start, end) of a file. label: a section's role, or what else is there."""

    label: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def file_layout(cubin: Cubin, kernel: str) -> tuple[Extent, ...]:
    """The whole file in extents, in order and without a gap. Sections of other kernels keep their full names."""
    claims = [Extent(label, start, end) for label, start, end in _claims(cubin, kernel) if end > start]
    return tuple(_partition(sorted(claims, key=lambda e: e.start), len(cubin.data)))


def _claims(cubin: Cubin, kernel: str) -> Iterator[tuple[str, int, int]]:
    data = cubin.data
    yield "ELF header", 0, min(_HEADER_BYTES, len(data))
    for label, at, size_at in (("program headers", 32, 54), ("section headers", 40, 58)):
        (offset,) = struct.unpack_from("<Q", data, at)
        entry_bytes, entries = struct.unpack_from("<HH", data, size_at)
        yield label, offset, min(len(data), offset + entry_bytes * entries)
    for section in cubin.sections:
        label = section.role if section.kernel in (None, kernel) else section.name
        yield label, *section.file_range


def _partition(claims: list[Extent], size: int) -> Iterator[Extent]:
    position = 0
    for claim in claims:
        if claim.start > position:
            yield Extent(PADDING, position, claim.start)
            position = claim.start
        if claim.end > position:
            yield Extent(claim.label, position, claim.end)
            position = claim.end
    if position < size:
        yield Extent(PADDING, position, size)


_CATEGORIES = (
    ("code", (".text.",)),
    ("optimiser's notes", (".nv.capmerc", ".nv.merc")),
    ("debug", (".debug", ".nv_debug", ".rela.debug", ".rel.debug", ".rela.nv_debug", ".rel.nv_debug")),
    ("constants", (".nv.constant", ".nv.global")),
    ("resource info", (".nv.info", ".nv.compat", ".note", ".nv.callgraph", ".nv.prototype", ".nv.rel")),
    ("symbols", (".symtab", ".strtab", ".shstrtab", ".rela", ".rel")),
    ("headers", ("ELF header", "program headers", "section headers", PADDING)),
)
CATEGORIES = (*(name for name, _ in _CATEGORIES), "other")


def category(label: str) -> str:
    """One of CATEGORIES, by the first prefix that fits."""
    return next((name for name, prefixes in _CATEGORIES if label.startswith(prefixes)), "other")
