"""`tritonhook lock`, `check`, and `diff` of two capture folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import failing

import tritonhook
from tests.snapshot.conftest import Compile, captured_before, compile_now, compiled  # noqa: F401  (fixtures)
from tritonhook.cli import main
from tritonhook.snapshot.lockfile import kept_ptx, read_lock, write_lock


@pytest.fixture
def locked(here: Path, compiled: Compile, capsys: pytest.CaptureFixture) -> Path:  # noqa: F811
    compiled("old")
    assert main(["lock", "old"]) == 0
    assert "wrote tritonhook.lock: 2 kernels; tritonhook.lock.d has the PTX of 2" in capsys.readouterr().out
    return here / "tritonhook.lock"


def test_without_a_place_the_folder_of_run_is_locked(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("tritonhook-captures")
    assert main(["lock"]) == 0
    assert "wrote tritonhook.lock: 2 kernels" in capsys.readouterr().out


def test_two_folders_are_compared_kernel_by_kernel(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("old")
    compiled("new", ptx_options="-O1")
    capsys.readouterr()
    assert main(["diff", "old", "old"]) == 0
    assert "2 kernels, all with the same code" in capsys.readouterr().out
    assert main(["diff", "old", "new"]) == 1
    said = capsys.readouterr().out
    assert "2 kernels changed by ptxas options" in said or "1 kernel changed by ptxas options" in said
    assert "gemm_kernel" in said
    assert main(["diff", "old", "new", "--fail-on", "new,gone"]) == 0
    assert main(["diff", "old", "new", "--fail-on", "code"]) == 1
    assert "fails: gemm_kernel sm_90a: code" in capsys.readouterr().out


def test_source_and_options_that_both_changed_are_told_apart(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    """The kernel is assembled four times: old and new PTX with old and new options."""
    from triton_kernels import other_add_kernel

    compiled("old")
    compiled("new", adds=other_add_kernel(), ptx_options="-O0")
    compiled("only options", ptx_options="-O0")
    capsys.readouterr()
    assert main(["lock", "old"]) == 0
    for words in (("diff", "old", "new"), ("check", "tritonhook.lock", "new")):
        capsys.readouterr()
        assert main([*words, "--json"]) == 1
        kernels = {kernel["kernel"]: kernel for kernel in json.loads(capsys.readouterr().out)["kernels"]}
        first = kernels["add_kernel"]["builds"][0]
        assert first["figure"] == "instructions" and first["old"] == kernels["add_kernel"]["old"]["instructions"]
        assert main(["diff", "old", "only options", "--json"]) == 1
        alone = {kernel["kernel"]: kernel for kernel in json.loads(capsys.readouterr().out)["kernels"]}
        assert first["new_ptxas"] == alone["add_kernel"]["new"]["instructions"] and first["by"]
        assert "builds" not in kernels["gemm_kernel"]  # its PTX is equal
    assert main(["diff", "old", "new"]) == 1
    assert "Changed by the PTX or by ptxas" in capsys.readouterr().out


def test_the_document_of_two_folders(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    import triton_kernels as kernels

    compiled("old")
    compiled("new", adds=kernels.multiply_kernel)
    capsys.readouterr()
    assert main(["diff", "old", "new", "--json", "--html", "page.html"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "kernel changes"
    assert document["counts"] == {
        "same": 1,
        "changed": 0,
        "new": 1,
        "gone": 1,
        "not known": 0,
        "not assembled": 0,
        "worse": 0,
    }
    (gone,) = [kernel for kernel in document["kernels"] if kernel["status"] == "gone"]
    assert (gone["kernel"], gone["new"], gone["old"]["registers"]) == ("add_kernel", None, 14)
    assert "multiply_kernel" in (here / "page.html").read_text()


def test_a_lock_is_the_same_for_every_compile(locked: Path, compile_now: Compile, capsys) -> None:  # noqa: F811
    compile_now("again")
    assert main(["lock", "again", "-o", "again.lock"]) == 0
    first, again = (Path(name).read_text().splitlines()[1:] for name in ("tritonhook.lock", "again.lock"))
    assert first[1:] == again[1:]
    assert main(["check", "tritonhook.lock", "again"]) == 0
    assert main(["check", "again"]) == 0
    assert "tritonhook.lock: exists; pass --force" in failing_after(capsys, "lock", "again")


def failing_after(capsys, *words: str) -> str:
    capsys.readouterr()
    return failing(capsys, *words)


def test_what_the_captures_lack_is_said(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    """As where the disk was full: else the kernel would only be missing, or gone."""
    compiled("whole")
    from triton_kernels import compile_gemm

    import tritonhook

    lost = "not all kernels are captured: OSError: No space left on device"
    with tritonhook.session(out="part") as session:
        compile_gemm()
        session.note(lost)
    assert main(["lock", "part"]) == 0 and f"- part: {lost}" in capsys.readouterr().out
    assert main(["lock", "whole", "--force"]) == 0 and lost not in capsys.readouterr().out
    for words in (("check", "tritonhook.lock", "part"), ("diff", "whole", "part")):
        assert main([*words, "--json"]) == 1
        assert f"part: {lost}" in json.loads(capsys.readouterr().out)["notes"]


def test_a_lock_is_checked_without_captures(locked: Path, capsys, tools) -> None:
    capsys.readouterr()
    assert main(["check", "tritonhook.lock"]) == 0
    assert "2 kernels, all with the same code" in capsys.readouterr().out
    assert main(["check", "tritonhook.lock", "--ptxas", "12.8.93", "--options", "-O1 -v"]) == 1
    assert "assembled by ptxas 12.8.93 -O1 -v" in capsys.readouterr().out
    assert main(["check", "tritonhook.lock", "--options=-O1 -v", "--fail-on", "gone"]) == 0


def test_a_ptxas_that_does_not_take_the_target_fails_every_rule_on_the_code(
    locked: Path, tmp_path: Path, capsys
) -> None:
    from fake_ptxas import ANSWER, make_ptxas

    refusal = "echo \"ptxas fatal   : Value 'sm_90a' is not defined for option 'gpu-name'\" >&2; exit 1\n"
    answer = f"#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '{ANSWER.strip()}'; exit 0; }}\n"
    fake = make_ptxas(tmp_path / "old tool", answer + refusal)
    for words in ((), ("--fail-on", "spills"), ("--fail-on", "code")):
        assert main(["check", "tritonhook.lock", "--ptxas", str(fake), "--no-cache", *words]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "2 not assembled" in said
    assert "ptxas 12.8.93: unsupported: Value 'sm_90a' is not defined" in said
    assert "choose another version with --ptxas" in said
    assert "2 kernels not assembled: ptxas 12.8.93: unsupported" in said and "2 kernels changed by" not in said
    assert main(["check", "tritonhook.lock", "--ptxas", str(fake), "--no-cache", "--fail-on", "gone"]) == 0


def test_each_kernel_is_compared_with_its_own_code_after_another_assembly(locked: Path, capsys) -> None:
    """Given two kernels of one identity, each with the figures of the other's code."""
    _, gemm = read_lock(locked)
    text = kept_ptx(locked, gemm)
    fast, slow = ((*gemm.options, level) for level in ("-O3", "-O0"))
    near = {**gemm.figures, "instructions": gemm.figures["instructions"] * 9, "stack": 4096}
    second = replace(gemm, identity=replace(gemm.identity, number=2), options=slow, codes=("1" * 16,))
    write_lock(locked, [(replace(gemm, options=fast, codes=("0" * 16,), figures=near), text), (second, text)])
    capsys.readouterr()
    assert main(["check", "tritonhook.lock", "--json"]) == 1
    for kernel in json.loads(capsys.readouterr().out)["kernels"]:
        assert kernel["old"]["options"] == kernel["new"]["options"]


def test_a_lock_without_kernels_is_damaged(locked: Path, capsys) -> None:
    locked.write_text("format = 1\nkernel = []\n")
    for words in (("check", "tritonhook.lock"), ("check", "tritonhook.lock", "old"), ("show", "tritonhook.lock")):
        assert "no lock, or damaged" in failing(capsys, *words)


def test_an_update_accepts_what_is_there(locked: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("new", ptx_options="-O1")
    before = locked.read_bytes()
    assert main(["check", "tritonhook.lock", "new"]) == 1
    assert locked.read_bytes() == before
    assert main(["check", "tritonhook.lock", "new", "--update"]) == 0
    assert locked.read_bytes() != before
    assert "tritonhook.lock now has the kernels of new" in capsys.readouterr().out
    assert main(["check", "tritonhook.lock", "new"]) == 0


def test_show_lists_the_kernels_of_a_lock(locked: Path, capsys) -> None:
    capsys.readouterr()
    assert main(["show", "tritonhook.lock"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 kernels locked\n")
    assert [line.split()[:2] for line in said.splitlines() if "sm_90a" in line] == [
        ["add_kernel", "sm_90a"],
        ["gemm_kernel", "sm_90a"],
    ]
    assert main(["show", "tritonhook.lock", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [kernel["registers"] for kernel in document["kernels"]] == [
        facts.figures["registers"] for facts in read_lock(locked)
    ]
    for words in (("show", "tritonhook.lock", "--sass"), ("show", "tritonhook.lock", "--sort", "regs")):
        assert "a lock; --s" in failing_after(capsys, *words)


@pytest.mark.parametrize(
    "words",
    ["verify --known", "diff tritonhook.lock", "lab probe", "mem predict --gpu H200", "rename --strip"],
)
def test_a_lock_is_no_code(locked: Path, capsys, words: str) -> None:
    said = failing_after(capsys, *words.split(), "tritonhook.lock")
    assert "`tritonhook show tritonhook.lock` lists its kernels" in said


def test_captures_for_another_architecture_are_refused_before_they_are_read(
    locked: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    import triton_kernels as kernels

    import tritonhook

    with tritonhook.session(out="other"):
        kernels.compile_kernel(kernels.fresh(kernels.add_kernel), arch=80)
    monkeypatch.setattr("tritonhook.cli._changes.kernels_at", lambda *_, **__: pytest.fail("their code was read"))
    said = failing_after(capsys, "check", "tritonhook.lock", "other")
    assert "its kernels are for sm_80, the lock's for sm_90a" in said


def test_kernels_that_cannot_be_assembled_again_are_named_and_the_others_checked(locked: Path, capsys) -> None:
    """As kernels of a cache without PTX, and those whose ptxas did not say its version."""
    add, gemm = read_lock(locked)
    text = kept_ptx(locked, add)
    for known in (
        replace(gemm, ptx_sha256=None),
        replace(gemm, ptxas=None),
    ):
        ptx = None if known.ptx_sha256 is None else kept_ptx(locked, gemm)
        path = locked.with_name("other.lock")
        write_lock(path, [(add, text), (known, ptx)])
        assert main(["check", str(path)]) == 1
        said = capsys.readouterr().out
        assert "2 kernels: 1 not known" in said and "changed by" not in said
        assert "not assembled again: gemm_kernel sm_90a " in said
        assert main(["check", str(path), "--fail-on", "code"]) == 1
        write_lock(path, [(known, ptx)])
        capsys.readouterr()
        assert "no kernel of this lock can be assembled again" in failing(capsys, "check", str(path))


def test_a_gate_that_compares_nothing_does_not_pass(locked: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    """As with captures of other kernels, or for another GPU."""
    import triton_kernels as kernels

    with tritonhook.session(locked.with_name("other")):
        kernels.compile_kernel(kernels.multiply_kernel)
        kernels.compile_kernel(arch=80)
    for words in (("check", "tritonhook.lock", "other"), ("diff", "old", "other")):
        capsys.readouterr()
        assert main([*words, "--fail-on", "spills,code"]) == 1
        assert "no kernel is on both sides: nothing was compared" in capsys.readouterr().out
    assert main(["check", "tritonhook.lock", "other", "--update", "--fail-on", "code"]) == 0
    said = capsys.readouterr().out
    assert "no kernel is on both sides: nothing was compared" in said and "fails" not in said


def test_a_script_is_checked_by_its_dry_run(here: Path, triton_cache: Path, capsys: pytest.CaptureFixture) -> None:
    from tests.capture.dry_run.test_programs import LAUNCH, PRELUDE

    script = here / "kernels.py"
    script.write_text(PRELUDE + LAUNCH)
    assert main(["run", "--arch", "sm_90a", "--out", "old", "kernels.py"]) == 0
    assert main(["lock", "old"]) == 0
    capsys.readouterr()
    assert main(["check", "kernels.py", "--arch", "sm_90a", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["new"], document["counts"]["same"]) == ("kernels.py", 1)
    script.write_text(PRELUDE + LAUNCH.replace("num_warps=2", "num_warps=4"))
    assert main(["check", "tritonhook.lock", "kernels.py", "--arch", "sm_90a,sm_120a", "--json"]) == 1
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert (counts["changed"], counts["new"], counts["gone"]) == (1, 1, 0)  # the edit; the other architecture
    script.write_text(PRELUDE + LAUNCH + "raise SystemExit(7)\n")
    said = failing_after(capsys, "check", "kernels.py", "--arch", "sm_90a")
    assert "kernels.py ended with status 7 in its dry run for sm_90a: nothing was compared" in said
    assert "a script; give --arch" in failing_after(capsys, "check", "kernels.py")
    assert "--arch: give a script, which is run dry" in failing_after(capsys, "check", "old", "--arch", "sm_90a")
    assert "--arch: give a script" in failing_after(capsys, "check", "--arch", "sm_90a")
    assert "sm_1: not supported by dry runs" in failing_after(capsys, "check", "kernels.py", "--arch", "sm_1")


@pytest.mark.parametrize(
    ("option", "judge", "verb"),
    [("--verify", "verify_captures", "verify --cpu"), ("--sanitize", "sanitize_captures", "emulate")],
)
def test_a_check_may_verify_and_sanitize_too(
    option: str, judge: str, verb: str, locked: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is as in the lock; that ptxas computes something else, or a fault, fails all the same."""
    from tritonhook.cli import check

    answers = iter(
        [(False, "2 kernels: 2 SAME\n\nVerification: old\n"), (True, "1 DIFFERENT\n\ngemm_kernel DIFFERENT\n")]
    )
    monkeypatch.setattr(check, judge, lambda place: next(answers))
    assert main(["check", "tritonhook.lock", "old", option]) == 0
    assert f"{verb}: 2 kernels: 2 SAME" in capsys.readouterr().out
    assert main(["check", "tritonhook.lock", "old", option]) == 1
    assert f"{verb}: 1 DIFFERENT; gemm_kernel DIFFERENT" in capsys.readouterr().out
    monkeypatch.undo()  # no launch of these kernels was recorded: nothing was verified
    monkeypatch.chdir(locked.parent)
    assert main(["check", "tritonhook.lock", "old", option]) == 2
    assert "2 kernels, all with the same code" in (said := capsys.readouterr().out) and f"{verb}: " in said
    assert f"{option}: give captures" in failing(capsys, "check", "tritonhook.lock", option)


def test_bits_are_judged_only_of_a_lock_that_has_them(locked: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("new")
    assert main(["check", "tritonhook.lock", "new", "--fail-on", "bits"]) == 2
    assert "make the lock again with `tritonhook lock --bits`" in capsys.readouterr().err
