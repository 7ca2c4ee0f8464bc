"""What the ptxas wrapper keeps of a call, and the renamed form that it assembles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_ptxas import SCRIPT, make_ptx, make_ptxas
from hangs import HANG_S
from wrapped_ptxas import WrappedPtxas

from tritonhook.capture.model import Stage
from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, path_environment
from tritonhook.capture.store import CaptureFolder


def test_a_call_is_kept_with_all_that_made_it(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx", extra="// comment\n")
    words = ["-arch", "sm_90a", "-m64", "--opt-level", "3", "a.ptx", "-o", "x.cubin"]
    assert world.call(*words).returncode == 0
    capture = world.captures["add"]
    assert capture.front_end == "ptxas"
    assert capture.arch == "sm_90a"
    assert capture.artifacts[Stage.PTX] == (world.folder / "a.ptx").read_text()
    assert capture.cubin == (world.folder / "x.cubin").read_bytes()
    assert capture.assembler.path == str(world.real)
    assert capture.assembler.version == "12.8.93"
    assert capture.assembler.arguments == ("-m64", "--opt-level", "3", "--gpu-name=sm_90a")
    assert capture.metadata["command"] == [str(world.real), *words]
    assert capture.metadata["folder"] == str(world.folder)
    # again: the same record, another sighting
    world.call(*words)
    folder = CaptureFolder.open(world.out)
    assert len(folder.records) == 1
    assert len(folder.seen(folder.records[0])) == 2
    assert not [p.name for p in world.out.iterdir() if p.name not in ("kernels", "index", ".staging", ".gitignore")]


def test_every_kernel_of_a_module_is_listed_and_stored_once(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx", extra=make_ptx(world.folder / "b", "mul").read_text().partition("64\n")[2])
    world.call("-arch=sm_90a", "a.ptx")
    captures = world.captures
    assert set(captures) == {"add", "mul"}
    inodes = {p.stat().st_ino for p in (world.out / "kernels").glob("*/*.cubin")}
    assert len(inodes) == 1
    only = world.settings(only="^m", out=str(world.out) + "2")
    world.call("-arch=sm_90a", "a.ptx", env=only)
    assert [r.partition("-")[0] for r in CaptureFolder.open(str(world.out) + "2").records] == ["mul"]


@pytest.mark.parametrize("way", ["-optf f", "--options-file=f", "-optf g", "-optf empty,f"])
def test_options_files(world: WrappedPtxas, way: str) -> None:
    make_ptx(world.folder / "in put.ptx")
    (world.folder / "f").write_text('-arch=sm_90a -o "o ut.cubin"\n in\\ put.ptx')
    (world.folder / "g").write_text("--options-file f")
    (world.folder / "empty").write_text("")
    (world.folder / "o ut.cubin").write_bytes(b"\x7fELF from the file")  # the fake reads no options file
    assert world.call(*way.split()).returncode == 0
    assert world.captures["add"].cubin == b"\x7fELF from the file"
    assert world.captures["add"].arch == "sm_90a"


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_input(world: WrappedPtxas, kind: str) -> None:
    text = make_ptx(world.folder / "a.ptx").read_text() + "// " + "x" * 100_000  # more than a pipe holds
    (world.folder / "a.ptx").write_text(text)
    if kind == "file":
        with (world.folder / "a.ptx").open("rb") as file:
            done = world.call("-", "-o", "x", stdin=file)
    else:
        done = world.call("-", "-o", "x", input=text.encode())
    assert done.returncode == 0
    assert world.captures["add"].artifacts[Stage.PTX] == text
    assert text.encode() in (world.folder / "x").read_bytes()  # ptxas has read all of it, too


def test_text_on_the_command_line_and_several_inputs(world: WrappedPtxas) -> None:
    text = make_ptx(world.folder / "a.ptx").read_text()
    make_ptx(world.folder / "b.ptx", "mul")
    world.call("-ias", text, "b.ptx", "-o", "x")
    captures = world.captures
    assert set(captures) == {"add", "mul"}
    assert captures["add"].artifacts[Stage.PTX] == text


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-arch=compute_90", "a.ptx"], "a check of PTX that makes no code"),
        (["--gpu-name", "lto_90", "a.ptx"], "no code"),
        (["a.txt"], "no PTX"),
        ([], "no input"),
    ],
)
def test_what_is_no_kernel(world: WrappedPtxas, words: list[str], what: str) -> None:
    make_ptx(world.folder / "a.ptx")
    (world.folder / "a.txt").write_text("hello")
    assert world.call(*words).returncode == 0
    assert not world.out.exists() or CaptureFolder.open(world.out).records == (), what
    assert world.trouble == []


def test_a_rewrite_leaves_the_program_as_it_is_and_that_is_said(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    world.call("-arch=sm_90a", "a.ptx", env=world.settings(rewrites=["tma-cta"]))
    assert len(world.captures) == 1
    said = "ptxas, called directly: kernels are not rewritten; `tritonhook diff DIR --entry KERNEL --rewrite tma-cta`"
    assert CaptureFolder.open(world.out).notes == (f"{said} shows what the rewrite changes",)


def test_a_failed_call_is_no_capture(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    world.call("a.ptx", env=world.settings() | {"FAKE_DO": "exit 1"})
    folder = CaptureFolder.open(world.out)
    assert (folder.records, folder.crashes) == ((), ())


def test_a_cubin_that_cannot_be_read_back(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    done = world.call("a.ptx", "-o", "/dev/stdout")
    assert done.stdout.startswith(b"\x7fELF")
    assert list(world.captures["add"].artifacts) == [Stage.PTX]
    assert "cannot be read back" in (world.captures["add"].note or "")


def test_an_output_that_ptxas_did_not_write(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    world.call("a.ptx", "-o=x")  # an option that this ptxas does not know
    assert list(world.captures["add"].artifacts) == [Stage.PTX]
    assert world.trouble == []


def test_a_named_pipe_is_left_to_ptxas(world: WrappedPtxas) -> None:
    os.mkfifo(world.folder / "pipe.ptx")
    text = make_ptx(world.folder / "a.ptx").read_text()
    writer = subprocess.Popen(["sh", "-c", "cat a.ptx > pipe.ptx"], cwd=world.folder)
    done = world.call("pipe.ptx", env=world.settings() | {"FAKE_DO": "cat pipe.ptx"})
    assert writer.wait(timeout=HANG_S) == 0
    assert done.stdout == text.encode()


# --- renaming ------------------------------------------------------------------------------------


@pytest.fixture
def renaming(world: WrappedPtxas) -> dict[str, str]:
    return world.settings(rename={"prefix": "cutlass_", "strip": "", "mapping": [], "entry": None})


def real_world(world: WrappedPtxas, tools: object) -> WrappedPtxas:
    """Put the real ptxas 12.8.93 in the place of the fake one."""
    home = WrapperHome(world.folder.parent / "wrappers here" / "toolkits", sys.executable)
    folder = world.folder.parent / "real"
    folder.mkdir()
    (folder / "ptxas").symlink_to(tools.ptxas.path)  # type: ignore[attr-defined]
    world.real = folder / "ptxas"
    world.wrapper = Path(path_environment({"PATH": str(folder)}, home)["PATH"].split(":")[0]) / "ptxas"
    return world


def test_a_renamed_form_is_kept_beside_the_programs_own(
    world: WrappedPtxas, renaming: dict[str, str], tools: object
) -> None:
    from tritonhook.cubin.image import Cubin

    world = real_world(world, tools)
    make_ptx(world.folder / "a.ptx")
    plain = world.call("-arch=sm_90a", "a.ptx", "-o", "plain", through=world.real)
    done = world.call("-arch=sm_90a", "a.ptx", "-o", "x", env=renaming)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    assert (world.folder / "x").read_bytes() == (world.folder / "plain").read_bytes()  # the program gets its own kernel
    captures = world.captures
    assert {name: capture.rewritten_from for name, capture in captures.items()} == {"add": None, "cutlass_add": "add"}
    assert Cubin.from_bytes(captures["cutlass_add"].cubin, "x").kernels == ("cutlass_add",)
    assert captures["cutlass_add"].ptx.entries == ("cutlass_add",)
    (note,) = CaptureFolder.open(world.out).notes
    assert "the program's kernels keep their names" in note
    assert world.trouble == []


def test_a_crash_under_the_new_name_is_kept_and_costs_nothing(world: WrappedPtxas, renaming: dict[str, str]) -> None:
    make_ptxas(
        world.real.parent, SCRIPT + 'for word; do grep -q cutlass_ "$word" 2>&- && kill -SEGV $$; done; exit 0\n'
    )
    make_ptx(world.folder / "a.ptx")
    done = world.call("a.ptx", "-o", "x", env=renaming)
    assert (done.returncode, done.stderr) == (0, b"")
    folder = CaptureFolder.open(world.out)
    assert set(world.captures) == {"add"}
    (crash,) = folder.crashes
    assert json.loads(crash.read_text())["signal"] == "SIGSEGV"
    assert "no renamed variant: ptxas 12.8.93 died with SIGSEGV" in folder.notes[0]


def test_several_inputs_are_not_renamed_and_it_is_said(world: WrappedPtxas, renaming: dict[str, str]) -> None:
    make_ptx(world.folder / "a.ptx")
    make_ptx(world.folder / "b.ptx", "mul")
    world.call("a.ptx", "b.ptx", "-o", "x", env=renaming)
    assert set(world.captures) == {"add", "mul"}
    assert "several inputs: no renamed variant" in CaptureFolder.open(world.out).notes[0]


def test_a_new_name_that_is_taken_costs_the_renamed_form_only(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx", extra=make_ptx(world.folder / "b", "cutlass_add").read_text().partition("64\n")[2])
    rename = {"prefix": "", "strip": "", "mapping": [["add", "cutlass_add"]], "entry": None}
    world.call("a.ptx", env=world.settings(rename=rename))
    assert set(world.captures) == {"add", "cutlass_add"}
    assert CaptureFolder.open(world.out).notes[0].startswith("add: no renamed variant: ")
    assert world.trouble == []
