"""A capture folder of a stranger: the program that it names is not run, whatever its record says."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import EXP, TARGET
from repository import GOLDEN

from tritonhook.cli import main
from tritonhook.ptxas.tool import available_ptxas, find_ptxas

VERSION = "12.8.93"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that says it is a ptxas, and leaves `ran` behind whenever it runs."""
    path = tmp_path / "evil"
    path.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {shlex.quote(str(find_ptxas(VERSION).path))} "$@"\n')
    path.chmod(0o755)
    return path


def capture(folder: Path, path: object, version: str | None, text: str | None = None) -> str:
    """A capture without a cubin whose record names this ptxas."""
    folder.mkdir()
    (folder / "k.ptx").write_text(text or EXP.ptx("work", **TARGET).text)
    record = {"path": None if path is None else str(path), "version": version, "arguments": ["-v"]}
    document = {"format": 1, "kernel": "work", "hash": "0", "arch": "sm_90a", "files": {"ptx": "k.ptx"}}
    document |= {
        "ptxas": record,
        "options": {},
        "metadata": {},
        "cache_hit": None,
        "rewritten_from": None,
        "note": None,
    }
    (folder / "capture.json").write_text(json.dumps(document))
    return str(folder)


def commands(given: str) -> list[list[str]]:
    golden = str(GOLDEN / "sm_90a.exp.plain.cubin")
    return [["diff", "--rename", given], ["diff", given, golden, "--no-control"]]


@pytest.mark.parametrize("verb", [0, 1], ids=["diff --rename", "diff"])
@pytest.mark.parametrize("version", [VERSION, "77.7.7", None, "evil", "PATH"])
def test_the_program_that_a_capture_names_is_not_run(
    verb: int, version: str | None, evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    given = capture(tmp_path / "given", evil, str(evil) if version == "PATH" else version)
    code = main(commands(given)[verb])
    assert not (tmp_path / "ran").exists()
    shown = " ".join("".join(capsys.readouterr()).split())
    if version == VERSION:  # ours of that version is taken, and said
        assert code in (0, 1) and f"{evil}: not run" in shown
    elif version in ("evil", "PATH"):  # a version that is none, or is a path
        assert code == 2 and "damaged: ptxas.version" in shown
    else:
        assert code == 2 and "not among the ptxas found on this machine" in shown and "--trust" in shown


@pytest.mark.parametrize("verb", [0, 1], ids=["diff --rename", "diff"])
def test_a_trusted_capture_has_its_own_program(verb: int, evil: Path, tmp_path: Path) -> None:
    given = capture(tmp_path / "given", evil, VERSION)
    assert main([*commands(given)[verb], "--trust"]) in (0, 1)
    assert (tmp_path / "ran").exists()


def test_a_known_program_at_another_place_is_known_by_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    copy = tmp_path / "copy"
    shutil.copy(find_ptxas(VERSION).path, copy)
    assert main(commands(capture(tmp_path / "given", copy, "77.7.7"))[0]) in (0, 1)
    assert "not run" not in capsys.readouterr().err


def test_a_capture_from_elsewhere_gets_ours_of_its_version(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    given = capture(tmp_path / "given", "/no/such/ptxas", VERSION)
    assert main([*commands(given)[0], "--json"]) in (0, 1)
    captured = capsys.readouterr()
    assert json.loads(captured.out)["ptxas"]["version"] == VERSION and "not run" not in captured.err


def test_a_cubin_cannot_name_a_program_by_its_path(evil: Path, tmp_path: Path) -> None:
    from tritonhook.ptxas.tool import find_recorded

    assert find_recorded(None, None) is None
    for version in (str(evil), f"../{evil.name}", "12.8", "1" * 5000, "\0", "٣.٣"):
        with pytest.raises(Exception, match="not among the ptxas found on this machine"):
            find_recorded(None, version)
    assert not (tmp_path / "ran").exists()
    assert {tool.version for tool in available_ptxas()} >= {VERSION}
