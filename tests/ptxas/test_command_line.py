"""A command line of ptxas: its inputs and output, the level that it asks for, and which options a lock may carry."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_ptxas import PTX, make_ptx

from tritonhook.capture.policy.levers import lever
from tritonhook.ptxas.command_line import Command, Module, dump, level_of, read_command, refused_option

TEXT = PTX.format(name="add", target="sm_90a").encode()
ADD, GIVEN, STRING = Module("a.ptx", TEXT), Module("standard input", b"given"), Module("command line", b"TEXT")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a.ptx."""
    monkeypatch.chdir(tmp_path)
    make_ptx(tmp_path / "a.ptx")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("a.ptx", Command((ADD,), "elf.o", None, ())),
        ("-v a.ptx -o x.cubin -arch sm_90a -O1", Command((ADD,), "x.cubin", "sm_90a", ("-v", "-O1"))),
        ("--gpu-name=sm_80 --output-file=y --fmad=false", Command((), "y", "sm_80", ("--fmad=false",))),
        ("--output-file y --gpu-name sm_80 -m 64", Command((), "y", "sm_80", ("-m", "64"))),
        ("-o=y -arch=compute_90 -o", Command((), "y", "compute_90", ())),
        ("-arch", Command((), "elf.o", None, ())),
        ("-ias TEXT -", Command((STRING, GIVEN), "elf.o", None, ())),
        ("/dev/stdin -v --input-as-string", Command((GIVEN, Module("command line", b"")), "elf.o", None, ("-v",))),
        ("-ias=TEXT -o /dev/null", Command((STRING,), None, None, ())),
        (
            "-o . no.ptx notes.txt image.ptx -a.ptx",
            Command((), None, None, ("no.ptx", "notes.txt", "image.ptx", "-a.ptx")),
        ),
        ("pipe -c", Command((), "elf.o", None, ("pipe", "-c"))),
        (
            "--apply-controls=notes.txt -v --x=no",
            Command((), "elf.o", None, ("-v", "--x=no"), ("--apply-controls=notes.txt",)),
        ),
        (
            "-optf first.opt,none.opt,unclosed.opt a.ptx --options-file=third.opt -optf",
            Command((ADD, ADD), "b c.cubin", "sm_80", ("-v", "it's", "-g", "#no\udcff")),
        ),
    ],
)
def test_a_command_line_is_read(folder: Path, words: str, command: Command) -> None:
    """Inputs by what the files hold; an output that cannot be read back is none; options files, one in the other."""
    (folder / "notes.txt").write_text("text")
    (folder / "image.ptx").write_bytes(b"\x7fELF .version")
    (folder / "-a.ptx").write_bytes(TEXT)
    os.mkfifo(folder / "pipe")
    (folder / "first.opt").write_text('-v -o "b c.cubin"\n-optf second.opt')
    (folder / "second.opt").write_text("it's a.ptx --gpu-name sm_80")
    (folder / "third.opt").write_bytes(b"-g #no\xff")
    (folder / "unclosed.opt").write_text('-v "open')
    assert read_command(words.split(), b"given") == command
    assert command.makes_code == (command.target != "compute_90")


def test_an_options_file_that_names_itself_ends(folder: Path) -> None:
    """As often as ptxas itself follows it."""
    (folder / "own.opt").write_text("-v -optf own.opt")
    assert read_command(["-optf", "own.opt"]).options == ("-v",) * 8


def test_standard_input_that_was_not_read_is_empty() -> None:
    assert read_command(["-"]).modules == (Module("standard input", b""),)


def _dumped(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_ptx_of_a_call_is_written_once_for_each_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by the first entry, else by the file, in letters that a file name may have; and by the hash."""
    monkeypatch.delenv("PTX_DUMP_DIR", raising=False)
    odd = f"{'ab-' * 30}\u00e9.x y.ptx"
    (folder / odd).write_bytes(b".version 8.7\n.target")
    words, told = ["a.ptx", odd, "-", "-ias", ".version"], {"stdin": TEXT.replace(b"add", b"$mul"), "kind": "linked"}
    dump(words, told)
    assert not (folder / "ptx_dumps").exists()
    monkeypatch.setenv("PTX_DUMP_DIR", str(folder / "other" / "dumps"))
    dump(words, told)
    modules = read_command(words, told["stdin"]).modules
    names = ("add", f"{'ab-' * 26}ab", "$mul", "command_line")
    digests = [hashlib.sha256(module.data).hexdigest()[:12] for module in modules]
    expected = {f"{n}-{digest}.ptx": m.data for n, digest, m in zip(names, digests, modules, strict=True)}
    assert _dumped(folder / "other" / "dumps") == expected
    (folder / "other" / "dumps" / f"add-{digests[0]}.ptx").write_text("not written again")
    dump(words, told)
    assert _dumped(folder / "other" / "dumps") == expected | {f"add-{digests[0]}.ptx": b"not written again"}


def test_an_installed_wrapper_writes_into_the_folder_of_the_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PTX_DUMP_DIR", raising=False)
    (folder / "\u00e9.ptx").write_bytes(b".version")
    dump(["a.ptx", "\u00e9.ptx", "-"], {"stdin": b"", "kind": "installed"})
    names = {"add": TEXT, "_": b".version", "standard_input": b""}
    assert _dumped(folder / "ptx_dumps") == {
        f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.ptx": data for name, data in names.items()
    }


@pytest.mark.parametrize(
    ("options", "level"),
    [
        (None, "-O3"),
        ((), "-O3"),
        (("-lineinfo", "-v"), "-O3"),
        (("-O0",), "-O0"),
        (("-O", "1", "-v"), "-O1"),
        (("-O=2",), "-O2"),
        (("-v", "--opt-level", "0"), "-O0"),
        (("--opt-level=0",), "-O0"),
        (("-opt-level", "1"), "-O1"),
        (("-opt-level=1",), "-O1"),
        (("-O0", "-O3"), "-O3"),
    ],
)
def test_level(options: Sequence[str] | None, level: str) -> None:
    assert level_of(options) == level


@pytest.mark.parametrize(
    "words",
    [
        "-lineinfo -v --fmad=false",
        "-O3 -O 1 --opt-level=2 --opt-level 0",
        "-maxrregcount=32 --maxrregcount 64 -maxntid 128,1,1",
        "-m64 -arch sm_90a --gpu-name=sm_100a -Ofc=max",
        "-lineinfo -v --regAllocOptLevel=2 --gpu-name=sm_90a",  # Triton 3.7 and newer
        "-dlcm=ca --def-load-cache cg -e kernel$1,other",
        "-lineinfo -suppress-debug-info --suppress-debug-info --lineinfo",
    ],
)
def test_what_decides_the_code_is_taken(words: str) -> None:
    assert refused_option(words.split()) is None


@pytest.mark.parametrize("text", ["O1", "regalloc=1", "regusage=10"])
def test_the_options_of_levers_are_taken(text: str) -> None:
    assembling = lever(text).assembling(Path())
    assert assembling is not None and refused_option(assembling.options) is None


def test_kept_controls_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path))
    kept = f"--apply-controls={tmp_path}/controls/{'0a' * 32}"
    assert refused_option([kept[1:], kept]) is None and refused_option([kept[:-1]]) == kept[:-1]
    assert refused_option([kept[2:]]) == kept[2:] and refused_option(["-v", kept.replace("controls/", "")]) is not None


@pytest.mark.parametrize(
    "words", ["-O", "-O=", "-v=1", "--fmad=../x", "-m6", "-O33", "-", "--", "", "-maxrregcount ../1"]
)
def test_what_has_no_value_or_another_one_is_not(words: str) -> None:
    assert refused_option(words.split(" ")) is not None
