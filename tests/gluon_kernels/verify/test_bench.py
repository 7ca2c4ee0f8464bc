"""Shapes, rows and tables of the benchmark, without a GPU."""

import pytest

from gluon_kernels.verify import bench
from gluon_kernels.verify.bench import Row, Shape
from gluon_kernels.verify.timer import Timed


def test_flops_and_labels_of_a_shape():
    assert Shape(1, 1, 10, 64).flops == 4 * 10 * 10 * 64
    assert Shape(1, 1, 10, 64, causal=True).flops == 2 * 10 * 10 * 64
    assert Shape(2, 8, 16, 64, num_heads_kv=2, seqlen_k=32).label == "B2 H8/2 S16x32 D64"


def rows():
    fast, slow = Timed((1.0, 2.0, 3.0), True), Timed((4.0, 4.0, 5.0), True)
    return [Row(Shape(1, 1, 64, 64), {"mma_bf16": fast, "sdpa_flash": slow}, absent={"fa4": "not installed"})]


def test_a_row_gives_tflops_and_ratios_of_medians():
    (row,) = rows()
    assert row.ratio("mma_bf16", "sdpa_flash") == 2.0
    assert row.tflops("mma_bf16") == pytest.approx(4 * 64**3 / 2.0 / 1e9)
    row.eager = {"mma_bf16": row.times["sdpa_flash"], "sdpa_flash": row.times["sdpa_flash"]}
    assert row.ratio("mma_bf16", "sdpa_flash", eager=True) == 1.0
    assert row.tflops("mma_bf16", eager=True) == row.tflops("mma_bf16") / 2
    assert row.ratio("mma_bf16", "fa4") is None and row.tflops("fa4") is None
    assert bench.geomean([2.0, None, 8.0]) == pytest.approx(4.0) and bench.geomean([None]) is None


def test_a_reason_names_no_folder_of_this_machine():
    found = bench._without_paths("cannot import 'x' from 'a' (/opt/site/a/__init__.py), and/or 1/2")
    assert found == "cannot import 'x' from 'a' (__init__.py), and/or 1/2"
