"""Tile ranges and tile order, by brute force over small sequences. The kernels' own functions, on Python integers."""

import random
from types import SimpleNamespace

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

from sm120_attn.config import Config
from sm120_attn.kernels import mask, scheduler


@pytest.fixture(autouse=True)
def on_integers(monkeypatch):
    plain = SimpleNamespace(min=min, max=max)
    for module in (mask, scheduler):
        monkeypatch.setattr(module, "cutlass", plain)
        monkeypatch.setattr(module, "Int32", int)
        monkeypatch.setattr(module, "ptx", SimpleNamespace(select=lambda c, a, b: a if c else b))
    monkeypatch.setattr(scheduler, "Int64", int)
    monkeypatch.setattr(scheduler, "divisor", int)


def visible(config, seqlen_q, seqlen_k, left, right, query, key):
    """The definition, independent of the kernel's."""
    offset = seqlen_k - seqlen_q if config.align == "bottom-right" else 0
    if config.causal and key > query + offset:
        return False
    if config.window and left < mask_bound and key < query + offset - left:
        return False
    return not (config.window and not config.causal and right < mask_bound and key > query + offset + right)


mask_bound = 1 << 30


def cases(count):
    rng = random.Random(5)
    for _ in range(count):
        causal, window = rng.random() < 0.5, rng.random() < 0.5
        config = Config(causal=causal, window=window, align=rng.choice(["top-left", "bottom-right"]))
        lengths = rng.choice([0, 1, 15, 16, 31, 64, 65, 127, 200]), rng.choice([0, 1, 16, 31, 63, 64, 100, 200])
        bounds = [rng.choice([0, 1, 5, 40, 100, mask_bound]) for _ in range(2)]
        yield config, *lengths, *bounds


def wrong_tiles(tiles_of):
    """Every disagreement with the definition that tile ranges can have, over many random cases."""
    wrong = []
    for config, seqlen_q, seqlen_k, left, right in cases(150):
        band = mask.Band.of(config, seqlen_q, seqlen_k, left, right)
        for row, rows in ((0, 16), (16, 16), (0, 128), (32, 32), (128, 128), (0, 256)):
            tiles = tiles_of(band, row, rows, 32)
            if not tiles.first <= tiles.open_first <= tiles.open_last <= tiles.last:
                wrong.append("order")
            queries = range(row, min(row + rows, seqlen_q))
            for tile in range(-(-seqlen_k // 32) + 2):
                keys = range(32 * tile, 32 * tile + 32)
                seen = [
                    key < seqlen_k and visible(config, seqlen_q, seqlen_k, left, right, q, key)
                    for q in queries
                    for key in keys
                ]
                if any(seen) and not tiles.first <= tile < tiles.last:
                    wrong.append("left out")
                if tiles.open_first <= tile < tiles.open_last and not all(seen):
                    wrong.append("open, but needs a mask")
    return wrong


def test_every_visible_key_is_visited_and_open_tiles_need_no_mask():
    assert wrong_tiles(mask.tiles_of) == []


def barriers_passed(tiles_of_warp):
    """Cases in which a warp passes other tiles' barriers than the load warp serves, in other words waits forever."""
    stuck = []
    for config, seqlen_q, seqlen_k, left, right in cases(150):
        band = mask.Band.of(config, seqlen_q, seqlen_k, left, right)
        for first_row in (0, 128, 256):
            served = mask.tiles_of(band, first_row, 128, 32)
            for row in range(first_row, first_row + 128, 32):
                mine = tiles_of_warp(band, row, served)
                bounds = [served.last, mine.last, mine.open_last, mine.open_first, mine.first, served.first]
                if bounds != sorted(bounds, reverse=True):
                    stuck.append((config, seqlen_q, seqlen_k, left, right, row))
    return stuck


def test_a_warp_passes_the_barriers_of_its_ctas_tiles_and_no_others():
    assert barriers_passed(lambda band, row, served: mask.tiles_of(band, row, 32, 32).within(served)) == []


def test_a_mask_hides_what_the_definition_hides():
    """Given each row's bounds, when compared key by key, then lo and hi are the visible keys."""
    for config, seqlen_q, seqlen_k, left, right in cases(150):
        band = mask.Band.of(config, seqlen_q, seqlen_k, left, right)
        for query in range(0, seqlen_q, 7):
            lo = band.lo(query)
            got = [key < band.hi(query) and (lo is None or lo <= key) for key in range(seqlen_k)]
            assert got == [visible(config, seqlen_q, seqlen_k, left, right, query, key) for key in range(seqlen_k)]


@pytest.mark.parametrize("group", [1, 2, 3, 5, 6, 7, 100])  # with 5 and 7 the last group is shorter
@pytest.mark.parametrize("causal", [False, True])
def test_every_tile_is_worked_on_once(group, causal):
    config = Config(causal=causal)
    tiles_m, heads, batch = 5, 6, 2
    total = tiles_m * heads * batch
    group = min(group, heads * batch)  # as Attention.problem does
    divisors = scheduler.Divisors.of(heads, 2, tiles_m, group, total)
    problem = scheduler.Problem(heads, 2, tiles_m, group, total, 600, 600, divisors)

    works = [scheduler.work_of(config, problem, None, i) for i in range(total)]

    assert len({(w.first_row, w.head, w.batch) for w in works}) == total
    assert {w.first_row for w in works} == {config.tile_m * i for i in range(tiles_m)}
    assert all(w.head_kv == w.head // 3 for w in works)
    if causal:
        first_group = [w.first_row for w in works[: tiles_m * min(group, heads * batch)]]
        assert first_group == sorted(first_group, reverse=True)
