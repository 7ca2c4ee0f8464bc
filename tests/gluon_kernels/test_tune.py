"""The tuner's choice among timed candidates, without a GPU."""

import pytest

from gluon_kernels.mma.config import MmaConfig
from gluon_kernels.tune import Tried, best, name_effects
from gluon_kernels.verify.timer import Timed


def tried(name, ms, **fields):
    return Tried(MmaConfig(name=name, **fields), Timed((ms,), True))


def test_the_plain_name_wins_a_tie_and_only_a_tie():
    near = [tried("cutlass_x", 1.0), tried("x", 1.004)]
    assert best(near, "x").name == "x"
    far = [tried("cutlass_x", 1.0), tried("x", 1.006)]
    assert best(far, "x").name == "cutlass_x"
    with pytest.raises(ValueError, match="no candidate could be timed: too big"):
        best([Tried(MmaConfig(), reason="too big")], "x")


def test_name_effects_compare_one_tile_under_two_names():
    found = name_effects([tried("x", 2.0), tried("cutlass_x", 1.0), tried("x", 3.0, warps=8)], ("x", "cutlass_x"))
    assert found == {MmaConfig(name="x"): 2.0}
