"""The epilogue of the Hopper attention: sums, and rows without keys."""

import math
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(("total", "written"), [(4.0, 0.5), (0.0, 0.0), (math.nan, math.nan)])
def test_o_is_divided_by_the_sum_and_a_row_without_a_key_gives_0(monkeypatch, total, written):
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import kernel

    class Number(float):
        type = SimpleNamespace(layout=None)

        def __rtruediv__(self, other):
            return other / float(self) if self else math.inf

    fake = SimpleNamespace(
        sum=lambda x, axis: x, where=lambda c, a, b: Number(a if c else b), convert_layout=lambda x, _: x
    )
    monkeypatch.setattr(kernel, "gl", fake)
    sums, outputs = [], []
    monkeypatch.setattr(kernel, "write_lse", lambda p, tile, row, row_max, total: sums.append(total))
    monkeypatch.setattr(kernel, "scale_rows", lambda o, factor: o * factor)
    monkeypatch.setattr(kernel, "write_output", lambda p, me, tile, o: outputs.append(o))
    kernel.finish.fn(SimpleNamespace(out_scale=2.0), 0, None, Number(0), None, Number(total), 1.0)
    assert outputs == [pytest.approx(written, nan_ok=True)] and sums == [pytest.approx(total, nan_ok=True)]
