"""The command line, without a GPU: options, what it runs and prints, and its exit code."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from gluon_kernels import cli, tune
from gluon_kernels.cli import main
from gluon_kernels.mma import config as mma
from gluon_kernels.verify import bench, check, fp8_accuracy
from gluon_kernels.verify.bench import BASELINES
from gluon_kernels.verify.check import Case, Verdict
from gluon_kernels.verify.timer import Timed

ROOT = Path(__file__).parents[2]
VERBS = ("check", "bench", "tune")
KERNELS = {"kernel": None, "dtypes": ["bf16"]}
RIGHT = Verdict(Case(64, 64), error=1.0, allowed=8.0)
WRONG = Verdict(Case(1, 1), error=9.0, allowed=2.0, reason="too far off")
SKIPPED = Verdict(Case(0, 1), skipped="too large")


def command(line):
    return main(line.split())


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_gpu_the_command_says_so_in_one_line(verb):
    environment = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "gluon_kernels", verb], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"python -m gluon_kernels {verb}: needs" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "arguments are required: verb"),
        (["check", "--kernel", "cutlass"], "invalid choice: 'cutlass'"),
        (["check", "--dtypes", "fp7"], "invalid choice: 'fp7'"),
        (["check", "--head-dims", "two"], "'two' is not a number of at least 1"),
        (["bench", "--baselines", "luck"], "invalid choice: 'luck'"),
        (["check", "--head-dims", "0"], "'0' is not a number of at least 1"),
        (["bench", "--rounds", "0"], "'0' is not a number of at least 1"),
        (["tune", "--dtype", "fp8e5"], "invalid choice: 'fp8e5'"),
        (["tune", "--head-dim", "17"], "invalid choice: 17"),
        (["tune", "--batch", "0"], "'0' is not a number of at least 1"),
        (["tune", "--length", "\N{SUPERSCRIPT TWO}"], "is not a number of at least 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert message in told and told.startswith(" ".join(["usage: python -m gluon_kernels", *arguments[:1]]))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("error", [ValueError, ImportError])
def test_a_verb_that_cannot_go_on_says_why(verb, error, monkeypatch, capsys):
    def stopped(options):
        raise error("no candidate could be timed")

    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, f"_{verb}", stopped)
    assert main([verb]) == 2
    assert capsys.readouterr().err == f"python -m gluon_kernels {verb}: no candidate could be timed\n"
    monkeypatch.setattr(cli, f"_{verb}", lambda options: 7)
    assert main([verb]) == 7


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("check", {**KERNELS, "head_dims": [64, 128], "quick": False, "json": None}),
        (
            "check --kernel mma --dtypes fp16 fp8e5 --head-dims 1 256 --quick --json x/y",
            {"kernel": "mma", "dtypes": ["fp16", "fp8e5"], "head_dims": [1, 256], "quick": True, "json": Path("x/y")},
        ),
        ("bench", {**KERNELS, "baselines": list(BASELINES), "rounds": 25}),
        (
            "bench --kernel hopper --dtypes fp16 --baselines --rounds 1",
            {"kernel": "hopper", "dtypes": ["fp16"], "baselines": [], "rounds": 1},
        ),
        ("bench --baselines cudnn fa4", {**KERNELS, "baselines": ["cudnn", "fa4"], "rounds": 25}),
        ("tune", {"dtype": "bf16", "head_dim": 128, "causal": False, "batch": 4, "length": 4096}),
        (
            "tune --dtype fp16 --head-dim 64 --causal --batch 2 --length 100",
            {"dtype": "fp16", "head_dim": 64, "causal": True, "batch": 2, "length": 100},
        ),
    ],
)
def test_each_option_has_its_default_and_its_type(line, options, monkeypatch):
    verb = line.split()[0]
    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, f"_{verb}", vars)
    assert command(line) == {"verb": verb, **options}


@pytest.mark.parametrize(
    ("capability", "absent", "reason"),
    [
        (None, (), "needs an NVIDIA GPU that torch can use"),
        ((7, 5), (), "sm_75: there are kernels for sm_80"),
        ((9, 0), (), None),
        ((9, 0), ("torch",), "needs torch, which cannot be imported"),
        ((9, 0), ("gluon_kernels.device.triton_compat",), "needs Triton 3.6 or newer, which cannot be imported"),
    ],
)
def test_what_is_missing_is_named(capability, absent, reason, monkeypatch):
    pytest.importorskip("triton", reason="needs triton")
    cuda = SimpleNamespace(is_available=lambda: capability is not None, get_device_capability=lambda: capability)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    for module in absent:
        monkeypatch.setitem(sys.modules, module, None)  # an import raises ImportError
        monkeypatch.delattr("gluon_kernels.device.triton_compat", raising=False)
    found = cli._why_not()
    assert found is None if reason is None else found.startswith(reason)


@pytest.fixture
def gpu(monkeypatch):
    """An sm_90 GPU; its kernels are texts."""
    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, "_arch", lambda: 90)
    monkeypatch.setattr(cli, "launcher", lambda kernel: SimpleNamespace(attention=f"attention of {kernel}"))


def test_check_judges_all_cases_by_what_each_kernel_may_lose(gpu, monkeypatch):
    """With fp8 the kinds of data that it finds hard follow, unless nothing was right."""
    ran, hard = [], []

    def run(attention, cases, *, fp8_loss):
        cases = list(cases)
        ran.append((attention, cases, fp8_loss))
        return [WRONG if cases[0].head_dim == 256 else RIGHT]

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr(cli, "_check_accuracy", lambda *asked: hard.append(asked) or 0)
    assert command("check --dtypes bf16 fp8e5 --head-dims 64 256 --quick") == 1
    assert ran == [
        (f"attention of {kernel}", list(check.matrix((dtype,), (head_dim,), True)), loss)
        for kernel, loss in (("mma", 0.0), ("hopper", check.FP8_LOSS["hopper"]))
        for dtype in ("bf16", "fp8e5")
        for head_dim in (64, 256)
    ]
    assert hard == [(kernel, f"attention of {kernel}", "fp8e5", 64, True) for kernel in ("mma", "hopper")]


@pytest.mark.parametrize(
    ("verdicts", "hard", "code"),
    [
        ([RIGHT], 0, 0),
        ([RIGHT], 1, 1),
        ([RIGHT, WRONG], 0, 1),
        ([RIGHT, WRONG], 1, 1),
        ([WRONG], 0, 1),
        ([SKIPPED], 0, 2),
        ([RIGHT, SKIPPED], 0, 0),
        ([], 0, 2),
    ],
)
def test_check_is_right_wrong_or_not_run(gpu, monkeypatch, verdicts, hard, code):
    monkeypatch.setattr(check, "run", lambda *_, **__: verdicts)
    monkeypatch.setattr(cli, "_check_accuracy", lambda *_: hard)
    assert command("check --kernel mma --dtypes fp8e5 --head-dims 64") == code


def test_a_kernel_that_cannot_be_imported_is_told_and_the_next_is_judged(gpu, monkeypatch, capsys):
    def launcher(kernel):
        if kernel == "mma":
            raise ImportError("too old")
        return SimpleNamespace(attention=None)

    monkeypatch.setattr(cli, "launcher", launcher)
    monkeypatch.setattr(check, "run", lambda *_, **__: [RIGHT])
    assert command("check --head-dims 64") == 0
    told = capsys.readouterr().out.splitlines()
    assert told == ["mma: not run: too old", "hopper bf16 D64: 1 right, 0 wrong; largest error 0.12 of the allowed"]


def test_verdicts_are_added_up_and_ten_wrong_ones_told(capsys):
    exact = Verdict(Case(2, 2), error=0.0, allowed=0.0)
    worst = Verdict(Case(3, 3), error=3.0, allowed=4.0)
    assert cli._report("mma", [RIGHT, worst, exact, SKIPPED, SKIPPED, *[WRONG] * 11]) == (3, 11)
    *wrong, skipped, summary = capsys.readouterr().out.splitlines()
    assert wrong == [f"mma: WRONG {asdict(WRONG.case)}: too far off"] * 10
    assert skipped == "mma: 2 cases not run: too large"
    assert summary == "mma: 3 right, 11 wrong; largest error 0.75 of the allowed"
    assert cli._report("mma", [SKIPPED]) == (0, 0)
    assert "0 right, 0 wrong; largest error 0.00" in capsys.readouterr().out


@pytest.mark.parametrize(("kernel", "wgmma"), [("hopper", True), ("mma", False)])
@pytest.mark.parametrize(("quick", "lengths"), [(True, (4096,)), (False, fp8_accuracy.LENGTHS)])
def test_hard_data_is_judged_and_the_worst_told(kernel, wgmma, quick, lengths, monkeypatch, capsys):
    asked = []

    def judge(*arguments):
        asked.append(arguments)
        first = not arguments[2]
        return SimpleNamespace(
            case=arguments[0], reason="no" if first else None, rms_ratio=1.5 - first, row_ratio=2.25 + first
        )

    monkeypatch.setattr(fp8_accuracy, "judge_accuracy", judge)
    cases = list(fp8_accuracy.accuracy_cases("fp8e5", 64, lengths))
    assert cli._check_accuracy(kernel, "attention", "fp8e5", 64, quick) == 1
    assert asked == [(case, "attention", number, "cuda", wgmma) for number, case in enumerate(cases)]
    wrong, summary = capsys.readouterr().out.splitlines()
    assert wrong == f"{kernel} fp8e5 D64: WRONG {asdict(cases[0])}: no"
    assert summary.startswith(f"{kernel} fp8e5 D64: {len(cases) - 1} kinds of data exact enough, 1 not; at most 1.50 ")
    assert summary.endswith(", 3.25 times in the worst row")


@pytest.mark.parametrize(("times", "code"), [({}, 2), ({"mma_bf16": 1}, 0)])
def test_bench_times_every_shape_with_every_kernel_and_dtype(gpu, times, code, monkeypatch, capsys):
    asked = []
    rows = [SimpleNamespace(times={}), SimpleNamespace(times=times)]
    monkeypatch.setattr(bench, "bench", lambda *arguments: asked.append(arguments) or rows)
    monkeypatch.setattr(bench, "table", lambda of: f"table of {len(of)}")
    assert command("bench --dtypes bf16 fp16 --baselines cudnn --rounds 3") == code
    subjects = ["mma_bf16", "mma_fp16", "hopper_bf16", "hopper_fp16"]
    assert asked == [(cli.SHAPES, subjects, ["cudnn"], 3)]
    assert capsys.readouterr().out == "table of 2\n"


@pytest.mark.parametrize(("flags", "causal"), [("", None), (" --causal", "top-left")])
def test_tune_tries_the_candidates_of_its_problem_and_tells_all(gpu, flags, causal, monkeypatch, capsys):
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.device import other_scheduler

    asked, agreed = [], []
    shape = bench.Shape(2, 16, 100, 64, causal is not None)

    def tune_(attention, configs, *tensors, causal, verify):
        asked.append((attention, list(configs), tensors, causal))
        verify("out")
        first, second, *_ = asked[0][1]
        return [tune.Tried(first, Timed((2.0,), True)), tune.Tried(second, reason="too big")]

    monkeypatch.setattr(bench.Shape, "inputs", lambda shape: ("inputs of", shape))
    monkeypatch.setattr(bench, "torch_output", lambda *of: ("output", *of))
    monkeypatch.setattr(bench, "in_dtype", lambda inputs, dtype: (*inputs, dtype))
    monkeypatch.setattr(bench, "agree", lambda *both: agreed.append(both))
    monkeypatch.setattr(other_scheduler, "best_trigger", lambda arch: {90: "pragma"}[arch])
    monkeypatch.setattr(tune, "tune", tune_)
    assert command("tune --dtype fp16 --head-dim 64 --batch 2 --length 100" + flags) == 0
    config = mma.default_config(90, "fp16", 64, causal, 100)
    configs = list(mma.candidates(config, 90, "pragma"))
    assert asked == [("attention of mma", configs, ("inputs of", shape, "fp16"), causal)]
    assert agreed == [("fp16", "out", ("output", ("inputs of", shape), shape))]
    assert capsys.readouterr().out.splitlines() == [
        f"{shape.flops / 2e9:8.1f} TFLOPS  {config}",
        f"not timed: {configs[1]}: too big",
        f"fastest: {config}",
    ]
