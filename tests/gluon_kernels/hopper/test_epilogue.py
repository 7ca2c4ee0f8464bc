"""The epilogue of the Hopper attention: sums, rows without keys, NaN."""

import math
from types import SimpleNamespace

import pytest


@pytest.fixture
def kernel():
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.hopper import kernel

    return kernel


def test_equal_columns_of_sums_are_not_added_up(kernel, monkeypatch):
    class Total(tuple):
        __gt__ = __rtruediv__ = lambda self, other: 1.0

    fake = SimpleNamespace(
        max=lambda x, _: Total(("max", x)), sum=lambda x, _: Total(("sum", x)),
        where=lambda c, a, b: a if c else b, convert_layout=lambda x, _: x,
    )  # fmt: skip
    monkeypatch.setattr(kernel, "gl", fake)
    totals = []
    monkeypatch.setattr(kernel, "write_lse", lambda p, tile, row, row_max, total: totals.append(total))
    monkeypatch.setattr(kernel, "write_output", lambda *_: None)
    monkeypatch.setattr(kernel, "in_order", lambda p, o: o)
    monkeypatch.setattr(kernel, "scale_rows", lambda o, factor: o)
    row = SimpleNamespace(type=SimpleNamespace(layout=None))
    monkeypatch.setattr(kernel, "sees", lambda p, row: True)
    for codes in (True, False):
        kernel.finish.fn(SimpleNamespace(codes=codes, out_scale=1.0), 0, None, row, None, "columns", None)
    assert totals == [("max", "columns"), ("sum", "columns")]


@pytest.mark.parametrize(
    ("total", "row", "causal", "causal_offset", "codes", "written"),
    [
        (4.0, 0, False, 0, True, 0.5),
        (0.0, 0, False, 0, True, math.nan),  # nothing but NaN
        (0.0, 3, True, -3, True, math.nan),
        (0.0, 2, True, -3, True, 0.0),  # sees no key
        (0.0, 0, False, 0, False, 0.0),
        (math.nan, 0, False, 0, False, math.nan),
    ],
)
def test_a_row_without_a_key_gives_0_and_one_of_nan_gives_nan(
    kernel, monkeypatch, total, row, causal, causal_offset, codes, written
):
    class Number(float):
        type = SimpleNamespace(layout=None)

        def __rtruediv__(self, other):
            return other / float(self) if self else math.inf

    fake = SimpleNamespace(
        max=lambda x, _: x,
        sum=lambda x, _: x,
        where=lambda c, a, b: Number(a if c else b),
        convert_layout=lambda x, _: x,
    )
    monkeypatch.setattr(kernel, "gl", fake)
    monkeypatch.setattr(kernel, "sees", kernel.sees.fn)
    for name in ("write_lse", "in_order"):
        monkeypatch.setattr(kernel, name, lambda *args: args[-1])
    monkeypatch.setattr(kernel, "scale_rows", lambda o, factor: o * factor)
    outputs = []
    monkeypatch.setattr(kernel, "write_output", lambda p, me, tile, o: outputs.append(o))
    p = SimpleNamespace(codes=codes, out_scale=2.0, causal=causal, causal_offset=causal_offset)
    kernel.finish.fn(p, 0, None, Number(row), None, Number(total), 1.0)
    assert outputs == [pytest.approx(written, nan_ok=True)]
