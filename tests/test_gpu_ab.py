"""On a GPU: a timed comparison of real kernels from start to verdict."""

import sys
from pathlib import Path

import pytest

from tritonhook.ab_plan import Plan
from tritonhook.ab_run import run
from tritonhook.errors import UsageError
from tritonhook.measurement import CANDIDATE, Verdict
from tritonhook.outputs import difference, outputs_of
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


@needs_gpu
@pytest.mark.gpu
def test_a_recorded_launch_is_launched_again(tmp_path: Path, monkeypatch) -> None:
    """Given a kernel launched once while recording; then its cubin, launched as recorded, computes the same bits."""
    import tritonhook
    from tritonhook.launch_replay import Buffers, Kernel, measure_roughly
    from tritonhook.store import CaptureFolder

    monkeypatch.syspath_prepend(TARGETS)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    import ab_targets

    with tritonhook.session(tmp_path / "captures", launches="values"):
        expected = ab_targets.softmax(256, 4096)()
    torch.cuda.synchronize()
    folder = CaptureFolder.open(tmp_path / "captures")
    (record,) = folder.records
    (one,) = folder.launches(record)
    capture = folder.capture(record)
    buffers = Buffers(one.launch, one.folder)
    assert buffers.notes == ()
    kernel = Kernel(capture.cubin, capture.kernel, buffers)
    kernel.launch()
    torch.cuda.synchronize()
    assert torch.equal(buffers.contents()[1].view_as(expected), expected)
    buffers.restore()
    assert not torch.equal(buffers.contents()[1].view_as(expected), expected)
    (measured,) = measure_roughly(folder)
    assert measured["us"] > 1
    assert measured["count"] == 1


@needs_gpu
@pytest.mark.gpu
def test_the_clock_is_between_nothing_and_the_highest(tmp_path: Path) -> None:
    timed = run(
        plan(tmp_path, "polynomial_steps_1000", candidate="ab_targets:polynomial_steps_1100", check=False), processes=1
    )
    clocks = [mhz for block in timed.comparison.blocks for mhz in block.clock_mhz.values()]
    highest = timed.comparison.blocks[0].conditions.sm_clock_max_mhz or 5000
    assert all(mhz is not None and 300 < mhz < 1.05 * highest for mhz in clocks)
    assert timed.comparison.cycles().ratio == pytest.approx(timed.comparison.effect().ratio, rel=0.02)


@needs_gpu
@pytest.mark.gpu
def test_each_side_can_tune_itself_and_the_report_says_so(tmp_path: Path) -> None:
    for each in (False, True):
        timed = run(
            plan(tmp_path / str(each), "tuned_softmax", rename=Rename(prefix="cutlass_"), tune_each=each),
            processes=1,
            seconds=2,
        )
        assert timed.tuning["mode"] == ("each" if each else "fixed")
        assert set(timed.tuning["sides"]) == {"reference", "candidate", "control"}
        assert [len(entries) for entries in timed.kernels["candidate"].values()] == [1]
        assert timed.comparison.control_of == "reference"
