"""What the lanes of a warp do together, against a loop over lanes: of the second and third warp of a CTA."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate import comparisons, lanes  # noqa: E402
from tritonhook.emulate.machine import Geometry, Group, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402


@pytest.fixture
def machine():
    return Machine(Geometry((1, 1, 1), (128, 1, 1), (0,)), Memory(4096))


def group(machine, where=None):
    """The second and third warp; where: of their lanes, which are active."""
    return Group(machine, slice(32, 96), where, 0)


def draw(kind=np.uint32, low=0, high=1 << 32, seed=0):
    return np.random.default_rng(seed).integers(low, high, 64, np.int64).astype(kind)


@pytest.mark.parametrize("kind", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("segment", [0, 16, 24, 31])
@pytest.mark.parametrize("clamp", [0, 5, 31])
def test_shuffles(machine, kind, segment, clamp):
    values = draw()
    for by in (draw(high=64, seed=1), np.full(64, 3, np.uint32), np.full(64, 33, np.uint32)):
        found, good = lanes.shuffled(group(machine), kind, values, by, np.full(64, segment << 8 | clamp, np.uint32))
        for thread in range(64):
            lane, count = thread % 32, int(by[thread]) % 32
            low = lane & segment
            most = low | clamp & ~segment & 31
            other = {
                "up": lane - count,
                "down": lane + count,
                "bfly": lane ^ count,
                "idx": low | count & ~segment & 31,
            }[kind]
            inside = other >= most if kind == "up" else other <= most
            assert bool(good[thread]) == inside
            assert found[thread] == values[thread - lane + (other if inside else lane)]


@pytest.mark.parametrize("every", [False, True])
def test_matches(machine, every):
    """Lanes 0 to 3 of each warp are elsewhere; the upper halves of the warps ask each other only."""
    values = draw(high=3)
    values[32:48] = 7
    members = np.where(np.arange(64) % 32 < 16, 0xFFFF, 0xFFFF_0000).astype(np.uint32)
    active = np.arange(64) % 32 > 3
    masks, good = lanes.matched(Group(machine, slice(0, 64), active, 0), values, every, members)
    assert masks.dtype == np.uint32
    for thread in np.flatnonzero(active):
        begin = thread // 32 * 32
        asked = int(members[thread]) & 0xFFFF_FFF0
        mine = sum(1 << n for n in range(32) if asked >> n & 1 and values[begin + n] == values[thread])
        assert bool(good[thread]) == (mine == asked)
        assert masks[thread] == (mine if not every or mine == asked else 0)


@pytest.mark.parametrize("members", [None, 0xFFFF, 0xF0F0_F0F0])
@pytest.mark.parametrize("pattern", [lambda n: n % 3 == 0, lambda n: n >= 0, lambda n: n < 0])
def test_votes(machine, members, pattern):
    active = np.arange(64) % 4 != 1
    g = group(machine, active)
    given = None if members is None else np.full(64, members, np.uint32)
    values = np.array([pattern(n) for n in range(64)])
    for kind in ("ballot", "all", "any", "uni"):
        found = lanes.voted(g, values, kind, given)
        for warp in range(2):
            asked = [
                n for n in range(32) if active[32 * warp + n] and (0xFFFF_FFFF if members is None else members) >> n & 1
            ]
            true = [n for n in asked if values[32 * warp + n]]
            wanted = {
                "ballot": sum(1 << n for n in true),
                "all": len(true) == len(asked),
                "any": bool(true),
                "uni": len(true) in (0, len(asked)),
            }[kind]
            assert found[32 * warp : 32 * warp + 32].tolist() == [wanted] * 32


@pytest.mark.parametrize("kind", [np.uint32, np.int32])
@pytest.mark.parametrize("name", ["add", "min", "max", "and", "or", "xor"])
def test_reductions(name, kind):
    values = draw(np.uint32).view(kind)
    asked = np.arange(64) % 5 == 2
    asked[:32] &= np.arange(32) > 20
    function = {
        "add": lambda a, b: a + b,
        "min": min,
        "max": max,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }[name]
    found = lanes.reduced(values, name, asked)
    assert found.dtype == kind
    for warp in range(2):
        first, *rest = [int(values[n]) for n in range(32 * warp, 32 * warp + 32) if asked[n]]
        for one in rest:
            first = function(first, one)
        assert set((found[32 * warp : 32 * warp + 32].view(np.uint32)).tolist()) == {first % (1 << 32)}


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_extremes_of_floats(lower, size, nan):
    numbers = np.random.default_rng(4).normal(size=64).astype(np.float32)
    numbers[40] = np.nan
    numbers[3] = -99  # not asked
    codes, asked = numbers.view(np.uint32), np.arange(64) % 4 != 3
    found = lanes.extreme(codes, lower, size, nan, asked)
    for warp in range(2):
        mine = [
            int(codes[n]) & (0x7FFF_FFFF if size else 0xFFFF_FFFF) for n in range(32 * warp, 32 * warp + 32) if asked[n]
        ]
        wanted = np.array(mine[:1], np.uint32)
        for one in mine[1:]:
            wanted = comparisons.extreme(wanted, np.array([one], np.uint32), lower, nan, "f32")
        assert found[32 * warp : 32 * warp + 32].tolist() == wanted.tolist() * 32


def test_the_first_of_those_that_are_asked(machine):
    asked = np.isin(np.arange(64), [6, 9, 32, 63])
    first, mine = lanes.elected(group(machine), asked)
    assert first.dtype == np.uint32 and first.tolist() == [6] * 32 + [0] * 32
    assert np.flatnonzero(mine).tolist() == [6, 32]
    assert np.flatnonzero(lanes.first_lanes(group(machine, asked))).tolist() == [6, 32]
    assert np.flatnonzero(lanes.first_lanes(group(machine))).tolist() == [0, 32]
    assert np.flatnonzero(lanes.first_lanes(group(machine, np.arange(64) > 40))).tolist() == [41]


def test_a_matrix_is_transposed():
    register = draw()
    halves = register.view(np.uint16).reshape(2, 8, 8)
    assert (lanes.transposed(register).view(np.uint16).reshape(2, 8, 8) == halves.transpose(0, 2, 1)).all()
