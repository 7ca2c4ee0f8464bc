"""Candidates: each code once, the reason for what is dropped, nothing assembled twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mma_loop import mma_loop
from shell_ptxas import shell_ptxas
from tuned import PTX, kernel_with
from tuned import code as made

from tritonhook.capture.model import Assembler
from tritonhook.capture.policy.levers import lever, levers
from tritonhook.capture.selection import Kernel, Skipped
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, ToolError
from tritonhook.ptxas.pool import Job, Outcome, ResultCache, Run, sweep
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.tuning.candidates import (
    Choice,
    Dropped,
    Subject,
    choices,
    keep_choice,
    keep_choices,
    kept_choice,
    kept_choices,
    subject_of,
    usual_levers,
)

OPTIONS = ("-lineinfo", "-v", "--gpu-name=sm_90a")


def subject(ptxas: Tool, kernel: str = "k") -> Subject:
    return Subject(kernel, mma_loop(kernel), ptxas, OPTIONS, "sm_90a")


def choose(one: Subject, text: str, folder: Path = Path(), run: Run = sweep) -> Choice:
    (found,) = choices([(one, levers(text))], run, folder)
    assert isinstance(found, Choice), found
    return found


def reasons(choice: Choice) -> dict[str, str]:
    return {dropped.lever.text: dropped.reason for dropped in choice.dropped}


def test_each_code_is_there_once(tools: Toolchain) -> None:
    found = choose(subject(tools.ptxas), "regalloc=2,name,name+O3,O1,maxnreg=32,strip")
    assert [one.text for one in found.others] == ["name", "O1", "maxnreg=32"]
    assert reasons(found) == {
        "regalloc=2": "the code of plain",
        "name+O3": "the code of name",
        "strip": "the code of plain",
    }
    assert {one.lever.text: one.equal_to for one in found.dropped} == dict(
        zip(reasons(found), ("plain", "name", "plain"), strict=True)
    )
    assert found.levers == {"name", "O1", "maxnreg=32", "regalloc=2", "name+O3", "strip"}
    forms = [found.plain.form, *(one.form for one in found.others)]
    assert len(set(forms)) == 4 and found.others[2].resources.registers <= 32 < found.plain.resources.registers


def test_equal_instructions_with_other_resources_are_another_form(tools: Toolchain) -> None:
    plain = choose(subject(tools.ptxas), "O1").plain
    for name in ("registers", "stack", "shared"):
        other = replace(plain, resources=replace(plain.resources, **{name: 250}))
        assert other.form != plain.form, name


def test_a_cubin_holds_the_code_of_its_lever_under_the_name_that_is_launched(tools: Toolchain) -> None:
    one = subject(tools.ptxas)
    found = choose(one, "name")
    (named,) = found.others
    assert (found.plain.kernel, named.kernel, named.ptxas) == ("k", "cutlass_k", "12.8.93")
    expected = tools.assemble_or_raise(named.lever.rewrites.apply(one.ptx), OPTIONS).cubin
    assert Cubin.from_bytes(named.cubin).text("cutlass_k") == expected.text("cutlass_k")
    assert Cubin.from_bytes(found.plain.cubin).text("k") != expected.text("cutlass_k")


def test_a_lever_that_hangs_or_crashes_ptxas_is_dropped_and_said(
    tools: Toolchain, tmp_path: Path, time_over: Callable[[], None]
) -> None:
    def run(jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        left = {job.key for job in jobs if "-O1" not in job.arguments}  # those that end by themselves
        assert len(left) == 4

        def take(job: Job, outcome: Outcome, cached: bool) -> None:
            left.discard(job.key)
            if not left:
                time_over()

        return sweep(jobs, 2, on_outcome=take)

    body = (
        'case "$*" in *-O1*) exec sleep 600;; *-O2*) kill -SEGV $$;; '
        '*Level=1*) echo "ptxas fatal : no" >&2; exit 1;; esac'
    )
    found = choose(subject(shell_ptxas(tmp_path, tools.ptxas, body)), "O1,O2,regalloc=1,name", run=run)
    why = reasons(found)
    assert list(why) == ["O1", "O2", "regalloc=1"] and len(set(why.values())) == 3 and why["regalloc=1"].endswith("no")
    assert [one.text for one in found.others] == ["name"]


def test_what_a_lever_lacks_is_said(tools: Toolchain, tmp_path: Path) -> None:
    found = choose(subject(tools.ptxas), "pragma,ptxas=12.0.1,tma-cta,controls=a.bin+ptxas=13.5.37", tmp_path)
    found_reasons = reasons(found)
    assert found_reasons["pragma"].startswith("pragma needs ptxas 13.3")
    assert "ptxas 12.0.1: not found" in found_reasons["ptxas=12.0.1"]
    assert found_reasons["tma-cta"] == "tma-cta is not for sm_90a"
    assert "controls" in found_reasons["ptxas=13.5.37+controls=a.bin"]
    assert found.others == ()


def test_a_kernel_that_its_own_ptxas_does_not_assemble_is_an_error_and_the_others_go_on(
    tools: Toolchain, tmp_path: Path
) -> None:
    bad = shell_ptxas(tmp_path, tools.ptxas, "exit 255")
    first, second = choices([(subject(bad), ()), (subject(tools.ptxas), levers("name"))], sweep)
    assert isinstance(first, ToolError) and str(first).startswith("k: ptxas rejects it")
    assert isinstance(second, Choice) and len(second.others) == 1


def test_the_cache_is_asked_first(tools: Toolchain, tmp_path: Path) -> None:
    ran: list[bool] = []

    def run(jobs: Iterable[Job]):
        return sweep(jobs, cache=ResultCache(tmp_path), on_outcome=lambda job, outcome, cached: ran.append(cached))

    first, second = (list(choices([(subject(tools.ptxas), levers("name,O1"))], run)) for _ in range(2))
    assert ran == [False] * 3 + [True] * 3
    assert [one.cubin for one in first[0].others] == [one.cubin for one in second[0].others]


def test_levers_that_are_tried_where_none_are_named(tools: Toolchain) -> None:
    texts = [one.text for one in usual_levers(tools.ptxas, "sm_120a")]
    assert {"name", "tma-cta", "O1", "regusage=10", "maxnreg=128"} <= set(texts)
    assert "pragma" not in texts and "ptxas=12.8.93" not in texts
    assert sum(text.startswith("name+ptxas=") for text in texts) <= 1, "the newest ptxas alone, also with the name"
    assert {one.text for one in usual_levers(tools.ptxas, "sm_120a", "cute")} == {"name", "strip"}


def test_the_ptxas_that_a_capture_names_is_run_only_where_it_is_trusted(tools: Toolchain, tmp_path: Path) -> None:
    named = shell_ptxas(tmp_path, tools.ptxas, "true")
    own = Assembler(str(named.path), "99.9.9", OPTIONS)
    capture: Any = SimpleNamespace(rewritten_from=None, lever=None, assembler=own, kernel="k", arch="sm_90a")
    capture.ptx, capture.front_end = subject(tools.ptxas).ptx, "Triton"
    assert Subject.of(capture, trust=True).ptxas.path == named.path
    captures: Any = SimpleNamespace(capture=lambda record: capture)
    kernel = Kernel("k-1", "k", "sm_90a", "Triton", "1" * 64, (), 0.25)
    skipped = subject_of(captures, kernel)
    assert isinstance(skipped, Skipped) and skipped == Skipped("k", "k-1", skipped.reason, 0.25)
    assert "is not among the ptxas found on this machine" in skipped.reason


@pytest.mark.parametrize("kernel", ["k", "cutlass_k"])
def test_the_hash_of_a_subject_does_not_have_its_name(tools: Toolchain, kernel: str) -> None:
    assert subject(tools.ptxas, kernel).ptx_sha256 == subject(tools.ptxas).ptx_sha256


# --- without ptxas -------------------------------------------------------------------------------


@pytest.fixture
def captures(tmp_path: Path) -> Any:
    capture = SimpleNamespace(ptx=PTX, kernel="k", rewritten_from=None, lever="O1")
    return SimpleNamespace(path=tmp_path / "captures", capture=lambda record: capture)


DROPPED = (Dropped(lever("O2"), "the code of O1", "O1"), Dropped(lever("strip"), "no", None))


def test_what_is_kept_is_read_back(captures: Any) -> None:
    kernel, choice = kernel_with(made("O1", b"one"), plain=made(None, b"own"), dropped=DROPPED)
    choice = replace(choice, subject=replace(choice.subject, options=("-v",)))
    assert kept_choice(captures, kernel) is None and kept_choices(captures, kernel) is None
    keep_choice(captures.path, kernel, choice)
    path, cubins = captures.path / "tuning" / "k.json", captures.path / "tuning" / "cubins"
    files = {file.read_bytes(): file.name for file in cubins.iterdir()}
    assert set(files) == {b"own", b"one"}
    own = Tool(Path("ptxas"), "12.8.93", "kept")
    expected = replace(choice, subject=Subject("k", PTX, own, ("-v",), "sm_90a", "Triton"))
    assert kept_choice(captures, kernel) == kept_choices(captures, kernel) == expected
    assert kept_choice(captures, replace(kernel, ptx="2" * 64)) is None, "it is of another PTX"

    (cubins / files[b"one"]).write_bytes(b"other")
    with pytest.raises(CaptureError, match=f"{files[b'one']} is damaged; make it again with"):
        kept_choice(captures, kernel)
    (cubins / files[b"one"]).unlink()
    with pytest.raises(CaptureError, match=f"{files[b'one']}: cannot be read: .*; make it again with"):
        kept_choice(captures, kernel)
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    assert kept_choice(captures, kernel) is None
    path.write_text("{")
    with pytest.raises(CaptureError, match=f"^{path}: .*; make it again with"):
        kept_choice(captures, kernel)
    path.unlink()
    path.mkdir()
    with pytest.raises(CaptureError, match=f"^{path}: cannot be written: "):
        keep_choice(captures.path, kernel, choice)


def test_configurations_with_levers_are_kept_beside_the_kernel(captures: Any) -> None:
    others = {"B": kernel_with(made("O1", b"b1"), plain=made(None, b"b"))[1], "C": kernel_with(name="c")[1]}
    kernel, choice = kernel_with(made("name", b"n"), siblings=others)
    texts = {"B": PTX.text.replace("ret;", "exit;"), "C": PTX.text.replace("ret;", "trap;")}
    siblings = tuple(
        replace(one, subject=replace(one.subject, ptx=type(PTX)(texts[name])))
        for name, one in zip(others, choice.siblings, strict=True)
    )
    records = tuple(
        replace(kernel, record=f"record-{name}", ptx=one.subject.ptx_sha256, config=name, launches=one.launches)
        for name, one in zip(others, siblings, strict=True)
    )
    kernel, choice = replace(kernel, siblings=records), replace(choice, siblings=siblings)
    keep_choices(captures.path, kernel, choice)
    assert {one.name for one in captures.path.joinpath("tuning").glob("*.json")} == {"k.json", "record-B.json"}
    found = kept_choices(captures, kernel)
    assert found is not None and found.others == choice.others
    assert [(one.plain.config, one.others, one.launches) for one in found.siblings] == [
        ("B", siblings[0].others, siblings[0].launches)
    ], "of C neither levers were kept nor the capture is whole"
