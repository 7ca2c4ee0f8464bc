"""`tritonhook check` of locks that are written here: what it takes, compares, prints and tells; nothing is compiled."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from command_line import EXP, TARGET, failing

from tests.snapshot.test_changes import facts
from tritonhook.cli import check as verb
from tritonhook.cli import parser
from tritonhook.cli._parser import from_namespace
from tritonhook.snapshot.changes import Change
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.lockfile import read_lock, write_lock
from tritonhook.snapshot.rules import rules


def options(*words: str) -> verb.Options:
    return from_namespace(verb.Options, parser("check").parse_args(["check", *words]))


def locked(path: Path, *kernels: KernelFacts) -> list[KernelFacts]:
    """The kernels as a lock has them that is written here, each with its own PTX."""
    texts = [EXP.ptx(one.identity.kernel, **TARGET).text for one in kernels]
    hashes = [sha256(text.encode()).hexdigest() for text in texts]
    known = [{"ptx_sha256": own, "codes": (own[:16],), "stages": {}} for own in hashes]
    made = [replace(one, **fields) for one, fields in zip(kernels, known, strict=True)]
    write_lock(path, list(zip(made, texts, strict=True)))
    return list(read_lock(path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("k.lock", "--verify"), "--verify: give captures with launches"),
        (("k.lock", "caps", "--verify", "--update"), "--verify: give captures with launches"),
        (("k.lock", "--update"), "--update: give the captures, or built files"),
        (("k.lock", "--arch", "sm_80"), "--arch: give a script"),
        (("k.lock", "--strict"), "--strict: only with --fail-on"),
        (("k.lock", "caps", "--options", "-O1"), "--ptxas and --options: only without captures"),
        (("k.lock", "caps", "--ptxas", "1"), "--ptxas and --options: only without captures"),
        (("k.lock", "caps", "--fail-on", "compile-time:2x"), "compile-time: a lock has no times"),
        (("k.lock", "s.py"), "s.py: a script; give --arch"),
        (("k.lock", "caps", "--arch", "sm_80"), "--arch: give a script, which is run dry"),
        (("k.lock", "--filter", "[", "--fail-on", "code"), "--filter [: not a regular expression"),
        (("k.lock", "--github", "--json"), "--github prints commands for the runner"),
        (("caps",), "tritonhook.lock"),
        (("s.py", "--arch", "sm_80"), "tritonhook.lock"),
    ],
)
def test_what_does_not_fit_is_refused(words: tuple[str, ...], said: str, here: Path, capsys, monkeypatch) -> None:
    locked(here / "k.lock", facts("a"))
    (here / "caps" / "index").mkdir(parents=True)
    Path("s.py").touch()
    monkeypatch.setattr(verb, "recheck", lambda tasks, *how: [task.locked for task in tasks])
    assert said in failing(capsys, "check", *words)


OLD, NEW = facts("a"), facts("a", code="2", registers=80)
SAME, GONE = Change(facts("b"), facts("b")), Change(facts("c"), None)
CHANGED = Change(OLD, NEW)


def given(capsys, changes: list[Change], rule: str = "", **more: Any) -> tuple[int, dict[str, Any]]:
    results = options("--json").results
    code = verb.give_changes(results, rules(rule) if rule else (), "old", "new", changes, **more)
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "kernels"),
    [((), 3), (("--top", "1"), 1), (("--only", "worse"), 1), (("--only", "better"), 1), (("--filter", "^(A|E) "), 2)],
)
def test_which_changes_are_shown(words: tuple[str, ...], kernels: int, capsys: pytest.CaptureFixture) -> None:
    changes = [CHANGED, Change(facts("e"), facts("e", code="3", registers=10)), SAME]
    found, document = given(capsys, changes, shown=options(*words).shown)
    assert (found, len(document["kernels"])) == (1, kernels)
