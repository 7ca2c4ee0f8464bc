"""Labels of a cubin's bytes: extents cover the file once, also where sections overlap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from repository import GOLDEN

from tritonhook.cubin.byte_map import CATEGORIES, category, file_layout
from tritonhook.cubin.image import Cubin

CUBINS = sorted(path.name for path in GOLDEN.glob("*.cubin"))


def cubin(name: str) -> Cubin:
    return Cubin.from_bytes((GOLDEN / name).read_bytes(), name)


@pytest.mark.parametrize("name", CUBINS)
def test_every_byte_has_one_label(name: str) -> None:
    it = cubin(name)
    layout = file_layout(it, it.kernels[0])
    assert layout[0].start == 0 and layout[-1].end == len(it.data)
    assert all(a.end == b.start for a, b in pairwise(layout))
    assert sum(extent.size for extent in layout) == len(it.data)
    sizes = {extent.label: extent.size for extent in layout}
    assert sizes[".text.{kernel}"] == len(it.text(it.kernels[0]))
    assert sizes["ELF header"] == 64
    assert {category(label) for label in sizes} <= set(CATEGORIES) - {"other"}


def test_bytes_that_two_sections_claim_count_once() -> None:
    # Given a section that overlaps the code, as .nv.merc.nv_debug_ptx_txt overlaps .nv_debug_ptx_txt
    it = cubin("sm_90a.exp.plain.cubin")
    text = it.section(".text.{kernel}", it.kernels[0])
    assert text is not None
    start, end = text.file_range
    for first, last in ((start + 16, end), (end - 16, end + 16)):
        over = replace(text, name=".later", role=".later", kernel=None, file_range=(first, last))
        layout = file_layout(replace(it, sections=(*it.sections, over)), it.kernels[0])
        assert [extent.size for extent in layout if extent.label == ".later"] == ([16] if last > end else [])
        assert all(a.end == b.start for a, b in pairwise(layout))
        assert sum(extent.size for extent in layout) == len(it.data)


def test_other_kernels_keep_their_names() -> None:
    it = cubin("sm_90a.module.cubin")
    first, second = it.kernels[:2]
    labels = {extent.label for extent in file_layout(it, first)}
    assert {".text.{kernel}", f".text.{second}"} <= labels
