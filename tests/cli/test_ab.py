"""The targets of `tritonhook ab`: which are timed, with which code and which recorded launch; without a GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import fake_driver
import pytest
import triton
from command_line import EXP, TARGET
from fake_tensors import Storage, Tensor
from triton_kernels import add_kernel, cutlass_copy_kernel, fresh

import tritonhook
from tests.timing.test_coordinator import Simulated
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.cli import _programs, ab, main, parser
from tritonhook.cli._parser import from_namespace
from tritonhook.cli.ab import Options, planned
from tritonhook.cubin.image import Cubin
from tritonhook.errors import DeviceError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rename
from tritonhook.timing import coordinator
from tritonhook.timing.images import CandidateChange, sides_of_ptx
from tritonhook.timing.plan import Plan
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE


@pytest.fixture
def images() -> dict[str, Cubin]:
    """The images of the last plan by side, read while they are there."""
    return {}


@pytest.fixture
def plans(images: dict[str, Cubin], monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that would be timed; simulations answer for them."""
    seen: list[Plan] = []

    def run(plan: Plan, *more: Any, **options: Any) -> Any:
        seen.append(plan)
        for image in plan.images:
            images[image.side] = Cubin.from_bytes(Path(image.path).read_bytes())
        fake = Plan("fake:slower3", plan.out, Rename(prefix="x_"))
        return coordinator.run(fake, *more, **options, start=Simulated)

    monkeypatch.setattr(ab, "time_plan", run)
    return seen


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels, launched twice and once; tests copy them."""
    folder = tmp_path_factory.mktemp("captured")
    x = Tensor(Storage(1 << 20, 4000))
    with pytest.MonkeyPatch.context() as patch, fake_driver.active():
        patch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        with tritonhook.session(folder / "captures", launches=True):
            kernel = fresh(add_kernel)
            for n in (1000, 1000, 999):
                kernel[(8,)](x, x, x, n, BLOCK=128)
            fresh(cutlass_copy_kernel)[(8,)](x, x, x, 1000, BLOCK=128)
    return folder / "captures"


@pytest.fixture
def captures(captured: Path, out: Path, triton_cache: Path) -> Path:
    return Path(shutil.copytree(captured, out))


def record(captures: Path, kernel: str) -> Path:
    (found,) = (captures / "kernels").glob(f"{kernel}-*")
    return found


def test_a_capture_with_launches_is_timed_as_it_was_launched_most_often(captures, plans, images) -> None:
    assert main(["ab", str(record(captures, "add_kernel")), "--seconds", "3600"]) == 1
    (plan,) = plans
    assert {image.side: image.entry for image in plan.images} == {
        REFERENCE: "add_kernel",
        CANDIDATE: "cutlass_add_kernel",
        CONTROL: "cutlasz_add_kernel",
    }
    assert {image.kernel for image in plan.images} == {"add_kernel"}
    assert images[CANDIDATE].kernels == ("cutlass_add_kernel",)
    assert read_launch(plan.launch).parameters[3].value == 1000
    assert main(["ab", str(record(captures, "cutlass_copy_kernel")), "--strip", "--seconds", "3600"]) == 1
    assert [image.entry for image in plans[1].images] == ["cutlass_copy_kernel", "copy_kernel", "cutlasz_copy_kernel"]


def test_one_of_several_launches_can_be_named(captures, plans, capsys) -> None:
    add = record(captures, "add_kernel")
    rare = CaptureFolder.open(captures).launches(add.name)[1]
    assert main(["ab", str(add), "--launch", rare.key[:6], "--seconds", "3600"]) == 1
    assert read_launch(plans[0].launch).parameters[3].value == 999
    assert main(["ab", str(add), "--launch", "zzz"]) == 2
    said = capsys.readouterr().err
    assert "0 launches match" in said
    assert rare.key in said


def test_what_has_no_launch_is_not_timed(captures, plans, tmp_path, capsys) -> None:
    (ptx,) = record(captures, "add_kernel").glob("*.ptx")
    assert main(["ab", str(ptx)]) == 2
    assert f"`tritonhook diff {ptx} --rename` compares only the code" in capsys.readouterr().err
    assert main(["ab"]) == 2
    assert "nothing to time" in capsys.readouterr().err
    assert plans == []


def test_the_candidate_can_have_other_options(captures, plans, images) -> None:
    assert main(["ab", str(record(captures, "add_kernel")), "--candidate-options", "-O0", "--seconds", "3600"]) == 1
    assert [image.entry for image in plans[0].images][:2] == ["add_kernel", "add_kernel"]
    code = {side: cubin.text(cubin.kernels[0]) for side, cubin in images.items()}
    assert code[REFERENCE] == code[CONTROL] != code[CANDIDATE]


def test_two_cubins_are_timed_as_they_are(captures, plans, tmp_path, capsys) -> None:
    add = record(captures, "add_kernel")
    (cubin,) = add.glob("*.cubin")
    other = tmp_path / "other.cubin"
    other.write_bytes(cubin.read_bytes())
    assert main(["ab", str(cubin), str(other), "--args", str(add), "--seconds", "3600"]) == 1
    assert [image.entry for image in plans[0].images] == ["add_kernel"] * 3
    assert main(["ab", str(cubin), str(other)]) == 2
    assert "give --args FILE" in capsys.readouterr().err
    assert main(["ab", str(cubin), str(other), "--args", str(add), "--strip"]) == 2
    assert "compared as they are" in capsys.readouterr().err
    assert main(["ab", str(cubin), "--args", str(add)]) == 2
    assert "no PTX to make a candidate of" in capsys.readouterr().err


def test_ptx_and_a_record_written_by_hand_are_timed(captures, plans, tmp_path) -> None:
    (ptx,) = record(captures, "add_kernel").glob("*.ptx")
    path = tmp_path / "launch.json"
    tensor = {"dtype": "float32", "shape": [1000]}
    path.write_text(
        json.dumps(
            {"grid": [8], "block": [128], "parameters": [tensor, tensor, tensor, {"type": "i32", "value": 1000}]}
        )
    )
    assert main(["ab", str(ptx), "--args", str(path), "--seconds", "3600"]) == 1
    assert plans[0].launch == path


def test_a_folder_is_timed_by_the_launch_that_takes_most_time(captures, plans, monkeypatch, capsys) -> None:
    folder = CaptureFolder.open(captures)
    launches = [(one.record, one.key, one.count) for name in folder.records for one in folder.launches(name)]

    def rough_times(path: Path) -> list[dict[str, Any]]:
        slow = next(one for one in launches if "copy" in one[0])
        first = {"record": slow[0], "launch": slow[1], "count": 1, "us": 90.0}
        rest = [{"record": r, "launch": k, "count": c, "us": 5.0} for r, k, c in launches if k != slow[1]]
        return [first, *rest]

    monkeypatch.setattr("tritonhook.cli.ab.rough_times", rough_times)
    assert main(["ab", str(captures), "--strip", "--seconds", "3600"]) == 1
    assert plans[0].images[0].entry == "cutlass_copy_kernel"
    shown = capsys.readouterr().out
    assert "cutlass_copy_kernel 86%" in shown
    assert "add_kernel 10%" in shown


def test_a_folder_offers_nothing_that_lost_an_autotuning(out, driver, plans, monkeypatch) -> None:
    times = iter((2.0, 1.0))

    def bench(call: Any, quantiles: Any) -> list[float]:
        for _ in range(50):
            call()
        return [next(times)] * 3

    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    x = Tensor(Storage(1 << 20, 4000))
    with tritonhook.session(out, launches=True):
        triton.autotune(configs, key=["n"], do_bench=bench)(fresh(add_kernel))[(8,)](x, x, x, 1000)
    monkeypatch.setattr("tritonhook.cli.ab.rough_times", lambda path: pytest.fail("a loser was timed"))
    assert main(["ab", str(out), "--seconds", "3600"]) == 1
    (tuning,) = CaptureFolder.open(out).tunings
    assert plans[0].launch.parent == out / "kernels" / tuning.winner / "launches"


class Gpus:
    """A driver with so many GPUs."""

    def __init__(self, count: int) -> None:
        self.device_count = lambda: count

    def init(self) -> None:
        if self.device_count() < 0:
            raise DeviceError("no GPU that this process may use: cuInit says CUDA_ERROR_NO_DEVICE")


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were torch and a GPU."""
    monkeypatch.setattr(_programs, "find_spec", lambda name: name)
    monkeypatch.setattr(_programs, "Driver", lambda: Gpus(1))


@pytest.mark.parametrize(
    ("torch", "gpus", "message"),
    [
        (None, 1, "torch is not installed"),
        ("torch", -1, "CUDA_ERROR_NO_DEVICE"),
        ("torch", 0, "CUDA_VISIBLE_DEVICES leaves no GPU"),
    ],
)
def test_a_script_is_not_run_where_nothing_could_be_timed(
    torch, gpus, message, tmp_path, plans, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(_programs, "find_spec", lambda name: torch)
    monkeypatch.setattr(_programs, "Driver", lambda: Gpus(gpus))
    script = tmp_path / "script.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert main(["ab", str(script)]) == 2
    said = capsys.readouterr().err
    assert "script.py was not run" in said
    assert message in said
    assert not (tmp_path / "ran").exists()


def test_a_function_is_no_kernel_of_the_captures_that_are_here(captures, plans, capsys, monkeypatch) -> None:
    monkeypatch.chdir(captures.parent)
    monkeypatch.setenv("TRITONHOOK_OUT", captures.name)
    record(captures, "add_kernel")
    assert main(["ab", "m:f", "--args", "x.json"]) == 2
    assert "--args: not allowed here" in capsys.readouterr().err
    assert main(["ab", "mf"]) == 2
    said = capsys.readouterr().err
    assert f"no such kernel in {captures.name};" in said and "add_kernel" in said


@pytest.mark.usefixtures("cold_start")
def test_a_script_is_run_once_and_its_main_launch_timed(tmp_path, triton_cache, plans, capsys) -> None:
    script = tmp_path / "script.py"
    script.write_text(fake_driver.SCRIPT)
    assert main(["ab", str(script), "--seconds", "3600", "--", "7"]) == 1
    assert plans[0].images[1].entry == "cutlass_add_kernel"
    assert "launched as recorded: grid 7x1x1" in capsys.readouterr().out
    script.write_text("raise SystemExit(3)")
    assert main(["ab", str(script)]) == 2
    assert "ended with status 3" in capsys.readouterr().err
    script.write_text("pass")
    assert main(["ab", str(script)]) == 2
    assert "it did not use Triton" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["m:f", "--args", "x.json"], "--args: not allowed here"),
        (["m:f", "--launch", "ab"], "--launch: not allowed here"),
        (["m:f", "g:h"], "g:h: not understood"),
        (["a.cubin", "b.cubin", "c.cubin"], "not understood"),
        (["CAPTURE", "--candidate", "m:f"], "--candidate: not allowed here"),
        (["CAPTURE", "--tune", "each"], "--tune: not allowed here"),
        (["CAPTURE", "--prefix", "add", "--to", "a=b"], "do not combine"),
        (["CAPTURE", "--strip"], "does not change 'add_kernel': it does not contain 'cutlass'"),
        (["a.cubin", "b.cubin"], "`tritonhook diff a.cubin b.cubin` compares only the code"),
        (["a.cubin", "b.cubin", "--args", "x.json"], "--args x.json: no such file or folder"),
        (["CAPTURE", "--", "--steps", "3"], "-- --steps 3: only a script takes arguments"),
        (["--from", "x.json", "--tune", "each"], "--tune: not allowed with --from"),
        (["--from", "x.json", "--processes", "0"], "--processes: not allowed with --from"),
        (["--from", "x.json", "--prefix", "q_", "--rtol", "0.1"], "--prefix, --rtol: not allowed with --from"),
        (["CAPTURE", "--rewrite", "tma-cta"], "changes nothing"),
        (["nothing_here.py"], "no such script"),
    ],
)
def test_what_would_be_ignored_is_refused(words, message, captures, plans, capsys) -> None:
    named = [str(record(captures, "add_kernel")) if word == "CAPTURE" else word for word in words]
    assert main(["ab", *named]) == 2
    assert message in capsys.readouterr().err
    assert plans == []


@pytest.mark.parametrize("name", ["add_kernel", "cutlass_add_kernel"])
def test_the_control_keeps_the_trigger_where_both_sides_keep_their_name(name: str, captures, tools) -> None:
    """CuTe kernels have it; without it ptxas would give the control a code that neither side has."""
    capture = CaptureFolder.open(captures).capture(record(captures, "add_kernel").name)
    ptx = capture.ptx.rename_entries({"add_kernel": name})
    sides = sides_of_ptx(ptx, name, CandidateChange(options=("-O0",)), tools, ("-lineinfo",))
    assert sides.reference.entry == sides.candidate.entry == name != sides.control.entry
    assert ("cutlass" in sides.control.entry) is ("cutlass" in name)


def test_a_rename_and_options_are_combined(captures, tools) -> None:
    capture = CaptureFolder.open(captures).capture(record(captures, "add_kernel").name)
    change = CandidateChange(Rename(prefix="cutlass_"), options=("-O0",))
    sides = sides_of_ptx(capture.ptx, "add_kernel", change, tools, ("-lineinfo",))
    assert (sides.reference.entry, sides.candidate.entry) == ("add_kernel", "cutlass_add_kernel")
    assert len(sides.control.entry) == len(sides.candidate.entry)
    with pytest.raises(UsageError, match="changes nothing"):
        sides_of_ptx(capture.ptx, "add_kernel", CandidateChange(rewrites=("tma-cta",)), tools, ())


def prepared(folder: Path, *words: str) -> tuple[Plan, tuple[str, ...]]:
    """What `ab` with these words would time, with notes."""
    return planned(from_namespace(Options, parser("ab").parse_args(["ab", *words])), folder)


def image(plan: Plan, side: str) -> Cubin:
    return Cubin.from_bytes(Path(next(it.path for it in plan.images if it.side == side)).read_bytes())


def test_a_recorded_kernel_is_named_and_assembled_as_asked(tmp_path: Path, tools) -> None:
    ptx, launch, version = tmp_path / "k.ptx", tmp_path / "launch.json", tools.ptxas.version
    ptx.write_text(EXP.ptx("work", **TARGET).text)
    launch.write_text(json.dumps({"grid": [8], "block": [128], "parameters": []}))
    words = (str(ptx), "--args", str(launch), "--ptxas", version)
    plan, notes = prepared(tmp_path, *words, "--options", "-O1 -v")
    assert (plan.target, plan.launch) == (str(ptx), launch)
    assert plan.names == ("work", "cutlass_work")
    assert notes == (f"assembled by ptxas {version} with -O1 -v",)
    assert image(plan, CANDIDATE).kernels == ("cutlass_work",)
    own = tools.assemble_or_raise(Ptx.from_bytes(ptx.read_bytes(), "k"), ("-O1", "-v")).cubin
    assert image(plan, REFERENCE).text("work") == own.text("work")
    assert {Path(it.path).parent for it in plan.images} == {tmp_path / "images"}
    assert prepared(tmp_path, *words, "--options=")[1] == (f"assembled by ptxas {version} with no options",)
    changed, _ = prepared(tmp_path, *words, "--candidate-options", "-O0", "--candidate-ptxas", version, "--rtol", "0.5")
    assert changed.names == ("work", "work with -O0")
    assert changed.rtol == 0.5 and image(changed, CANDIDATE).kernels == ("work",)
    with pytest.raises(UsageError, match="--entry x: no such kernel; the kernels are: work"):
        prepared(tmp_path, *words, "--entry", "x")


def test_two_files_are_assembled_each_and_the_first_is_the_reference(tmp_path: Path, tools) -> None:
    launch, version = tmp_path / "launch.json", tools.ptxas.version
    launch.write_text(json.dumps({"grid": [8], "block": [128], "parameters": []}))
    a, b = tmp_path / "a.ptx", tmp_path / "b.ptx"
    a.write_text(EXP.ptx("work", **TARGET).text)
    b.write_text(a.read_text().replace("ex2.approx", "lg2.approx"))
    words = (str(a), str(b), "--args", str(launch), "--ptxas", version, "--options", "-O1", "--entry", "work")
    plan, notes = prepared(tmp_path, *words)
    assert (plan.target, plan.names, notes) == (f"{b} against {a}", (str(a), str(b)), ())
    for side, path in ((REFERENCE, a), (CANDIDATE, b)):
        made = tools.assemble_or_raise(Ptx.from_bytes(path.read_bytes(), "k"), ("-O1",)).cubin
        assert image(plan, side).text("work") == made.text("work")
    for change in ("--strip", "--candidate-options=-O1", f"--candidate-ptxas={version}", "--rewrite=tma-cta"):
        with pytest.raises(UsageError, match="two targets are compared as they are"):
            prepared(tmp_path, *words, change)
