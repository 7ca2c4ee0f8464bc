"""`verify --known`: places, verdicts and exit codes for files and captures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bug_examples import EXAMPLES, ptx_of
from command_line import failing

from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureWriter
from tritonhook.cli import main

EXAMPLE = EXAMPLES["greatest-of-three"]
WRONG, RIGHT, BETWEEN = "12.9.86", "13.5.37", "13.4.10"


def known(capsys: pytest.CaptureFixture, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["verify", "--known", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def ptx(tmp_path: Path) -> str:
    (tmp_path / "kernel.ptx").write_text(ptx_of(EXAMPLE.lines, "sm_90a", "8.0"))
    return str(tmp_path / "kernel.ptx")


@pytest.mark.parametrize(
    ("ptxas", "verdict", "code"), [(WRONG, "wrong", 1), (RIGHT, "right", 0), (BETWEEN, "not known", 1)]
)
def test_a_file_is_judged_by_the_ptxas_that_is_named(
    ptx: str, ptxas: str, verdict: str, code: int, capsys: pytest.CaptureFixture
) -> None:
    found, document = known(capsys, ptx, "--ptxas", ptxas)
    (place,) = document["places"]
    assert (found, place["verdict"], place["ptxas"]) == (code, verdict, ptxas)
    assert (place["bug"], place["function"], place["line"], place["target"]) == ("greatest-of-three", "k", 11, "sm_90a")
    assert place["module"] == ptx and "abs.s32" in place["remedy"] and place["sources"]


def test_a_file_without_any_is_said_to_have_none(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "near.ptx").write_text(ptx_of(EXAMPLE.near, "sm_90a", "8.0"))
    assert main(["verify", "--known", str(tmp_path / "near.ptx"), "--ptxas", WRONG]) == 0
    assert "No pattern of a known bug of ptxas in 1 module" in capsys.readouterr().out


def test_a_folder_without_kernels_is_no_clean_result(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "no kernels were captured" in failing(capsys, "verify", "--known", store(tmp_path / "empty"))


def store(out: Path, *captures: Capture) -> str:
    """A capture folder with these kernels."""
    writer = CaptureWriter(out)
    for capture in captures:
        files = {}
        for stage, content in capture.artifacts.items():
            place = out.parent / f"{capture.kernel}.{stage.value}"
            place.write_text(str(content))
            files[stage] = str(place)
        writer.add_files(capture, files)
    writer.close()
    return str(out)


def captured(kernel: str, ptxas: str | None, lines: str = EXAMPLE.lines) -> Capture:
    text = ptx_of(lines, "sm_90a", "8.0").replace("entry k(", f"entry {kernel}(")
    return Capture(kernel, kernel * 8, "sm_90a", {Stage.PTX: text}, Assembler(version=ptxas))


def test_captures_are_judged_by_their_own_ptxas(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    kernels = captured("a", WRONG), captured("b", RIGHT), captured("c", WRONG, EXAMPLE.near), captured("d", None)
    folder = store(tmp_path / "captures", *kernels, Capture("e", "e" * 8, "sm_90a", {}))
    code, document = known(capsys, folder)
    verdicts = {place["function"]: place["verdict"] for place in document["places"]}
    assert (code, verdicts) == (1, {"a": "wrong", "b": "right", "d": "not known"})
    (unread,) = document["unread"]
    assert document["modules"] == 5 and "no PTX" in unread["reason"]
    code, document = known(capsys, folder, "--ptxas", RIGHT)
    assert (code, {place["verdict"] for place in document["places"]}) == (2, {"right"})  # one was not read
    assert known(capsys, store(tmp_path / "unknown", captured("d", None)))[0] == 1
    one = next((tmp_path / "captures" / "kernels").glob("a-*"))
    assert known(capsys, str(one))[0] == 1


def test_the_list_of_captures_says_that_there_are_some(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = store(tmp_path / "captures", captured("a", WRONG), captured("b", WRONG), captured("c", RIGHT))
    assert main(["show", folder]) == 0
    assert "greatest-of-three (2)" in " ".join(capsys.readouterr().out.split())
    folder = store(tmp_path / "others", captured("c", RIGHT))
    assert main(["show", folder]) == 0
    assert "greatest-of-three" not in capsys.readouterr().out


def test_machine_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "a.cubin").write_bytes(b"\x7fELF....")
    assert main(["verify", "--known", str(tmp_path / "a.cubin")]) == 2
    assert "give PTX, or a capture" in capsys.readouterr().err
    folder = store(tmp_path / "captures", Capture("e", "e" * 8, "sm_90a", {}))
    assert main(["verify", "--known", folder]) == 2
