"""How the keys of a sequence are divided among warps and CTAs: integers, without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import pytest

pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

from sm120_attn.kernels import inline_ptx, mask
from sm120_attn.kernels.decode import kernel
from sm120_attn.kernels.decode.config import DecodeConfig


@pytest.fixture(autouse=True)
def _numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's numbers in place of the DSL's."""
    numbers = SimpleNamespace(min=min, max=max)
    for module in (kernel, mask):
        monkeypatch.setattr(module, "cutlass", numbers)
        monkeypatch.setattr(module, "Int32", int)
    monkeypatch.setattr(kernel, "Int64", int)
    monkeypatch.setattr(kernel, "Uint32", int)
    monkeypatch.setattr(inline_ptx, "select", lambda condition, a, b: a if condition else b)


@pytest.mark.parametrize("parts", [1, 3, 4, 28, 128])
def test_each_tile_is_in_one_part_and_parts_are_equal(parts: int) -> None:
    for first, last in ((0, 0), (0, 1), (2, 9), (5, 200), (0, 1000)):
        tiles = mask.Tiles(first, last, min(first + 1, last), last)
        found = [kernel.part_of(tiles, part, parts) for part in range(parts)]
        assert [t for part in found for t in range(part.first, part.last)] == list(range(first, last))
        sizes = {part.last - part.first for part in found}
        assert max(sizes) - min(sizes) <= 1
        for part in found:
            assert part.first <= part.open_first <= part.last and part.first <= part.open_last <= part.last


def _source(page_size: int, table: dict, seqlen: int, paged: bool = True, **fields: int) -> kernel.Source:
    config = DecodeConfig(paged=paged, **fields)
    return kernel.Source(config, 1 << 20, 100_000, 256, table, 3, page_size.bit_length() - 1, seqlen)


def _rows(source: kernel.Source, tile: int) -> list:
    """The rows of each group of a tile."""
    pages: dict[int, int] | None = {} if source.config.pages_ahead else None
    if pages is not None:
        source.fetch_pages(pages, tile)
    return [source.rows_of(*place) for place in source.places(pages, tile)]


@pytest.mark.parametrize("rows", [8, 16])
@pytest.mark.parametrize(("page_size", "tile", "group"), [(16, 16, 16), (16, 32, 16), (64, 32, 32), (256, 64, 64)])
def test_a_key_is_where_the_table_says(page_size: int, tile: int, group: int, rows: int) -> None:
    pages = [7, 0, 9, 4, 2] * 20
    table = {(3, i): page for i, page in enumerate(pages)}
    source = _source(page_size, table, 1000, tile_n=tile, group_keys=group, rows_per_warp=rows)
    for number in range(1000 // tile):
        found = _rows(source, number)
        assert len(found) == tile // group
        for key, mine in zip(range(number * tile, (number + 1) * tile, group), found, strict=True):
            assert mine.address == (1 << 20) + pages[key // page_size] * 100_000 + key % page_size * 256
            assert mine.count == 1000 - key and mine.stride == 256


def test_past_the_sequence_no_other_entry_of_the_table_is_read() -> None:
    table = mock.MagicMock()
    table.__getitem__.side_effect = {(3, 0): 5}.__getitem__
    for count in (8, 16):
        (rows,) = _rows(_source(16, table, 10, rows_per_warp=count), 1)
        assert rows.count == -6 and rows.address == (1 << 20) + 5 * 100_000
    _source(16, table, 10).fetch_pages({}, -1)  # behind a warp's last tile


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("late", [True, False])
def test_a_tile_has_landed_when_it_is_read_and_no_slot_is_overwritten(stages: int, late: bool) -> None:
    """Given copies that land when they are waited for, or at once, when rings are walked, each read gets its tile."""
    config = DecodeConfig(stages=stages)
    started: list[tuple[str, int, int] | None] = []
    landed: dict[tuple[str, int], int] = {}

    def wait(newer: int) -> None:
        for copy in started[: len(started) - newer * late]:
            if copy is not None:
                landed[copy[0], copy[1]] = copy[2]

    def ring(name: str, end: int) -> SimpleNamespace:
        made = SimpleNamespace(stages=stages, end=end)
        made.slot = lambda count: kernel.WarpRing.slot(made, count)
        made.load = lambda count: started.append((name, made.slot(count), count) if count < end else None)
        made.wait_full = lambda count: kernel.WarpRing.wait_full(made, count)
        made.release = lambda count: kernel.WarpRing.release(made, count, 0)
        return made

    arch = SimpleNamespace(cp_async_wait_group=wait, sync_warp=lambda: None)
    with mock.patch.object(kernel, "cute", SimpleNamespace(arch=arch)):
        for end in range(9):
            started.clear()
            landed.clear()
            rings = ring("k", end), ring("v", end)
            for stage in range(config.stages):
                for one in rings:
                    one.load(stage)
            for count in range(end):
                for name, one in zip("kv", rings, strict=True):
                    one.wait_full(count)
                    assert landed[name, one.slot(count)] == count
                    one.release(count)
