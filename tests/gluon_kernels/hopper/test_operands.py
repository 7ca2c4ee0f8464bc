"""Widening V: every key once, and without bank conflicts."""

import pytest


@pytest.fixture
def operands():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import operands

    return operands


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_eight_lanes_store_128_neighbouring_bytes(operands, head_dim):
    """So each of the eight 16-byte columns of a swizzled row, and with them each bank, is used once."""
    layout = operands.widen_layout.fn(head_dim)
    assert layout.size_per_thread == [1, 8] and layout.order == [1, 0]
    rows, lanes = layout.threads_per_warp
    assert rows * lanes == 32 and lanes % 8 == 0 and lanes * 8 == head_dim
    assert operands.part_keys.fn(head_dim) % (rows * layout.warps_per_cta[0]) == 0
