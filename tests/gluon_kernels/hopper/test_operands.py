"""Which probabilities share a register."""

from types import SimpleNamespace

import pytest

from tests.gluon_kernels.support.arrays import Array


def test_four_scores_of_a_register_are_those_whose_keys_v_has_there():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper.operands import by_fours
    from gluon_kernels.hopper.transpose import key_of_column

    columns = Array([64, 32], list(range(32)) * 64)
    a, b, c, d = by_fours.fn(SimpleNamespace(block_n=32), columns)
    for i in range(8):
        assert [x.at(0, i) for x in (a, b, c, d)] == [key_of_column.fn(4 * i + j) for j in range(4)]
