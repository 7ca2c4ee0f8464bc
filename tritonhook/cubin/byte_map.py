"""Label every byte of a cubin once, so that the parts add up to the size of the file.

Sections may overlap (ptxas 12.9 points .nv.merc.nv_debug_ptx_txt at .nv_debug_ptx_txt), so that the sum of their sizes
can exceed the file. A byte of several sections counts for the section that begins first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tritonhook.cubin.elf import HEADER_BYTES, table_extents
from tritonhook.cubin.image import Cubin

PADDING = "padding"


class Extent(NamedTuple):
    """Bytes [start, end) of a file. label: a section's role, "ELF header", "program headers" ... or PADDING."""

    label: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def file_layout(cubin: Cubin, kernel: str) -> tuple[Extent, ...]:
    """Cut the whole file into extents, in order and without a gap. Other kernels' sections keep their full names."""
    claims = [Extent(label, start, end) for label, start, end in _claims(cubin, kernel) if end > start]
    return tuple(_partition(sorted(claims, key=lambda e: e.start), len(cubin.data)))


def _claims(cubin: Cubin, kernel: str) -> Iterator[tuple[str, int, int]]:
    yield "ELF header", 0, HEADER_BYTES
    yield from table_extents(cubin.data)
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
    """Look up the category of a label, one of CATEGORIES, by the first prefix that fits."""
    return next((name for name, prefixes in _CATEGORIES if label.startswith(prefixes)), "other")
