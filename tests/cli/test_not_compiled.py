"""Kernels that failed to compile are in each denominator, and no verdict is clean without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.snapshot.conftest import Compile, captured_before, compile_now, compiled  # noqa: F401  (fixtures)
from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.cli import main

LOG = {"log": "ptxas k.ptx, line 41; error   : Not a name of any known instruction: 'nonsense'", "ptxas": "12.8.93"}


def fail(out: Path | str, kernel: str) -> None:
    writer = CaptureWriter(Path(out))
    writer.add_crash(kernel, "", LOG)
    writer.close()


def document(capsys: pytest.CaptureFixture, code: int, *words: str) -> dict:
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def headline(capsys: pytest.CaptureFixture, code: int, *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == code
    return str(capsys.readouterr().out).splitlines()[0]


def test_a_lock_is_no_success_without_a_kernel_that_failed(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("old")
    assert headline(capsys, 0, "lock", "old").startswith("wrote tritonhook.lock: 2 kernels;")
    fail("old", "broken")
    assert headline(capsys, 2, "lock", "old", "--force").startswith("wrote tritonhook.lock: 2 of 3 kernels;")


def test_what_was_not_compared_fails_a_gate(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("old")
    compiled("new", ptx_options="-O1")
    assert main(["lock", "old"]) == 0
    for place in ("old", "new"):
        fail(place, "broken")
        fail(place, "broken")  # in another process
    for words in (("check", "old"), ("check", "old", "--fail-on", "spills,new,gone"), ("diff", "old", "old")):
        found = document(capsys, 2, *words)
        assert [one["kernel"] for one in found["not_compiled"]] == ["broken"]
        assert "line 41" in found["not_compiled"][0]["reason"] and len(found["kernels"]) == 2
        assert headline(capsys, 2, *words).startswith("2 of 3 kernels (1 not compiled)")
    for words in (("check", "new"), ("diff", "old", "new"), ("diff", "old", "new", "--fail-on", "code")):
        assert headline(capsys, 1, *words).startswith("2 of 3 kernels (1 not compiled): ")
    assert document(capsys, 2, "check", "old", "--update")["not_compiled"]


def test_a_locked_kernel_that_fails_now_is_counted_once(here: Path, compiled: Compile, capsys) -> None:  # noqa: F811
    compiled("old")
    assert main(["lock", "old"]) == 0
    folder = CaptureFolder.open("old")
    (record,) = (one for one in folder.records if "add" in one)
    (Path("old/kernels") / record / "capture.json").unlink()
    for index in Path("old/index").iterdir():
        lines = index.read_text().splitlines()
        index.write_text("".join(f"{line}\n" for line in lines if record not in line))
    fail("old", "add_kernel")
    assert headline(capsys, 1, "check", "old") == "2 kernels (1 not compiled): 1 gone"


def test_a_configuration_that_the_autotuner_rejected_is_no_kernel_of_the_program(here, compiled, capsys) -> None:  # noqa: F811
    compiled("old")
    record = next(one for one in CaptureFolder.open("old").records if "add" in one)
    writer = CaptureWriter(Path("old"))
    writer.add_configurations("add_kernel", ("n=1",), record, {record: "BLOCK: 128"}, None)
    writer.close()
    fail("old", "add_kernel")
    assert headline(capsys, 0, "lock", "old").startswith("wrote tritonhook.lock: 2 kernels;")
