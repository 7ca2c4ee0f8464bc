"""The tuner's choice among timed candidates, without a GPU."""

import pytest

from gluon_kernels.mma.config import MmaConfig
from gluon_kernels.tune import Tried, best, scheduler_effects
from gluon_kernels.verify.timer import Timed


def tried(trigger, ms, **fields):
    return Tried(MmaConfig(trigger=trigger, **fields), Timed((ms,), True))


@pytest.mark.parametrize("trigger", ["name", "pragma"])
def test_the_usual_scheduler_wins_a_tie_and_only_a_tie(trigger):
    near = [tried(trigger, 1.0), tried(None, 1.004)]
    assert best(near).trigger is None
    far = [tried(trigger, 1.0), tried(None, 1.006)]
    assert best(far).trigger == trigger
    with pytest.raises(ValueError, match="no candidate could be timed: too big"):
        best([Tried(MmaConfig(), reason="too big")])


@pytest.mark.parametrize("trigger", ["name", "pragma"])
def test_scheduler_effects_compare_one_tile_with_both(trigger):
    found = scheduler_effects([tried(None, 2.0), tried(trigger, 1.0), tried(None, 3.0, warps=8)])
    assert found == {MmaConfig(): 2.0}
