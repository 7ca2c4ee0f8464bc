"""On a GPU: a timed comparison of real kernels from start to verdict."""

import sys
from pathlib import Path

import pytest

from tritonhook.ab_run import run
from tritonhook.ab_worker import Plan, difference, outputs_of
from tritonhook.errors import UsageError
from tritonhook.measurement import CANDIDATE, Verdict
from tritonhook.rename import Rename

torch = pytest.importorskip("torch", reason="needs torch")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="requires an NVIDIA GPU that torch can use")
TARGETS = str(Path(__file__).parents[1] / "benchmarks")


def plan(tmp_path: Path, target: str, **options) -> Plan:
    return Plan(f"ab_targets:{target}", tmp_path, path=(TARGETS, *sys.path), **options)


class TestOutputs:
    """These need torch, and no GPU."""

    def test_equal_bits_are_no_difference_and_nan_equals_itself(self) -> None:
        a = [torch.tensor([1.0, float("nan")])]
        assert difference(a, [a[0].clone()], None) is None

    def test_one_bit_is_a_difference_unless_a_tolerance_covers_it(self) -> None:
        a, b = [torch.tensor([1.0, 2.0])], [torch.tensor([1.0, 2.0000002])]
        assert "bits" in difference(a, b, None)
        assert difference(a, b, 1e-6) is None
        assert "rtol" in difference(a, [torch.tensor([1.0, 2.1])], 1e-6)

    def test_nan_and_other_shapes_are_never_within_a_tolerance(self) -> None:
        a = [torch.tensor([1.0, 2.0])]
        assert difference(a, [torch.tensor([1.0, float("nan")])], 0.1)
        assert difference(a, [torch.tensor([[1.0, 2.0]])], 0.1)
        assert difference(a, [], 0.1)

    def test_outputs_are_copies_from_any_nesting(self) -> None:
        x = torch.zeros(2)
        found = outputs_of({"a": x, "b": [x, (x, None)]})
        x += 1
        assert [tensor.sum().item() for tensor in found] == [0.0, 0.0, 0.0]


@needs_gpu
@pytest.mark.gpu
def test_more_work_is_slower_and_equal_code_is_not_timed(tmp_path: Path) -> None:
    slower = run(
        plan(tmp_path / "a", "polynomial_steps_1000", candidate="ab_targets:polynomial_steps_1100", check=False)
    )
    assert slower.comparison.verdict is Verdict.SLOWER
    assert 1.05 < slower.comparison.effect().ratio < 1.15
    same = run(plan(tmp_path / "b", "add", rename=Rename(prefix="cutlass_")))
    assert same.same_code
    assert same.comparison.blocks == ()


@needs_gpu
@pytest.mark.gpu
def test_a_wrong_candidate_is_never_timed(tmp_path: Path) -> None:
    timed = run(plan(tmp_path, "polynomial_steps_1000", candidate="ab_targets:polynomial_steps_1100"))
    assert CANDIDATE in timed.wrong
    assert timed.comparison.blocks == ()


@needs_gpu
@pytest.mark.gpu
def test_a_target_that_fails_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no 'nothing'"):
        run(plan(tmp_path, "nothing", rename=Rename(prefix="cutlass_")))
