"""The flags of the Hopper attention: their PTX."""

import pytest


@pytest.fixture
def barriers():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import barriers

    return barriers


def test_a_flag_says_that_a_number_is_larger(barriers):
    text = barriers.flag_asm.fn(2, "sums")
    assert "setp.gt.f32 p, $2, $4; setp.gt.or.f32 p, $3, $5, p;" in text and "vote.sync.any.pred flag_2, p" in text
