"""`tritonhook check --github`, with a stand-in for gh and the events that GitHub's runner hands over."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import failing
from repository import GOLDEN, ROOT, SUPPORT

import tritonhook
from tests.snapshot.conftest import Compile, captured_before, compile_now, compiled  # noqa: F401  (fixtures)
from tritonhook.cli import main

Workflow = Callable[..., dict[str, Any]]
MARK = "<!-- tritonhook -->"
HEAD = json.loads((GOLDEN / "github" / "pull_request.json").read_text())["pull_request"]["head"]["sha"]


@pytest.fixture
def workflow(here: Path, monkeypatch: pytest.MonkeyPatch) -> Workflow:
    """Run `check --github` as a step of a workflow; what it gave: its code, and what gh holds then."""
    state = here / "gh.json"
    folder = here / "bin"
    folder.mkdir()
    (folder / "gh").write_text(f"#!/bin/sh\nexec '{sys.executable}' '{SUPPORT / 'fake_gh.py'}' \"$@\"\n")
    (folder / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("FAKE_GH", str(state))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    monkeypatch.setenv("GITHUB_REPOSITORY", "hello/kernels")
    monkeypatch.setenv("GITHUB_SHA", "0" * 40)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_RUN_ID", "42")

    def run(*words: str, event: str = "pull_request", workspace: Path = ROOT, **given: Any) -> dict[str, Any]:
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(GOLDEN / "github" / f"{event}.json"))
        monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace))
        before = json.loads(state.read_text())["comments"] if state.exists() else []
        state.write_text(json.dumps({"comments": before, "calls": []} | given))
        code = main(["check", *words, "--github"])
        return {"code": code, **json.loads(state.read_text())}

    return run


@pytest.fixture
def changed(here: Path, compiled: Compile, capsys: pytest.CaptureFixture) -> None:  # noqa: F811
    """A lock, and captures of other code."""
    compiled("old")
    compiled("new", ptx_options="-O1")
    assert main(["lock", "old", "-o", "my.lock"]) == 0
    capsys.readouterr()


def bodies(found: dict[str, Any]) -> list[str]:
    return [comment["body"] for comment in found["comments"]]


def test_one_comment_is_written_and_then_updated(changed: None, workflow: Workflow, here: Path, capsys) -> None:
    found = workflow("my.lock", "new", "--fail-on", "code")
    assert found["code"] == 1
    (body,) = bodies(found)
    assert body.startswith(MARK) and "gemm\\_kernel" in body and "fails: code" in body
    assert HEAD[:12] in body and "https://example.org/hello/kernels/actions/runs/42" in body
    assert ["POST", "repos/hello/kernels/issues/7/comments"] in found["calls"]
    summary = (here / "summary.md").read_text()
    assert summary.startswith("### 🔴") and "gemm\\_kernel" in summary
    again = workflow("my.lock", "old", "--fail-on", "code")
    assert again["code"] == 0
    assert [it["databaseId"] for it in again["comments"]] == [101]
    assert bodies(again)[0].count("<!-- tritonhook section") == 2  # another folder is another check
    assert ["PATCH", "repos/hello/kernels/issues/comments/101"] in again["calls"]
    third = workflow("my.lock", "new", "--fail-on", "gone")
    assert third["code"] == 0 and "fails: code" not in bodies(third)[0]


def test_nothing_is_said_of_a_pull_request_that_changes_nothing(changed: None, workflow: Workflow, here: Path) -> None:
    found = workflow("my.lock", "old")
    assert (found["code"], found["comments"]) == (0, [])
    assert "all with the same code" in (here / "summary.md").read_text()


def test_a_push_has_a_summary_and_no_comment(changed: None, workflow: Workflow, here: Path) -> None:
    found = workflow("my.lock", "new", event="push")
    assert (found["code"], found["comments"], found["calls"]) == (1, [], [])
    assert "gemm\\_kernel" in (here / "summary.md").read_text()


def test_comments_of_others_are_left_alone(changed: None, workflow: Workflow) -> None:
    """Also one that begins as ours: anyone can write it. Ours may be on a later page."""
    strange = [{"databaseId": n, "body": f"{MARK}\n{n}", "viewerDidAuthor": False} for n in range(5)]
    own = {"databaseId": 9, "body": f"{MARK}\r\nold", "viewerDidAuthor": True}
    found = workflow("my.lock", "new", comments=[*strange, own])
    assert found["comments"][:5] == strange
    assert len(found["comments"]) == 6 and "gemm\\_kernel" in found["comments"][5]["body"]


def test_of_two_first_comments_the_earlier_one_stays(changed: None, workflow: Workflow) -> None:
    """As where another job of the workflow writes its first one at the same time."""
    rival = f"{MARK}\n<!-- tritonhook section 00ff {HEAD} -->\nits text\n<!-- tritonhook end -->\n"
    (body,) = bodies(workflow("my.lock", "new", rival=rival))
    assert "its text" in body and "gemm\\_kernel" in body


@pytest.mark.parametrize("refusal", ["gh: Resource not accessible by integration (HTTP 403)", "gh: ::error::odd\nline"])
def test_a_comment_that_cannot_be_written_changes_no_verdict(
    changed: None, workflow: Workflow, capsys, refusal: str
) -> None:
    """As in a pull request from a fork, whose token may only read."""
    assert workflow("my.lock", "new", "--fail-on", "gone", refuses=refusal)["code"] == 0
    said = capsys.readouterr().out
    assert f"::notice title=tritonhook::no comment was written: {' '.join(refusal.split())}\n" in said


def test_without_gh_the_summary_is_written(changed: None, workflow: Workflow, here: Path, monkeypatch, capsys) -> None:
    (here / "bin" / "gh").unlink()
    monkeypatch.setenv("PATH", str(here / "bin"))
    assert workflow("my.lock", "new", "--fail-on", "gone")["code"] == 0
    assert "no comment was written: the program gh is not on PATH" in capsys.readouterr().out
    assert (here / "summary.md").exists()


def test_printed_names_are_no_commands(changed: None, workflow: Workflow, capsys) -> None:
    workflow("my.lock", "new")
    lines = capsys.readouterr().out.splitlines()
    word = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", lines[0])
    assert word and f"::{word[1]}::" in lines
    assert any("gemm_kernel" in line for line in lines[1 : lines.index(f"::{word[1]}::")])


def test_the_line_that_spills_is_annotated(here: Path, triton_cache: Path, workflow: Workflow, capsys) -> None:
    pytest.importorskip("triton")
    script = ROOT / "examples" / "spilling_matmul.py"
    with tritonhook.session(out="captures"):
        runpy.run_path(str(script))["compile_for_hopper"]()
    assert main(["lock", "captures", "-o", "my.lock"]) == 0
    capsys.readouterr()
    assert workflow("my.lock", "captures", "--fail-on", "spills")["code"] == 0
    (command,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::notice")]
    found = re.match(r"::notice file=examples/spilling_matmul.py,line=(\d+),", command)
    assert " bytes (stores/loads; before " in command
    source = script.read_text().splitlines()
    first = next(n for n, line in enumerate(source, 1) if line.startswith("def spilling_matmul"))
    assert found and first <= int(found[1]) <= first + 8
    assert workflow("my.lock", "captures", workspace=here)["code"] == 0  # the source is not in the repository
    assert "::notice" not in capsys.readouterr().out


def test_a_lock_alone_is_checked_too(changed: None, workflow: Workflow) -> None:
    found = workflow("my.lock", "--options=-O1 -v", "--fail-on", "gone")
    assert found["code"] == 0 and "its PTX, assembled by" in bodies(found)[0]


def test_outside_of_github_it_is_refused(changed: None, here: Path, monkeypatch, capsys) -> None:
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "GITHUB_REPOSITORY", "GITHUB_SHA", "GITHUB_EVENT_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert "GITHUB_STEP_SUMMARY, GITHUB_WORKSPACE" in failing(capsys, "check", "my.lock", "new", "--github")
    assert "leave out --json" in failing(capsys, "check", "my.lock", "new", "--github", "--json")


def test_an_event_that_cannot_be_read_is_named(changed: None, workflow: Workflow, here: Path, capsys) -> None:
    assert workflow("my.lock", "new", event="missing")["code"] == 2
    assert "missing.json: GitHub's event cannot be read" in capsys.readouterr().err


# --- the parts, with answers in this process -------------------------------------------------------
