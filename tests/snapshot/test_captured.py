"""Which kernels of a capture folder count: those of the latest run of a command; and kernels assembled again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_ptxas import PTX
from repository import GOLDEN

import tritonhook
from tests.cubin.test_resources import module as spilling
from tritonhook._util.variables import RUN_ID
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.model import write_policy
from tritonhook.cli import main
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import summarise_image
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.pool import Limits
from tritonhook.ptxas.result_cache import Outcome, OutcomeKind
from tritonhook.ptxas.tool import Tool, available_ptxas
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.snapshot.assembled import Task, all_drawn, codes_of, disassembler, recheck
from tritonhook.snapshot.changes import Change
from tritonhook.snapshot.crossed import crossed
from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts
from tritonhook.snapshot.spills import SourceLine, spill_lines

LATER, BEFORE = 0.0, -3600.0  # when a run began, in seconds from the moment in which it meets its kernels


@pytest.fixture
def captured(compile_now: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Capture in a run of a command, which began some seconds from now. edited: whether the source of the addition has
    changed. Returns the folder."""
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")

    def run(command: str | None, begins_s: float, edited: bool, folder: str = "captures") -> str:
        monkeypatch.setattr("tritonhook.capture.store.writer._process_ns", time.time_ns())  # another process
        monkeypatch.delenv(RUN_ID, raising=False)
        if command is not None:
            monkeypatch.setenv(RUN_ID, f"{command}-{time.time_ns() + int(begins_s * 1e9)}")
        return str(compile_now(folder, adds=kernels.other_add_kernel() if edited else None))

    return run


def test_only_what_the_latest_run_of_a_command_met_counts(
    captured: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    lock = str(tmp_path / "tritonhook.lock")
    folder = captured("a" * 16, LATER, edited=False)
    assert main(["lock", folder, "-o", lock]) == 0
    captured("a" * 16, LATER, edited=True)
    capsys.readouterr()
    assert main(["check", lock, folder, "--fail-on", "code"]) == 1
    said = capsys.readouterr().out
    assert "1 changed" in said and "new" not in said
    note = f"{folder}: 1 kernel of earlier runs left out; `tritonhook show {folder} --all` lists all"
    assert note in said
    assert main(["show", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [note]
    write_policy(tmp_path / "tritonhook.toml", ())
    assert main(["tune", "--check", "-o", str(tmp_path / "tritonhook.toml"), folder]) == 0
    assert note in capsys.readouterr().out
    assert shown(capsys, folder) == shown(capsys, folder, "--run", "2") != shown(capsys, folder, "--run", "1")
    assert len(shown(capsys, folder, "--all")) == 3
    assert main(["diff", "--previous", folder]) == 1
    assert f"{folder}@1 → {folder}@2" in capsys.readouterr().out
    assert main(["diff", f"{folder}@2", f"{folder}@2"]) == 0
    assert main(["show", folder, "--run", "3"]) == 2 and "its runs are 1 to 2" in capsys.readouterr().err
    captured("a" * 16, LATER, edited=False)
    assert main(["check", lock, folder]) == 0


def shown(capsys: pytest.CaptureFixture, *words: str) -> dict[str, str]:
    """The hash of each kernel by its name and id, as `show` lists them."""
    capsys.readouterr()
    assert main(["show", *words, "--json"]) == 0
    return {kernel["id"]: kernel["hash"] for kernel in json.loads(capsys.readouterr().out)["kernels"]}


def test_one_kernel_is_compared_with_that_of_the_run_before(
    captured: Callable[..., str], capsys: pytest.CaptureFixture
) -> None:
    folder = captured("a" * 16, LATER, edited=False)
    captured("b" * 16, LATER, edited=False)  # another command
    capsys.readouterr()
    assert main(["diff", "--previous", folder]) == 2
    assert "no earlier run of the same command" in capsys.readouterr().err
    first = shown(capsys, folder)
    captured("a" * 16, LATER, edited=True)
    (new,) = shown(capsys, folder, "--run", "3").keys() - first
    assert main(["diff", "--previous", f"{folder}/{new}", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "diff" and document["a"]["name"] == document["b"]["name"] == "add_kernel"
    assert document["a"]["sha256"] != document["b"]["sha256"]
    assert main(["diff", "--previous", f"{folder}/{new}", "x.ptx"]) == 2
    assert "--previous: give one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "edited", "begins_s"),
    [
        (["a" * 16], "b" * 16, LATER),  # two programs
        ([None], None, LATER),  # two sessions of Python, perhaps of one program
        ([None], "a" * 16, LATER),
        (["a" * 16, "b" * 16], "a" * 16, LATER),  # another program has it still
        (["a" * 16, None], "a" * 16, LATER),
        (["a" * 16], "a" * 16, BEFORE),  # two nodes at the same time: the second run began before the first met it
    ],
)
def test_all_that_may_be_part_of_one_program_counts(
    captured: Callable[..., str], first: list, edited: Any, begins_s: float, capsys: pytest.CaptureFixture
) -> None:
    alone = captured(None, LATER, edited=False, folder="alone")
    for command in first:
        captured(command, LATER, edited=False)
    folder = captured(edited, begins_s, edited=True)
    capsys.readouterr()
    assert main(["diff", alone, folder]) == 1
    said = capsys.readouterr().out
    assert "1 new" in said and "left out" not in said


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("add_kernel.ptx", b""),
        ("add_kernel.ptx", b".version 8.7\n.target sm_90a\n"),
        ("add_kernel.cubin", b"\x7fELF"),
        ("add_kernel.cubin", None),  # another kernel's
    ],
)
@pytest.mark.parametrize("verb", ["lock", "diff"])
def test_a_damaged_file_is_named_and_nothing_is_written(
    verb: str, file: str, content: bytes | None, compiled: Callable[..., Path], capsys: pytest.CaptureFixture
) -> None:
    folder = compiled("captures")
    (damaged,) = folder.glob(f"kernels/*/{file}")
    (other,) = folder.glob("kernels/*/gemm_kernel.cubin")
    damaged.write_bytes(other.read_bytes() if content is None else content)
    lock = folder.parent / "tritonhook.lock"
    capsys.readouterr()
    assert main(["lock", str(folder), "-o", str(lock)] if verb == "lock" else ["diff", str(folder), str(folder)]) == 2
    assert f"{damaged.parent}: damaged: " in capsys.readouterr().err
    assert not lock.exists()


def test_an_edit_of_several_configurations_leaves_each_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")
    monkeypatch.chdir(tmp_path)

    def run(warps: int, *blocks: int) -> None:
        monkeypatch.setattr("tritonhook.capture.store.writer._process_ns", time.time_ns())  # another process
        monkeypatch.setenv(RUN_ID, f"{'a' * 16}-{time.time_ns()}")
        with tritonhook.session("captures"):
            for block in blocks:
                kernels.compile_kernel(block=block, num_warps=warps)

    run(4, 128, 256)
    assert main(["lock", "captures"]) == 0
    run(8, 128, 256)
    for words in (["diff", "--previous", "captures"], ["check", "captures"]):  # one pairing for both
        capsys.readouterr()
        assert main(words) == 1
        said = capsys.readouterr().out
        assert "2 kernels changed by num_warps=4 -> num_warps=8" in said and "new" not in said and "gone" not in said
    assert main(["check", "captures", "--fail-on", "new"]) == 1
    capsys.readouterr()
    assert main(["diff", "--previous", "captures", "--filter", "BLOCK=256"]) == 1  # what tells it from those left out
    assert "add_kernel[BLOCK=256]" in capsys.readouterr().out
    assert main(["diff", "--previous", "captures/add_kernel[BLOCK=256]"]) == 1
    assert "add_kernel[num_warps=4] → add_kernel[num_warps=8]" in capsys.readouterr().out
    run(8, 128, 512)  # 256 became 512, as 128 is still there
    capsys.readouterr()
    assert main(["diff", "--previous", "captures/add_kernel[BLOCK=512]"]) == 1
    assert "add_kernel[BLOCK=256] → add_kernel[BLOCK=512]" in capsys.readouterr().out


# --- assembling again, without a compiler ---------------------------------------------------------


FIGURE: dict[str, int | None] = dict.fromkeys(FIGURES, 1)
GOLDEN_IMAGE = (GOLDEN / "sm_90a.module.cubin").read_bytes()
SUMMARY = summarise_image(GOLDEN_IMAGE, {})
ENTRY = SUMMARY.kernels[0].kernel


def giving(*programs: str | None) -> Any:
    """A run of ptxas that gives these programs by turns; None: it refuses the PTX."""

    def run(jobs: Any) -> Any:
        for job in jobs:
            program = programs[job.draw % len(programs)]
            if program is None:
                yield job, Outcome(OutcomeKind.REJECTED, "no such opcode", 255, None, 0.1, 0.1, Limits())
            else:
                image = replace(SUMMARY, program_sha256=program)
                yield job, Outcome(OutcomeKind.ASSEMBLED, "", 0, None, 0.1, 0.1, Limits(), image, GOLDEN_IMAGE)

    return run


def task_for(program: str, **of_lock: Any) -> Task:
    codes = (replace(SUMMARY, program_sha256=program).code_hash(ENTRY),)
    known: dict[str, Any] = {
        "codes": codes,
        "ptxas": "12.8.93",
        "options": ("-v",),
        "figures": FIGURE | {"instructions": 5},
        "classes": {"tensor": 3},
    }
    locked = KernelFacts(Identity("k", "sm_90a", "Triton"), ENTRY, {"ptx": "a"}, "a", **(known | of_lock))
    ptx = PTX.format(name=ENTRY, target="sm_90a")
    return Task(locked, ptx, Tool(Path("/bin/sh"), "12.8.93", "never run"), ("-v",))


def test_each_code_that_draws_give_is_told_once() -> None:
    """Instructions are the lock's where the code is its own, else those of the image."""
    tasks = [task_for("a"), task_for("c")]
    first, second = all_drawn(tasks, giving("a", "b", "a", None), disassembler(), runs=4)
    assert [facts.codes for facts in first] == [facts.codes for facts in second]
    own, other, refused = first
    assert own.codes == tasks[0].locked.codes and len({*own.codes, *other.codes}) == 2
    assert (own.figures["instructions"], own.classes) == (5, {"tensor": 3})
    (sass,) = disassembler()([(Cubin.from_bytes(GOLDEN_IMAGE), ENTRY)])
    assert other.figures["instructions"] == second[0].figures["instructions"] == len(sass.instructions)
    assert other.classes and other.classes != {"tensor": 3}
    assert (own.ptxas, own.options, own.failure, own.loaded != {}) == ("12.8.93", ("-v",), "", True)
    assert (refused.codes, refused.figures) == ((), {}) and refused.failure == "ptxas 12.8.93: rejected: no such opcode"
    uncounted = all_drawn(tasks, giving("a", "b"), runs=2)
    assert [facts.figures["instructions"] for facts in uncounted[0]] == [None, None]
    assert codes_of(tasks, giving("b", "a", None)) == [tuple(sorted({*own.codes, *other.codes}))] * 2


@pytest.mark.parametrize(
    ("programs", "of_lock", "settles"),
    [
        (("a",), {}, True),
        ((*"bbb", "a"), {}, True),
        ((*"bbbbbbbb", "a"), {}, True),  # the last draw
        ((*"bbbbbbbbb", "a"), {}, False),
        (("b", "a"), {"ptxas": "13.5.37"}, False),  # another one made the lock: no draw
        (("b", "a"), {"options": ("-O1",)}, False),
        ((None, "a"), {}, False),
    ],
)
def test_a_code_that_some_draw_gives_again_is_no_change(
    programs: tuple[str | None, ...], of_lock: dict[str, Any], settles: bool
) -> None:
    task = task_for("a", **of_lock)
    (now,) = recheck([task], giving(*programs), disassembler())
    assert (now.codes == task.locked.codes) is settles
    assert bool(now.failure) is (programs[0] is None)


def test_of_several_codes_in_a_lock_the_first_that_is_drawn_counts() -> None:
    codes = task_for("a").locked.codes + task_for("c").locked.codes
    tasks = [task_for("a", codes=codes), task_for("d"), task_for("a", codes=codes, dynamic_shared=64)]
    found = recheck(tasks, giving("b", "c", "d", "a"), disassembler())
    assert [facts.codes for facts in found] == [codes[1:], tasks[1].locked.codes, codes[1:]]
    shared = [facts.figures["shared"] for facts in found]
    assert shared[0] is not None and shared[2] is not None and shared[2] > shared[0]


def kernel_of(ptx: str, ptxas: str, code: str) -> KernelFacts:
    made = Identity("k", "sm_90a", "Triton"), ENTRY, {"ptx": ptx}, ptx, ptxas, ("-v",), (code,)
    return KernelFacts(*made, FIGURE)


def test_builds_of_the_new_ptx_and_of_the_new_ptxas_tell_which_changed_the_code() -> None:
    """The code is that of the PTX and the version that are given to a stand-in for ptxas."""
    versions = sorted({tool.version for tool in available_ptxas()})[:2]
    if len(versions) < 2:
        pytest.skip("needs two versions of ptxas")

    def code_of(ptx: str, version: str) -> tuple[str]:
        return (replace(SUMMARY, program_sha256=f"{ptx} {version}").code_hash(ENTRY),)

    def run(jobs: Any) -> Any:
        for job in jobs:
            image = replace(SUMMARY, program_sha256=f"{job.ptx[-1]} {job.ptxas.version}")
            yield job, Outcome(OutcomeKind.ASSEMBLED, "", 0, None, 0.1, 0.1, Limits(), image, GOLDEN_IMAGE)

    old, new = kernel_of("a", versions[0], "1"), kernel_of("b", versions[1], "2")
    gone, lost = replace(new, ptxas="9.9.9"), replace(new, stages={"ptx": "lost"})
    text = PTX.format(name=ENTRY, target="sm_90a")
    changes = [Change(old, old), Change(old, new), Change(old, gone), Change(old, lost)]
    told, notes = crossed(
        changes, lambda one: None if one.stages["ptx"] == "lost" else f"{text}// {one.stages['ptx']}", run
    )
    assert [change.crossed is not None for change in told] == [False, True, False, False]
    made = told[1].crossed
    assert made is not None and made.new_ptx.codes == code_of("b", versions[0])
    assert made.new_ptxas.codes == code_of("a", versions[1])
    assert len(notes) == 2 and "ptxas add 9.9.9" in notes[0] and "the PTX was not kept" in notes[1]


def test_the_line_of_a_kernel_is_that_with_most_spills(tools: Toolchain) -> None:
    """Only lines of files that count are taken; without spills it is the first line of one."""
    text = (
        spilling(100).text.replace("ld.param.u64", ".loc 1 7 1\nld.param.u64", 1).replace("\nL:", "\n.loc 2 40 1\nL:")
    )
    ptx = Ptx(text + '.file 1 "/own.py"\n.file 2 "/lib.py"\n')
    few, enough = (
        Capture("k", "0", "sm_90a", {Stage.CUBIN: tools.assemble_or_raise(ptx, ("-lineinfo", limit)).cubin.data})
        for limit in ("--maxrregcount=32", "--maxrregcount=255")
    )
    assert spill_lines([few, enough], lambda file: True) == [SourceLine("/lib.py", 40), SourceLine("/lib.py", 40)]
    assert spill_lines([few], lambda file: file == "/own.py") == [SourceLine("/own.py", 7)]
    assert spill_lines([few], lambda file: False) == [None]
