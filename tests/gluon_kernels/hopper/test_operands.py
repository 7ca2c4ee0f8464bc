"""Widening V: every key once, and without bank conflicts."""

import pytest


@pytest.fixture
def operands():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import operands

    return operands


class Memory:
    """Shared memory [keys, head_dim] whose keys are numbers."""

    def __init__(self, keys, head_dim):
        self.keys, self.shape, self.dtype = keys, [len(keys), head_dim], "fp16"
        self.written = [None] * len(keys)

    def slice(self, start, length, axis):
        assert axis == 0
        whole = self

        class Part:
            def load(self, layout):
                return Keys(whole.keys[start : start + length])

            def store(self, keys):
                whole.written[start : start + length] = keys

        return Part()


class Keys(list):
    def to(self, dtype):
        return self


@pytest.mark.parametrize(("block_n", "head_dim"), [(128, 64), (128, 128), (64, 128), (64, 256)])
def test_every_key_is_widened_into_its_place(operands, monkeypatch, block_n, head_dim):
    for name in ("widen_layout", "part_keys"):
        monkeypatch.setattr(operands, name, getattr(operands, name).fn)
    monkeypatch.setattr(operands.gl, "static_range", range)
    narrow, wide = Memory(list(range(block_n)), head_dim), Memory([None] * block_n, head_dim)
    operands.widen.fn(narrow, wide)
    assert wide.written == narrow.keys


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_eight_lanes_store_128_neighbouring_bytes(operands, head_dim):
    """So each of the eight 16-byte columns of a swizzled row, and with them each bank, is used once."""
    layout = operands.widen_layout.fn(head_dim)
    assert layout.size_per_thread == [1, 8] and layout.order == [1, 0]
    rows, lanes = layout.threads_per_warp
    assert rows * lanes == 32 and lanes % 8 == 0 and lanes * 8 == head_dim
    assert operands.part_keys.fn(head_dim) % (rows * layout.warps_per_cta[0]) == 0
