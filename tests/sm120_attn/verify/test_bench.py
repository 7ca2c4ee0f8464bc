"""The arithmetic of `bench` and the benchmark's problems; timing needs a GPU."""

import json

import pytest

from benchmarks.common import RESULTS
from sm120_attn.config import Config
from sm120_attn.planner import Plan
from sm120_attn.verify import bench
from sm120_attn.verify.bench import BenchProblem, TimedLaunch

PLAN = Plan(Config(), "because")


def timed(problem: BenchProblem, **medians: float) -> TimedLaunch:
    samples = {name: [ms * 0.9, ms, ms * 1.5] for name, ms in medians.items()}
    return TimedLaunch(problem, samples, PLAN, "13.4.59")


def test_the_operations_of_a_problem_are_those_that_were_published() -> None:
    # 1 x 512, D64: published as 12.6 us and 85.25 TFLOPS
    assert BenchProblem(1, 512, 64, False).flop / 12.6e-6 * 1e-12 == pytest.approx(85.25, rel=1e-3)
    assert BenchProblem(1, 512, 64, True).flop / 12.7e-6 * 1e-12 == pytest.approx(42.16, rel=5e-3)


def test_the_best_peer_is_the_best_of_each_problem() -> None:
    # given
    a, b = BenchProblem(1, 512, 64, False), BenchProblem(1, 1024, 64, True)
    found = [timed(a, ours=1.0, torch=2.0, other=4.0), timed(b, ours=1.0, torch=3.0, other=0.5)]

    # when
    summary = bench.summary(bench.medians(found), "ours", ["torch", "other"])

    # then
    assert summary["vs_best_peer_geomean"] == pytest.approx(1.0)  # 2 and 0.5
    assert summary["vs_best_peer_min"] == pytest.approx(0.5)
    assert summary["vs_best_peer_min_at"] == "B1 S1024 D64 causal"
    assert summary["vs_torch_geomean"] == pytest.approx(6**0.5)
    assert summary["vs_other_min"] == pytest.approx(0.5)
    assert summary["causal_losses_from_1024"] == ["B1 S1024 D64 causal"]


def test_a_peer_that_failed_on_a_problem_is_none_there() -> None:
    found = [
        timed(BenchProblem(1, 512, 64, True), ours=1.0, torch=2.0, other=1.5),
        timed(BenchProblem(1, 1024, 64, True), ours=1.0, torch=3.0),
    ]
    summary = bench.summary(bench.medians(found), "ours", ["torch", "other", "never"])
    assert summary["vs_best_peer_geomean"] == pytest.approx(4.5**0.5)
    assert summary["vs_other_geomean"] == pytest.approx(1.5)
    assert "vs_never_geomean" not in summary


def test_who_is_wrong_or_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
    right = torch.randn(1, 8, 2, 4)
    monkeypatch.setattr(bench, "torch_flash", lambda *_: lambda: right)

    def fails(*_):
        raise ImportError("no such library")

    makers = {
        "ours": lambda *_: lambda: right + 1e-3,
        "wrong": lambda *_: lambda: right + 0.3,
        "nan": lambda *_: lambda: right * float("nan"),
        "fails": fails,
    }

    # when
    launches, left_out = bench.right_ones(BenchProblem(1, 8, 4, False), makers, None, None, None)

    # then
    assert list(launches) == ["ours"]
    assert left_out == {
        "wrong": "its result is off by 0.3",
        "nan": "its result is off by nan",
        "fails": "ImportError: no such library",
    }
    with pytest.raises(RuntimeError, match="wrong is not timed: its result is off by 0.3"):
        bench.right_ones(BenchProblem(1, 8, 4, False), {"wrong": makers["wrong"]}, None, None, None)


@pytest.fixture
def script():
    from benchmarks.sm120 import sm120_h100

    return sm120_h100


def test_the_committed_summary_is_that_of_the_committed_samples(script) -> None:
    path = RESULTS / "sm120_bf16_h100.json"
    if not path.exists():
        pytest.skip("benchmarks/sm120/sm120_h100.py has not been run yet")
    document = json.loads(path.read_text())
    wanted = script.summary_of(document)
    assert document["summary"].keys() == wanted.keys()
    for name, value in wanted.items():
        assert document["summary"][name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), (
            name
        )
