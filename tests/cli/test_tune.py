"""`tritonhook tune`: real ptxas, simulated times (support/fake_worker.py). No GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import fake_driver
import triton
from command_line import failing
from fake_tensors import Storage, Tensor
from patient_child import be_patient
from repository import ROOT, SUPPORT
from triton_kernels import add_kernel, fresh, multiply_kernel

import tritonhook
from tests.tuning.test_engine import Simulated, in_processes
from tritonhook.capture.policy.model import read_blocks, write_policy
from tritonhook.capture.selection import Launched, launches_of
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import _programs, main, tune
from tritonhook.errors import PolicyError
from tritonhook.tuning import candidates as made
from tritonhook.tuning.engine import tune as tune_kernels
from tritonhook.tuning.race import TuneRun
from tritonhook.tuning.wins import entries

LEVERS = ("--levers", "O1,maxnreg=24,name,regusage=5+name")
FASTER = {"O1": {"us": 48.0}, "candidate": {"us": 48.0}}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A GPU of simulated times: set them by calling it. No process has it, but in tests with `processes`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tune, "why_not_timed", lambda: None)
    monkeypatch.setattr(tune, "GpuProcess", Simulated)
    monkeypatch.setattr(tune, "rough_times", _rough_times)

    def set_times(**by_name: dict[str, Any]) -> None:
        monkeypatch.setattr("fake_worker.BY_NAME", by_name)
        monkeypatch.setenv("FAKE_TUNING", json.dumps(by_name))

    set_times(**FASTER)
    return set_times


@pytest.fixture
def processes(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "GpuProcess", in_processes)


def _rough_times(path: Path, others: Sequence[Launched] = ()) -> list[dict[str, Any]]:
    """The adding kernel takes 99.5% of the time."""
    return [
        {"record": one.record, "launch": one.key, "count": one.count, "us": 995.0 if "add" in one.record else 5.0}
        for one in (*launches_of(CaptureFolder.open(path)), *others)
    ]


@pytest.fixture
def captures(fake: Any, driver: Any, tmp_path: Path) -> str:
    """Two kernels with a launch each, of which one takes almost no time."""
    x = Tensor(Storage(1 << 20, 4000))
    with tritonhook.session(tmp_path / "captures", launches=True):
        for kernel in (add_kernel, multiply_kernel):
            fresh(kernel)[(8,)](x, x, x, 1000, BLOCK=128)
    return str(tmp_path / "captures")


def document(capsys: pytest.CaptureFixture, *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["tune", "--json", *words]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_win_goes_to_the_policy_and_the_policy_applies(captures: str, capsys, processes) -> None:
    found = document(capsys, captures, *LEVERS)
    (kernel,) = found["kernels"]
    assert (kernel["kernel"], kernel["verdict"], kernel["lever"]) == ("add_kernel", "WIN", "O1")
    assert kernel["share"] == pytest.approx(0.995) and found["device"] == "Fake GPU"
    low, high = kernel["interval_percent"]
    assert low < kernel["gain_percent"] < high and kernel["gain_percent"] == pytest.approx(4.0, abs=0.5)
    assert kernel["dropped"] and all(one["equal_to"] for one in kernel["dropped"])
    assert [(one["kernel"], one["reason"]) for one in found["skipped"]] == [
        ("multiply_kernel", "its share is below 1.0%")
    ]
    (entry,) = read_blocks(Path("tritonhook.toml")).entries
    assert (entry.kernel, entry.lever.text, entry.gpu) == ("add_kernel", "O1", "Fake GPU")
    assert main(["tune", "--check", "-o", "tritonhook.toml", captures]) == 0
    assert "1 applies" in capsys.readouterr().out


def test_no_gain_leaves_the_kernel_and_removes_its_old_entry(captures: str, fake: Any, capsys) -> None:
    document(capsys, captures, *LEVERS, "--min-share", "0")
    assert len(read_blocks(Path("tritonhook.toml")).entries) == 2
    fake()
    (kernel,) = document(capsys, captures, *LEVERS, "--entry", "add_kernel")["kernels"]
    assert kernel["verdict"] == "LEAVE IT" and "faster by 0.5%" in kernel["reason"]
    assert [entry.kernel for entry in read_blocks(Path("tritonhook.toml")).entries] == ["multiply_kernel"]


def test_what_won_before_is_tried_again_beside_the_named_levers(captures: str, fake: Any, capsys) -> None:
    document(capsys, captures, *LEVERS)
    (kernel,) = document(capsys, captures, "--levers", "maxnreg=24")["kernels"]
    assert (kernel["lever"], [one["lever"] for one in kernel["candidates"]]) == ("O1", ["O1"])
    assert [entry.lever.text for entry in read_blocks(Path("tritonhook.toml")).entries] == ["O1"]
    fake()
    (kernel,) = document(capsys, captures, "--levers", "O1,maxnreg=24")["kernels"]
    assert "O1" not in {one["lever"] for one in kernel["dropped"]}, "tried once"
    assert read_blocks(Path("tritonhook.toml")).entries == ()


def test_a_kernel_that_cannot_be_judged_keeps_its_entry(captures: str, fake: Any, capsys) -> None:
    document(capsys, captures, *LEVERS)
    fake(reference={"crash": True})
    (kernel,) = document(capsys, captures, *LEVERS, code=2)["kernels"]
    assert kernel["verdict"] == "LEAVE IT" and "ILLEGAL_ADDRESS" in kernel["reason"]
    assert len(read_blocks(Path("tritonhook.toml")).entries) == 1


def test_the_kernels_that_take_most_time_are_tuned(captures: str, capsys) -> None:
    found = document(capsys, captures, *LEVERS, "--min-share", "0", "--top", "1")
    assert [one["kernel"] for one in found["kernels"]] == ["add_kernel"]
    assert [one["kernel"] for one in found["skipped"]] == ["multiply_kernel"]
    (kernel,) = document(capsys, captures, *LEVERS, "--entry", "multiply_kernel", "--min-share", "0")["kernels"]
    assert kernel["kernel"] == "multiply_kernel"


def test_outputs_may_differ_by_as_much_as_is_allowed(captures: str, fake: Any, capsys) -> None:
    fake(O1={"us": 48.0, "off_by": 0.1}, candidate={"us": 48.0})
    for words, verdict in (([], "LEAVE IT"), (["--rtol", "0.01"], "LEAVE IT"), (["--rtol", "0.5"], "WIN")):
        (kernel,) = document(capsys, captures, "--levers", "O1", *words)["kernels"]
        assert kernel["verdict"] == verdict, words


def test_what_is_dropped_on_the_gpu_is_said(captures: str, fake: Any, capsys, monkeypatch, processes) -> None:
    be_patient(monkeypatch)
    fake(**{"O1": {"hang": True}, "maxnreg=24": {"wrong": "output 2 differs in its bits"}})
    assert main(["tune", captures, *LEVERS, "--limit", "1"]) == 0
    said = capsys.readouterr().out
    assert "add_kernel: O1: no end within 1 s" in said
    assert "0 wins of 1 of 2 kernels" in said


def test_codes_that_were_assembled_elsewhere_need_no_ptxas(captures: str, capsys, monkeypatch) -> None:
    found = document(capsys, captures, *LEVERS, "--assemble-only")
    assert found["counts"] == {"WIN": 0, "LEAVE IT": 0, "ASSEMBLED": 2} and not Path("tritonhook.toml").exists()
    candidates, equal = (found["kernels"][0][field] for field in ("candidates", "dropped"))
    assert equal and "O1" in [one["lever"] for one in candidates]
    assert found["kernels"][0]["own"]["code"] not in [one["code"] for one in candidates]
    shutil.move(captures, "elsewhere")
    monkeypatch.setattr(made, "subject_of", None)
    monkeypatch.setattr(made, "choices", None)
    found = document(capsys, "elsewhere")
    assert found["kernels"][0]["candidates"] == candidates and found["counts"]["WIN"] == 1
    assert found["kernels"][0]["dropped"] == equal and all(one["equal_to"] for one in equal)
    record = found["kernels"][0]["record"]
    path = Path("elsewhere/tuning", f"{record}.json")
    kept = path.read_text()
    path.write_text(kept.replace('"cubin"', '"cabin"'))
    assert "make it again with `tritonhook tune CAPTURES --assemble-only`" in failing(capsys, "tune", "elsewhere")
    path.write_text(kept)
    for cubin in Path("elsewhere/tuning/cubins").iterdir():
        cubin.write_bytes(cubin.read_bytes()[:-1])
    assert "is damaged" in failing(capsys, "tune", "elsewhere")


def test_codes_of_another_ptx_are_not_used(captures: str, capsys) -> None:
    found = document(capsys, captures, *LEVERS, "--assemble-only")
    path = Path(captures, "tuning", f"{found['kernels'][0]['record']}.json")
    path.write_text(path.read_text().replace(found["kernels"][0]["ptx"], "0" * 64))
    again = document(capsys, captures)
    assert again["kernels"][0]["candidates"] != found["kernels"][0]["candidates"], "assembled anew, with all levers"


def test_ctrl_c_writes_what_is_certified(captures: str, fake: Any, capsys, processes) -> None:
    Path("tritonhook.toml").write_text("format = 1\n")
    fake(O1={"interrupt": True})
    found = document(capsys, captures, *LEVERS, code=130)
    assert (found["stopped"], found["kernels"]) == ("interrupted", [])
    assert Path("tritonhook.toml").read_text() == "format = 1\n", "nothing was judged"
    last = next(Path(captures, "kernels").glob("multiply*/launches/*.json"))
    fake(**FASTER | {"O1": {"us": 48.0, "interrupt": last.name}})
    found = document(capsys, captures, *LEVERS, "--min-share", "0", code=130)
    assert found["counts"]["WIN"] == 1 == len(found["kernels"])
    assert [entry.kernel for entry in read_blocks(Path("tritonhook.toml")).entries] == ["add_kernel"]


def test_what_another_tuning_wrote_meanwhile_is_kept(captures: str, capsys, monkeypatch) -> None:
    def interrupted_by_another(*given: Any) -> TuneRun:
        ran = tune_kernels(*given)
        write_policy(Path("tritonhook.toml"), [replace(one, kernel="other") for one in entries(ran, "2026-11-23")])
        return ran

    monkeypatch.setattr(tune, "tune", interrupted_by_another)
    document(capsys, captures, *LEVERS)
    assert [entry.kernel for entry in read_blocks(Path("tritonhook.toml")).entries] == ["add_kernel", "other"]


def test_a_policy_that_cannot_be_written_loses_no_result(captures: str, capsys, monkeypatch) -> None:
    def full(*_: Any) -> None:
        raise PolicyError("tritonhook.toml: cannot be written: No space left on device")

    monkeypatch.setattr("tritonhook.tuning.wins.write_policy", full)
    assert main(["tune", "--json", captures, *LEVERS]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["counts"]["WIN"] == 1 and "No space left" in said.err


def test_a_script_is_run_once(fake: Any, capsys, tmp_path: Path, triton_cache: Path) -> None:
    Path("script.py").write_text(fake_driver.SCRIPT)
    found = document(capsys, "script.py", *LEVERS, "-o", "mine.toml", "--", "7")
    assert found["counts"]["WIN"] == 1 and found["kernels"][0]["launch"].startswith("grid 7x1x1")
    assert len(read_blocks(Path("mine.toml")).entries) == 1
    Path("script.py").write_text("raise SystemExit(3)")
    assert "ended with status 3: nothing was tuned" in failing(capsys, "tune", "script.py")


def test_a_script_runs_dry_for_its_codes(capsys, tmp_path: Path, triton_cache: Path, monkeypatch) -> None:
    pytest.importorskip("triton", minversion="3.6")
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(
        f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(SUPPORT)!r}]\nimport triton_kernels as kernels\n"
        "from fake_tensors import Storage, Tensor\n"
        "x = Tensor(Storage(1 << 20, 4000))\nkernels.add_kernel[(7,)](x, x, x, 1000, BLOCK=128)\n"
    )
    found = document(capsys, "script.py", "--levers", "O1", "--arch", "sm_90a", "--assemble-only")
    assert found["counts"]["ASSEMBLED"] == 1
    (record,) = CaptureFolder.open(Path("tritonhook-captures")).records
    assert CaptureFolder.open(Path("tritonhook-captures")).capture(record).dry_run


def test_a_controls_file_takes_the_newest_ptxas_and_its_path_begins_at_the_policy(captures: str, capsys) -> None:
    Path("sub").mkdir()
    for file in ("sub/mine.bin", "other.bin"):
        Path(file).write_bytes(b"not controls")
    policy = ("-o", "sub/tritonhook.toml")
    assert "copy it there" in failing(capsys, "tune", captures, "--controls", "other.bin", *policy)
    found = document(capsys, captures, "--levers", "O1", "--controls", "sub/mine.bin", *policy)
    levers = {one["lever"]: one["reason"] for one in found["kernels"][0]["dropped"]}
    (tried,) = (text for text in levers if "controls=mine.bin" in text)
    assert tried.startswith("ptxas=13.") or "needs ptxas 13.3" in levers[tried]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CAPTURES", "--levers", "fast"], "'fast' is not a lever"),
        (["CAPTURES", "--levers", "O1,ptxas=99.1.2"], "ptxas 99.1.2: not found; get it with `tritonhook ptxas add"),
        (["CAPTURES", "--controls", "none.bin"], "none.bin: cannot read the controls file"),
        (["CAPTURES", "-o", "no/such/tritonhook.toml"], "the folder"),
        (["CAPTURES", "--rtol", "-1"], "give 0 or more"),
        (["CAPTURES", "--min-share", "2"], "give a share such as 0.01 or 1%"),
        (["CAPTURES", "--top", "0"], "give a number of 1 or more"),
        (["CAPTURES", "--entry", "nobody"], "no kernel 'nobody'"),
        (["CAPTURES", "other"], "too many targets"),
        (["CAPTURES", "--", "--steps"], "only a script takes arguments"),
        (["script.py", "--assemble-only"], "give --arch SM to run it dry"),
        (["script.py", "--arch", "sm_90a"], "only for a script or MODULE:FUNCTION with --assemble-only"),
        (["CAPTURES", "--arch", "sm_90a", "--assemble-only"], "only for a script"),
        (["nothing_here"], "no such file or folder"),
        (["nothing_here.py"], "no such script"),
    ],
)
def test_bad_arguments_are_told_before_any_work(words: list[str], message: str, captures: str, capsys) -> None:
    words = [captures if word == "CAPTURES" else word for word in words]
    if "--min-share" in words or "--top" in words:
        with pytest.raises(SystemExit):
            main(["tune", *words])
        assert message in capsys.readouterr().err
    else:
        assert message in failing(capsys, "tune", *words)
    assert not Path("tritonhook.toml").exists()


def test_a_project_names_its_policy(captures: str, capsys) -> None:
    Path("pyproject.toml").write_text('[tool.tritonhook]\npolicy = "levers.toml"\n')
    document(capsys, captures, *LEVERS)
    assert len(read_blocks(Path("levers.toml")).entries) == 1 and not Path("tritonhook.toml").exists()


def test_a_file_that_is_no_policy_is_not_replaced(captures: str, capsys) -> None:
    Path("tritonhook.toml").write_text("[other]\n")
    assert "tritonhook.toml" in failing(capsys, "tune", captures)
    assert Path("tritonhook.toml").read_text() == "[other]\n"


def test_captures_without_launches_say_what_to_do(fake: Any, driver: Any, capsys) -> None:
    x = Tensor(Storage(1 << 20, 4000))
    with tritonhook.session("bare"):
        fresh(add_kernel)[(8,)](x, x, x, 1000, BLOCK=128)
    assert "record launches on a GPU with `tritonhook run --launch-values`" in failing(capsys, "tune", "bare")


@pytest.mark.parametrize(("torch", "message"), [(None, "torch is not installed"), ("torch", "libcuda")])
def test_without_torch_or_a_gpu_nothing_is_run(torch, message: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_programs, "find_spec", lambda name: torch)
    monkeypatch.setattr(_programs, "why_no_gpu", lambda: "no libcuda")
    Path("script.py").write_text("open('ran', 'w')")
    assert message in failing(capsys, "tune", "script.py")
    assert not Path("ran").exists()


# --- autotuned kernels ---------------------------------------------------------------------------


@pytest.fixture
def autotuned(fake: Any, driver: Any, tmp_path: Path) -> str:
    """A kernel whose autotuner chose the slower of its two configurations."""
    with tritonhook.session(tmp_path / "captures", launches=True):
        _autotuned()
    return str(tmp_path / "captures")


def _autotuned(*times: float) -> str:
    """Tune and launch it, by a clock that says these times; the configuration that it gets."""
    left = list(times or (1.0, 2.0))

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        return [left.pop(0)] * 3

    x = Tensor(Storage(1 << 20, 4000))
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    kernel = triton.autotune(configs, key=["n"], do_bench=bench)(fresh(add_kernel))
    kernel[(8,)](x, x, x, 1000)
    return str(kernel.best_config)


def test_configuration_and_lever_win_together_and_the_policy_gives_both(autotuned: str, fake: Any, capsys) -> None:
    whole = str(triton.Config({"BLOCK": 128}))
    fake(  # in the confirmation "reference" is the best configuration, and "plain" the one that was chosen
        **{whole: {"us": 49.0}, f"{whole}: O1": {"us": 47.0}, "O1": {"us": 48.8}, "candidate": {"us": 47.0}},
        plain={"us": 51.0},
    )
    (kernel,) = document(capsys, autotuned, *LEVERS)["kernels"]
    assert (kernel["verdict"], kernel["lever"], kernel["config"], kernel["base"]) == ("WIN", "O1", whole, whole)
    (entry,), (pin,) = read_blocks(Path("tritonhook.toml"))
    assert pin.config == whole and pin.ptx == entry.ptx != kernel["ptx"]
    with tritonhook.session("applied", policy="tritonhook.toml") as session:
        assert _autotuned() == whole
    (capture,) = session.captures
    assert capture.lever == "O1" and not session.notes
    fake()
    (kernel,) = document(capsys, autotuned, *LEVERS)["kernels"]
    assert kernel["verdict"] == "LEAVE IT" and "base" not in kernel
    assert read_blocks(Path("tritonhook.toml")) == ((), ())


def test_configurations_are_assembled_elsewhere_and_race_without_a_ptxas(
    autotuned: str, fake: Any, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = document(capsys, autotuned, *LEVERS, "--assemble-only")
    levers = [(one.get("config"), one["lever"]) for one in found["kernels"][0]["candidates"]]
    whole = str(triton.Config({"BLOCK": 128}))
    assert {config for config, _ in levers} == {None, whole} and (whole, "plain") in levers
    monkeypatch.setattr(made, "choices", lambda *_: pytest.fail("something was assembled"))
    fake(**{whole: {"us": 49.0}, f"{whole}: O1": {"us": 47.0}, "candidate": {"us": 47.0}})
    assert document(capsys, autotuned)["counts"]["WIN"] == 1


def test_levers_are_tried_for_as_many_configurations_as_wanted(autotuned: str, capsys) -> None:
    (kernel,) = document(capsys, autotuned, *LEVERS, "--configs", "1")["kernels"]
    assert [one["lever"] for one in kernel["candidates"] if "config" in one] == ["plain"]


def test_a_configuration_with_the_bits_takes_the_place_of_the_one_that_was_chosen(autotuned: str, fake, capsys) -> None:
    """The chosen configuration, 64, leaves out half of the elements."""
    pytest.importorskip("numpy")
    (kernel,) = document(capsys, autotuned, *LEVERS, "--same-bits-as", "BLOCK=128")["kernels"]
    assert (kernel["verdict"], kernel["share"]) == ("WIN", 1.0)
    assert all("config" not in one for one in kernel["candidates"])
    note, *_ = kernel["notes"]
    assert note.startswith("no candidate: BLOCK: 64") and "elements" in note
    (pin,) = read_blocks(Path("tritonhook.toml")).pins
    assert pin.config == str(triton.Config({"BLOCK": 128}))
    assert "BLOCK: 64" in failing(capsys, "tune", autotuned, "--same-bits-as", "BLOCK=32")
