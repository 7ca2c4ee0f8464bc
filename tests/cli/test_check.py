"""`tritonhook check` of locks that are written here: what it takes, compares, prints and tells; nothing is compiled."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import EXP, TARGET, failing

from tests.snapshot.test_changes import facts
from tritonhook.cli import check as verb
from tritonhook.cli import main, parser
from tritonhook.cli._parser import from_namespace
from tritonhook.errors import SnapshotError, UsageError
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS
from tritonhook.report.results.snapshot import page_key
from tritonhook.snapshot.changes import Change, rules
from tritonhook.snapshot.facts import Budgets, KernelFacts
from tritonhook.snapshot.lockfile import read_lock, write_lock


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "cache of results"))
    return tmp_path


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


def test_the_locks_ptx_is_assembled_by_the_ptxas_and_with_the_options_asked_for(here: Path) -> None:
    own = find_ptxas().version
    kernels = (replace(facts("a"), ptxas=own, options=("-O1",)), replace(facts("b"), ptxas=own, options=None))
    path = here / "k.lock"
    known = locked(path, *kernels)
    for words, wanted in (
        ((), [("-O1",), DEFAULT_ARGUMENTS]),
        (("--ptxas", own), [("-O1",), DEFAULT_ARGUMENTS]),
        (("--options", "-O3  -v"), [("-O3", "-v")] * 2),
    ):
        tasks = verb._tasks(options(*words), path, known)
        assert [task.locked for task in tasks] == known and [task.options for task in tasks] == wanted
        assert [task.ptx for task in tasks] == [EXP.ptx(name, **TARGET).text for name in "ab"]
        assert {task.ptxas.version for task in tasks} == {own}
    said = [verb._assembled_by(options(*words)) for words in ((), ("--ptxas", own), ("--options", "-O1"))]
    by = ("the same ptxas", f"ptxas {own}", "the same ptxas -O1")
    assert said == [f"its PTX, assembled by {what}" for what in by]


def test_what_cannot_be_assembled_again_has_a_reason() -> None:
    known = replace(facts(), ptx_sha256="1")
    assert verb._why_not_again(known, None) is None
    assert "no PTX" in str(verb._why_not_again(replace(known, ptx_sha256=None), "13.0"))
    assert "give one with --ptxas" in str(verb._why_not_again(replace(known, ptxas=None), None))
    assert verb._why_not_again(replace(known, ptxas=None), "13.0") is None


def test_captures_for_other_architectures_are_named_with_the_locks() -> None:
    old = [facts("a", arch="sm_90a"), facts("b", arch="sm_80")]
    verb._check_archs("c", old, {"sm_80", "sm_100a"})
    verb._check_archs("c", old, set())
    with pytest.raises(UsageError, match="^c: its kernels are for sm_100a, sm_75, the lock's for sm_80, sm_90a; "):
        verb._check_archs("c", old, {"sm_75", "sm_100a"})


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
        (("k.lock", "caps", "--arch", "sm_80"), "--arch: for a script, which is run dry"),
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
    monkeypatch.setattr(verb, "_rechecked", lambda options, tasks: [task.locked for task in tasks])
    assert said in failing(capsys, "check", *words)


def test_the_usual_lock_is_checked_against_a_place_alone(here: Path) -> None:
    (here / "caps" / "index").mkdir(parents=True)
    for word in ("caps", "s.py", "."):
        given = verb._with_lock(options(word, "k.cubin"))
        assert (given.lock, given.places) == (None, (word, "k.cubin"))
    for words in ((), ("a.lock",), ("absent", "caps")):
        assert verb._with_lock(options(*words)) == options(*words)


def test_budgets_of_the_project_come_before_those_of_the_lock(here: Path) -> None:
    Path("pyproject.toml").write_text("[tool.tritonhook]\nmax_registers = 100\n")
    own = Budgets.of(200, ["k"])
    for words, both in ((("--fail-on", "spills,registers"), False), (("--fail-on", "spills", "--strict"), True)):
        found = verb._with_budgets(options("k.lock", *words), own)
        assert [rule.what for rule in found] == words[1].split(",")
        assert {rule.both_ways for rule in found} == {both}
        assert [rule.budgets for rule in found] == [Budgets.of(100, ["k"])] * len(found)
    assert verb._with_budgets(options("k.lock"), own) == ()


OLD, NEW = facts("a"), facts("a", code="2", registers=80)
SAME, GONE = Change(facts("b"), facts("b")), Change(facts("c"), None)
CHANGED = Change(OLD, NEW)


def given(capsys, changes: list[Change], rule: str = "", **more: Any) -> tuple[int, dict[str, Any]]:
    results = options("--json").results
    code = verb.give_changes(results, rules(rule) if rule else (), "old", "new", changes, **more)
    return code, json.loads(capsys.readouterr().out)


def test_changes_are_printed_told_and_judged(capsys: pytest.CaptureFixture) -> None:
    """Without rules other code, a new or a gone kernel is a difference; with rules one that is broken."""
    for changes, rule, code in (
        ([SAME], "", 0),
        ([SAME, CHANGED], "", 1),
        ([SAME, GONE], "", 1),
        ([SAME, CHANGED], "spills", 0),
        ([SAME, CHANGED], "registers+10%", 1),
        ([SAME, CHANGED], "registers+50%", 0),
        ([GONE], "spills", 1),
    ):
        found, document = given(capsys, list(changes), rule, notes=["a note"])
        assert (found, document["old"], document["new"]) == (code, "old", "new"), (changes, rule)
        assert document["notes"][0] == "a note" and len(document["kernels"]) == len(changes)
        blind = [note for note in document["notes"] if "nothing was compared" in note]
        assert bool(blind) is (changes == [GONE]) and all(", so --fail-on fails" in note for note in blind)
    assert ", so" not in given(capsys, [GONE], "spills", gate=False)[1]["notes"][-1]
    assert ", so" not in given(capsys, [GONE])[1]["notes"][-1]
    again = Change(facts("d"), replace(facts("d"), ran_again=True))
    assert "d sm_90a" in given(capsys, [again])[1]["notes"][-1]


def test_who_else_is_told_gets_all_and_pages_are_of_what_is_listed(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    seen: list[Any] = []
    monkeypatch.setattr(verb, "give", lambda results, result, pages: seen.append((result, [key for key, _ in pages])))
    changes = [CHANGED, Change(facts("e"), facts("e", code="3", registers=10)), SAME]
    pages: Any = [(page_key(change.identity), None) for change in changes] + [("other", None)]
    shown = options("--filter", "^A ").shown
    results = options().results
    assert verb.give_changes(results, (), "o", "n", changes, tell=told.append, shown=shown, pages=pages) == 1
    assert capsys.readouterr().out.startswith("::stop-commands::")
    ((printed, keys),) = seen
    assert [kernel.kernel for kernel in printed.kernels] == ["a"] and keys == [page_key(CHANGED.identity)]
    assert sorted(kernel.kernel for kernel in told[0].kernels) == ["a", "b", "e"]
    verb.give_changes(results, (), "o", "n", changes, pages=pages)
    assert seen[1][1] == [page_key(change.identity) for change in changes[:2]]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "kernels"),
    [((), 3), (("--top", "1"), 1), (("--only", "worse"), 1), (("--only", "better"), 1), (("--filter", "^(A|E) "), 2)],
)
def test_which_changes_are_shown(words: tuple[str, ...], kernels: int, capsys: pytest.CaptureFixture) -> None:
    changes = [CHANGED, Change(facts("e"), facts("e", code="3", registers=10)), SAME]
    found, document = given(capsys, changes, shown=options(*words).shown)
    assert (found, len(document["kernels"])) == (1, kernels)


def test_a_check_of_the_ptx_says_what_was_left_out(here: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "k.lock"
    own = find_ptxas().version
    known = locked(path, replace(facts("a"), ptxas=own), replace(facts("b"), ptxas=None))
    monkeypatch.setattr(
        verb, "_rechecked", lambda asked, tasks: [replace(task.locked, codes=("9" * 16,)) for task in tasks]
    )
    (here / verb.DEFAULT_OUT / "index").mkdir(parents=True)
    assert main(["check", "k.lock", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["old"], document["new"]) == ("k.lock", "its PTX, assembled by the same ptxas")
    assert [(it["kernel"], it["status"]) for it in document["kernels"]] == [("a", "changed"), ("b", "not known")]
    assert document["notes"][0].startswith(f"not assembled again: {known[1].identity.text}: which ptxas")
    assert any(verb.DEFAULT_OUT in note for note in document["notes"])
    locked(path, replace(facts("b"), ptxas=None))
    assert f"k.lock: no kernel of it can be assembled again: {verb._why_not_again(known[1], None)}" in failing(
        capsys, "check", "k.lock"
    )


def test_notes_on_what_failed_name_the_remedy() -> None:
    failed: Any = [SimpleNamespace(status=status) for status in (verb.ChangeStatus.FAILED, verb.ChangeStatus.SAME)]
    assert verb._notes_on_failures(options(), failed[1:]) == []
    assert verb._notes_on_failures(options("--options", "-O9"), failed)[0].startswith("correct --options")
    (note,) = verb._notes_on_failures(options(), failed)
    assert note.startswith("1 kernel not assembled by this ptxas;") and "--ptxas" in note


def test_times_of_ptxas_stand_for_compile_times(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: Any = [SimpleNamespace(locked=replace(facts(name), compile_us=7)) for name in "ab"]
    now = [facts(name, code="2") for name in "ab"]
    notes: list[str] = []
    monkeypatch.setattr(verb, "timed", lambda given: [(100, 300), None])
    without = verb._timed(options(), tasks, now, notes)
    assert without == [Change(task.locked, new) for task, new in zip(tasks, now, strict=True)] and notes == []
    first, second = verb._timed(options("--fail-on", "code,compile-time:2x"), tasks, now, notes)
    assert first == Change(replace(facts("a"), compile_us=100), replace(now[0], compile_us=300))
    assert second == Change(facts("b"), now[1])
    assert [note.rpartition(": ")[2] for note in notes] == ["b"]


def test_a_verification_is_a_note_with_the_users_name_of_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "/tmp/dry: wrong\n\n  k differs in /tmp/dry\n"
    notes: list[str] = []
    for wrong in (True, False):
        monkeypatch.setattr(verb, "verify_captures", lambda place, wrong=wrong: (wrong, said))
        assert verb._verified("/tmp/dry", "s.py", notes) is wrong
    assert notes == ["verify --cpu: s.py: wrong; k differs in s.py", "verify --cpu: s.py: wrong"]


def test_a_lock_that_is_not_there_is_named(here: Path) -> None:
    with pytest.raises((UsageError, SnapshotError), match="absent.lock"):
        verb.run(options("absent.lock"))
