"""The steps of `tritonhook verify`: which gets what, in which order. Other files test what each step does."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_calls import Calls, options, refused, temporary

from tritonhook.capture.selection import Selected, Skipped
from tritonhook.cli import verify
from tritonhook.cli.verify import targets
from tritonhook.errors import DeviceError, TritonHookError
from tritonhook.ptxas.tool import Tool
from tritonhook.verify.differential import Recipe
from tritonhook.verify.judgement import Latitude


def tool(version: str) -> Tool:
    return Tool(Path(f"/{version}/ptxas"), version, "added")


def test_each_version_that_is_asked_for_is_a_build() -> None:
    own, older, newer = tool("12.9.86"), tool("12.8.93"), tool("12.10.1")
    spare = Recipe(older, ("-O0",))
    usual = [
        Recipe(own, ("-O3",), others=(spare,)),
        Recipe(own, ("-O0",)),
        Recipe(newer, ("-O3",), others=(Recipe(older, ("-O3",)),)),
        Recipe(own, ("-O3",), as_used=True),
    ]
    assert targets._against(usual, own) == (*usual[:2], Recipe(older, ("-O3",)), Recipe(newer, ("-O3",)), usual[3])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("m:f",), ["record_launches", "_of_captures"]),
        (("s.py", "a"), ["record_launches", "_of_captures"]),
        (("caps",), ["_of_captures"]),
        (("caps", "--args", "x"), ["_of_file"]),
        (("k.ptx",), ["_of_file"]),
        (("a", "b"), ["_of_cubins"]),
    ],
)
def test_what_verify_takes_for_a_target(calls: Calls, words: tuple[str, ...], expected: list[str]) -> None:
    Path("caps", "index").mkdir(parents=True)
    Path("a").touch()
    Path("b").touch()
    calls.answer(targets, record_launches=None, _of_captures=["one", "two"], _of_cubins="one", _of_file="one")
    asked, folder = options("verify", *words), Path("folder")
    found = list(targets.subjects_of(asked, folder))
    assert found == (["one", "two"] if "_of_captures" in expected else ["one"])
    assert [call[0] for call in calls] == expected
    trusted = options("verify", *words, "--trust")
    assert (
        calls[-1][1:]
        == {
            "m:f": (trusted, folder / "captures"),
            "s.py": (trusted, folder / "captures"),
            "caps": (asked, "caps" if "--args" in words else Path("caps")),
            "k.ptx": (asked, "k.ptx"),
            "a": (asked, "a", "b", folder),
        }[words[0]]
    )


def test_verify_records_a_program_with_its_arguments(calls: Calls) -> None:
    for name in "abc":
        Path(name).touch()
    calls.answer(targets, record_launches=None, _of_captures=[])
    list(targets.subjects_of(options("verify", "s.py", "a", "--", "--steps", "3"), Path("folder")))
    recorded = ("record_launches", ["s.py", "a", "--steps", "3"], Path("folder/captures"), "nothing was verified")
    assert calls[0] == recorded

    def given(*words: str) -> Any:
        return list(targets.subjects_of(options("verify", *words), Path("folder")))

    assert refused(given, "s.py", "--args", "x") == "--args: not allowed here: s.py is run to record its launches"
    said = refused(given, "a", "b", "c")
    assert said == "b c: not understood; give one target, two builds of one kernel, or a script"


def test_verify_without_a_gpu_wants_numpy_and_captures(calls: Calls) -> None:
    remedy = "verify can emulate kernels with numpy: `pip install 'tritonhook[emulate]'`. `tritonhook verify --known "
    for reason, numpy, script in (("no GPU", "no GPU", "no GPU"), (None, "numpy is not installed", "--cpu")):
        calls.answer(targets, find_spec=None, why_no_gpu=reason)
        said = refused(targets.check_cpu, options("verify", "k.ptx"), kind=DeviceError)
        assert said == f"{numpy}; {remedy}FILE|CAPTURES` needs neither"
        calls.answer(targets, find_spec="numpy")
        for program in ("s.py", "m:f"):
            assert refused(targets.check_cpu, options("verify", program)) == (
                f"{script}: the launches of {program} come from a dry run: "
                f"`tritonhook run --arch sm_90a {program}`, then `tritonhook verify tritonhook-captures`"
            )
    targets.check_cpu(options("verify", "k.ptx"))
    assert calls[-1] == ("find_spec", "numpy")


def test_every_kernel_of_a_folder_is_run_or_has_a_reason(calls: Calls) -> None:
    folder: Any = SimpleNamespace(path=Path("caps"))
    skipped = Skipped("k", "r", "why")
    chosen = [object.__new__(Selected), skipped]
    calls.answer(targets, captures_at=folder, selected=lambda *given, dry: chosen, _of_record="of a record")
    asked = options("verify", "caps", "--entry", "k", "--launch", "key", "--cpu")
    assert list(targets._of_captures(asked, Path("caps"))) == ["of a record", skipped]
    assert calls == [
        ("captures_at", Path("caps")),
        ("selected", folder, "k", "key", {"dry": True}),
        ("_of_record", asked, folder, chosen[0]),
    ]
    del chosen[0]
    for words, what in ((("--entry", "k"), "no kernel 'k'"), ((), "no kernels")):
        said = refused(list, targets._of_captures(options("verify", "caps", *words), Path("caps")))
        assert said == f"caps: {what} in this capture folder"


def test_a_record_without_a_launch_or_that_cannot_be_read_is_skipped(calls: Calls, monkeypatch) -> None:
    folder: Any = SimpleNamespace(path=Path("caps"))

    def chosen(*paths: str, unrecorded: str = "") -> Any:
        launches = [SimpleNamespace(path=path) for path in paths]
        capture = SimpleNamespace(kernel="k")
        return SimpleNamespace(capture=capture, record="r", launches=launches, unrecorded=unrecorded)

    def fail(*given: Any) -> Any:
        raise TritonHookError("damaged")

    asked = options("verify", "caps")
    calls.answer(targets, load_input="given", _subject="subject")
    assert targets._of_record(asked, folder, chosen("first", "second")) == "subject"
    assert calls == [("load_input", "caps/kernels/r", None), ("_subject", asked, "given", "first")]
    record_it = "record with `tritonhook run --launches`, or give one with --args and --entry"
    for unrecorded, reason in (("", f"no launch of it was recorded; {record_it}"), ("why", "why")):
        assert targets._of_record(asked, folder, chosen(unrecorded=unrecorded)) == Skipped("k", "r", reason)
    calls.answer(targets, _subject=fail)
    assert targets._of_record(asked, folder, chosen("first")) == Skipped("k", "r", "damaged")


def test_a_subject_has_the_recipes_of_its_ptx(calls: Calls) -> None:
    given: Any = SimpleNamespace(label="k.ptx", ptx="ptx", entry="k")
    calls.answer(targets, load_input=given, launch_of=Path("caps/launch.json"), chosen_ptxas="own", recipes=("r",))
    calls.answer(
        targets,
        chosen_arguments=("-O1",),
        latitude_of="latitude",
        find_ptxas=lambda version: version.upper(),
        _against=("a",),
    )
    calls.answer(targets, available_ptxas=iter("xy"), read_launch="launch")
    words = ("--args", "x", "--launch", "key", "--entry", "k", "--ptxas", "1.2", "--options", "-O1", "--trust")
    asked = options("verify", "k.ptx", *words)
    made = targets.VerifySubject("k", "launch", Path("caps"), "latitude", "ptx", ("r",))  # type: ignore[arg-type]
    assert targets._of_file(asked, "k.ptx") == made
    assert calls == [
        ("load_input", "k.ptx", "k"),
        ("launch_of", "x", "key", ["k.ptx"], {"dry": False}),
        ("chosen_ptxas", "1.2", True, [given]),
        ("chosen_arguments", "-O1", [given]),
        ("latitude_of", "ptx"),
        ("available_ptxas",),
        ("recipes", "own", ("-O1",), "latitude", ["x", "y"]),
        ("read_launch", Path("caps/launch.json")),
    ]
    calls.clear()
    found = targets._of_file(options("verify", "k.ptx", "--against", "a,b", "--cpu"), "k.ptx")
    assert found.recipes == ("a",) and calls[1] == ("launch_of", None, None, ["k.ptx"], {"dry": True})
    assert calls[5:8] == [
        *(("find_ptxas", "a"), ("find_ptxas", "b")),
        ("recipes", "own", ("-O1",), "latitude", ["A", "B"]),
    ]
    given.ptx = None
    said = refused(targets._of_file, asked, "k.ptx")
    assert said == "k.ptx: no PTX to assemble again; give a second build, to compare the two as they are"


def test_two_builds_are_run_as_they_are(calls: Calls) -> None:
    cubin = SimpleNamespace(data=b"data")
    first: Any = SimpleNamespace(label="a", entry="ka", ptx=None, cubin=cubin, ptxas="1.2")
    second: Any = SimpleNamespace(label="b", entry="kb", ptx="ptx", cubin=None, ptxas="1.3")
    made = SimpleNamespace(assemble_or_raise=calls.standing_for("assemble", SimpleNamespace(cubin=cubin)))
    calls.answer(targets, launch_of=Path("caps/launch.json"), load_pair=(first, second), toolchain_of=made)
    calls.answer(targets, chosen_ptxas="own", chosen_arguments=("-O1",), read_launch="launch")
    calls.answer(targets, latitude_of=Latitude(approximate=("ex2",)))
    Path("a").touch()
    Path("b").touch()
    asked = options("verify", "a", "b", "--entry", "k", "--args", "x", "--launch", "key", "--cpu", "--options", "-O2")
    folder = Path("new/folder")
    builds = (targets.Build("a", folder / "0.cubin", "ka", "1.2"), targets.Build("b", folder / "1.cubin", "kb", "1.3"))
    latitude = Latitude(contracted=True, approximate=("ex2",))
    subject = targets.VerifySubject("ka", "launch", Path("caps"), latitude, None, (), builds)  # type: ignore[arg-type]
    assert targets._of_cubins(asked, "a", "b", folder) == subject
    assert [build.path.read_bytes() for build in builds] == [b"data", b"data"]
    assert calls == [
        ("launch_of", "x", "key", ["a", "b"], {"dry": True}),
        ("load_pair", "a", "b", "k"),
        ("chosen_ptxas", None, False, [second]),
        ("toolchain_of", "own"),
        ("chosen_arguments", "-O2", [second]),
        ("assemble", "ptx", ("-O1",)),
        ("latitude_of", "ptx"),
        ("read_launch", Path("caps/launch.json")),
    ]
    second.ptx, second.cubin = None, cubin
    found = targets._of_cubins(asked, "a", "b", folder)
    assert found.latitude == Latitude(contraction=True, contracted=True)
    assert found.build(Path(), None) == targets.Built(builds, (), ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["SAME"], 0),
        (["SAME", "SKIPPED"], 0),
        (["SKIPPED", "NOT_UNDERSTOOD"], 2),
        (["NOT_UNDERSTOOD"], 2),
        ([], 2),
        (["DIFFERENT", "SKIPPED"], 1),
        (["SAME", "CRASH"], 1),
    ],
)
def test_verify_gives_what_was_found(calls: Calls, verdicts: list[str], code: int) -> None:
    found = tuple(SimpleNamespace(verdict=verify.Verdict[name]) for name in verdicts)
    executor = SimpleNamespace(device="GPU")
    temporary(calls, verify)
    calls.answer(verify, why_no_gpu=None, check_cpu=None, _runner=nullcontext(executor), _verified=found, give=None)
    calls.answer_made("tritonhook.report.results.verification.Verification", "result")
    Path("a").touch()
    Path("b").touch()
    asked = options("verify", "a", "b")
    assert verify.run(asked) == code
    steps = [
        ("_runner", asked),
        ("_verified", asked, Path("/tmp/tritonhook-verify-"), executor),
        ("Verification", "a b", "GPU", found),
        ("give", asked.results, "result"),
    ]
    assert calls == [("why_no_gpu",), *steps]
    calls.clear()
    calls.answer(verify, why_no_gpu="no GPU")
    on_cpu = options("verify", "a", "b", "--cpu")
    assert verify.run(asked) == code
    assert calls[:3] == [("why_no_gpu",), ("check_cpu", on_cpu), ("_runner", on_cpu)]


def test_what_runs_the_kernels_has_the_limit_asked_for(calls: Calls) -> None:
    calls.answer(verify, Executor=None, CpuExecutor=None)
    for words in ((), ("--limit", "7"), ("--cpu",), ("--cpu", "--limit", "70", "--ctas", "3")):
        for most in (None, 5.0, 100.0):
            verify._runner(options("verify", "k.ptx", *words), most)
    on_gpu, on_cpu, ctas = verify.LIMIT_S, verify.CPU_LIMIT_S, targets.CTAS
    assert calls == [
        *(("Executor", limit) for limit in (on_gpu, min(on_gpu, 5), min(on_gpu, 100), 7, 5, 7)),
        *(("CpuExecutor", ctas, limit) for limit in (on_cpu, min(on_cpu, 50), min(on_cpu, 1000))),
        *(("CpuExecutor", 3, limit) for limit in (70, 50, 70)),
    ]
    for words in (("--runs", "0"), ("--ctas", "0"), ("--limit", "0"), ("--limit", "nan")):
        said = refused(verify.run, options("verify", "k.ptx", *words))
        assert said == "--runs, --ctas and --limit must be positive"
