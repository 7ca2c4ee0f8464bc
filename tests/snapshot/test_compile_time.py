"""Compile time: kept in captures, shown, compared, and gated on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import failing

from tests.snapshot.conftest import Compile
from tests.snapshot.test_changes import facts
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main
from tritonhook.errors import UsageError
from tritonhook.snapshot.changes import Change
from tritonhook.snapshot.rules import failures, rules


def broken(old_us: int | None, new_us: int | None, text: str = "compile-time:2x") -> bool:
    change = Change(replace(facts(), compile_us=old_us), replace(facts(), compile_us=new_us))
    return bool(failures([change], rules(text)))


def test_a_compile_that_takes_longer_by_the_factor_breaks_the_rule() -> None:
    assert broken(100_000, 200_001) and not broken(100_000, 200_000) and not broken(100_000, 50_000)
    assert not broken(1_000, 30_000)  # short ones vary
    assert broken(1_000, 40_001)
    assert not broken(None, 10**9) and not broken(10**9, None)
    assert rules("compile-time:1.5x")[0].text == "compile-time:1.5x"
    for wrong in ("compile-time", "compile-time+10%", "code:2x", "compile-time:0.5x"):
        with pytest.raises(UsageError, match="--fail-on"):
            rules(wrong)


def test_captures_keep_the_time_of_each_stage(
    compile_now: Compile, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, cached = compile_now("first"), compile_now("cached")
    folder = CaptureFolder.open(first)
    for record in folder.records:
        times = folder.compile_us(record)
        assert list(times) == ["ir", "ttir", "ttgir", "llir", "ptx", "cubin", "store"] and times["cubin"] > 0
    assert not any(map(CaptureFolder.open(cached).compile_us, CaptureFolder.open(cached).records))
    assert main(["show", "first", "--sort", "compile-time", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    totals = [sum(kernel["seen"][0]["compile_us"].values()) for kernel in document["kernels"]]
    assert totals == sorted(totals, reverse=True) and len(totals) == 2
    other = compile_now("other", ptx_options="-O1")
    index = next((other / "index").glob("*.jsonl"))
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    for line in lines:
        line.get("compile_us", {})["cubin"] = 60_000_000
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["diff", "first", "other", "--fail-on", "compile-time:2x"]) == 1
    said = capsys.readouterr().out
    assert "compile time of 2 kernels" in said and "compile-time:2x" in said
    assert main(["diff", "other", "first", "--fail-on", "compile-time:2x"]) == 0


def test_check_times_ptxas_in_this_process(
    compiled: Compile, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled("first")
    assert main(["lock", "first"]) == 0
    capsys.readouterr()
    assert "compile-time: a lock has no times" in failing(capsys, "check", "first", "--fail-on", "compile-time:2x")
    assert main(["check", "--fail-on", "compile-time:1000x", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert all(min(kernel["compile_us"]) > 0 for kernel in kernels)
