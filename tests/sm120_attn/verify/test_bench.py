"""The arithmetic of `bench` and the benchmark's problems; timing needs a GPU."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.common import RESULTS
from sm120_attn.config import Config, why_not
from sm120_attn.planner import Plan
from sm120_attn.verify import bench, selftest
from sm120_attn.verify.bench import LONG, PUBLISHED, BenchProblem, TimedLaunch

PLAN = Plan(Config(), "because")


def timed(problem: BenchProblem, **medians: float) -> TimedLaunch:
    samples = {name: [ms * 0.9, ms, ms * 1.5] for name, ms in medians.items()}
    return TimedLaunch(problem, samples, PLAN, "13.4.59")


def test_the_problems_are_those_that_were_published_and_the_long_ones() -> None:
    assert len(PUBLISHED) == 16 and len(LONG) == 8
    assert len(set(PUBLISHED + LONG)) == 24
    assert {p.heads for p in PUBLISHED} == {16}
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


def test_a_loss_below_1024_or_without_a_mask_is_not_a_causal_loss() -> None:
    found = [
        timed(BenchProblem(1, 512, 64, True), ours=1.0, torch=0.5),
        timed(BenchProblem(1, 2048, 64, False), ours=1.0, torch=0.5),
        timed(BenchProblem(1, 2048, 64, True), ours=1.0, torch=1.5),
    ]
    assert bench.summary(bench.medians(found), "ours", ["torch"])["causal_losses_from_1024"] == []


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


def test_a_row_has_the_published_layout() -> None:
    one = timed(BenchProblem(4, 1024, 128, False), ours=0.1, torch=0.2)
    assert bench.line(one).split() == [
        "4",
        "1024",
        "128",
        "no",
        "100.0",
        "us",
        "343.6",
        "200.0",
        "us",
        "171.8",
        "2.00x",
    ]
    assert bench.header(["ours", "torch"]).split()[:4] == ["B", "S", "D", "causal"]


def test_records_keep_the_raw_samples_and_can_be_json() -> None:
    (record,) = json.loads(json.dumps(bench.records([timed(LONG[0], ours=1.0, torch=2.0)])))
    assert record["samples_ms"]["torch"] == [1.8, 2.0, 3.0]
    assert record["median_ms"]["torch"] == 2.0
    assert (record["reason"], record["ptxas"], record["batch"], record["length"]) == ("because", "13.4.59", 4, 4096)


def test_selftest_does_not_write_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import main

    (tmp_path / "kept.json").write_text("mine")
    assert main(["selftest", "--out", str(tmp_path / "kept.json")]) == 2
    assert "kept.json exists; name another --out, or give --force" in capsys.readouterr().err
    assert (tmp_path / "kept.json").read_text() == "mine"


def test_a_part_of_selftest_that_fails_leaves_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> dict:
        raise RuntimeError("no such GPU")

    assert selftest._part(broken) == {"error": "RuntimeError: no such GPU"}
    assert selftest._part(lambda: {"a": 1}) == {"a": 1}


def test_too_few_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import main

    assert main(["bench", "--rounds", "1"]) == 2
    assert capsys.readouterr().err == "sm120_attn bench: --rounds 1: at least 3\n"


@pytest.fixture
def script():
    from benchmarks.sm120 import sm120_h100

    return sm120_h100


def document_of(script, problem: BenchProblem, **medians: float) -> dict:
    configs = {label: asdict(config) for label, config in script.configs_of(problem).items()}
    found = bench.records([timed(problem, **medians)])[0] | {"configs": configs}
    return {"peers": ["torch"], "host_us": {"attention": 9.0}, "problems": [found]}


def test_the_summary_is_about_the_kernel_that_plan_picks_now(script, monkeypatch: pytest.MonkeyPatch) -> None:
    # given samples of the kernel that was planned then, and of another
    problem = BenchProblem(1, 512, 64, False)
    label, other = list(script.configs_of(problem).items())[-1]
    medians = dict.fromkeys(script.configs_of(problem), 4.0) | {"torch": 2.0, label: 1.0}
    document = document_of(script, problem, **medians)
    assert script.summary_of(document)["vs_torch_geomean"] == pytest.approx(0.5)

    # when plan has learnt from them
    monkeypatch.setattr(script, "planned", lambda problem: other)

    # then
    summary = script.summary_of(document)
    assert summary["vs_torch_geomean"] == pytest.approx(2.0)
    assert summary["planned"] == {"B1 S512 D64 full": label}
    assert summary["host_us"] == 9.0


def test_a_kernel_that_was_not_timed_has_no_summary(script, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BenchProblem(1, 512, 64, False)
    document = document_of(script, problem, ours=1.0, torch=2.0)
    monkeypatch.setattr(script, "planned", lambda problem: Config(arch="sm_90a", head_dim=32))
    with pytest.raises(SystemExit, match="B1 S512 D64 full: the kernel that plan.. picks now was not timed"):
        script.summary_of(document)


def test_candidates_can_be_built_and_are_different(script) -> None:
    for problem in PUBLISHED + LONG:
        configs = script.configs_of(problem)
        assert next(iter(configs)) == "ours" and len(configs) > 3
        assert len(set(configs.values())) == len(configs)
        assert all(why_not(config) is None and config.causal == problem.causal for config in configs.values())


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


def test_the_benchmarks_peers_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.sm120 import sm120_peers

    for name in ("FLASH_ATTENTION_ARCH", "SM120_PEER_CUTLASS", "SM120_PEER_FROST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(sm120_peers.Missing, match="FLASH_ATTENTION_ARCH=sm_120 is not set"):
        sm120_peers.fa4(None, None, None, True)
    with pytest.raises(sm120_peers.Missing, match="SM120_PEER_CUTLASS does not name the file"):
        sm120_peers._module_at("SM120_PEER_CUTLASS", "x")
    with pytest.raises(sm120_peers.Missing, match="SM120_PEER_FROST does not name the folder"):
        sm120_peers._frost_module()


@pytest.fixture
def kernel():
    pytest.importorskip("torch", reason="needs torch: pip install torch")
    from tests.sm120_attn.support.fake_kernel import fake_kernels

    with fake_kernels() as made:
        yield made


def test_a_benchmark_of_another_kernel_launches_that_kernel(kernel) -> None:
    """The public call must find what was prepared for it: else the planned kernel would be timed under another name."""
    from sm120_attn import attention
    from sm120_attn.launch.prepare import prepared_calls
    from tests.sm120_attn.support.fake_kernel import qkv

    # given two calls that ask for tiles of their own
    tensors = qkv(1, 128, 2, 64)
    others = [bench.chosen(lambda c, n=n: replace(c, tile_n=n), i + 1)(*tensors, True) for i, n in enumerate((32, 128))]
    known = dict(prepared_calls)

    # when they are made, and the planned call between them
    others[0]()
    attention(*tensors, causal=True)
    others[1]()

    # then nothing was prepared but the planned one, and each has its kernel
    assert sorted(found.kernel.config.tile_n for found in known.values()) == [32, 128]
    assert all(prepared_calls[facts] is found for facts, found in known.items())
    assert len(prepared_calls) == 3

    # and a second one like the first is refused, since it could be another's
    with pytest.raises(RuntimeError, match="has been made before"):
        bench.chosen(lambda c: c, 1)(*tensors, True)
