"""The steps of `tritonhook lock` and `check`: which gets what, in which order. Other files test what each does."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recorded_calls import Calls, options, refused

from tritonhook.cli import check, lock
from tritonhook.errors import SnapshotError


def test_a_script_is_locked_by_its_dry_runs(calls: Calls) -> None:
    calls.put(lock, TemporaryDirectory=lambda prefix: nullcontext(f"/tmp/{prefix}"))
    calls.answer(lock, lock_path=Path("usual"), check_new=None, _run_dry=["failed"], _lock=3, default_out="default")
    folder = "/tmp/tritonhook-"
    assert lock.run(options("lock", "s.py", "--arch", "sm_80,sm_90a", "-o", "o.lock", "--force")) == 3
    assert calls == [
        ("check_new", Path("o.lock"), True),
        ("_run_dry", "s.py", ["sm_80", "sm_90a"], Path(folder)),
        ("_lock", (folder,), Path("o.lock"), ["failed"], "s.py"),
    ]
    calls.clear()
    assert (lock.run(options("lock", "a.so", "b.so")), lock.run(options("lock"))) == (3, 3)
    usual = (("lock_path", Path.cwd()), ("check_new", Path("usual"), False))
    assert calls == [
        *(*usual, ("_lock", ("a.so", "b.so"), Path("usual"), [])),
        *(*usual, ("default_out",), ("_lock", ("default",), Path("usual"), [])),
    ]
    for words in (("s.py",), ("s.py", "a", "--arch", "sm_80"), ("a", "s.py", "--arch", "sm_80")):
        said = refused(lock.run, options("lock", *words))
        assert said == "s.py: a script; give it alone, with --arch sm_90a,... to run it dry"
    said = refused(lock.run, options("lock", "caps", "--arch", "sm_80"))
    assert said == "--arch: for a script, which is run dry; a capture folder has its architectures"


def test_each_architecture_is_tried_before_the_first_dry_run(calls: Calls) -> None:
    calls.answer(lock, script_command="command", check_assembled=None)
    calls.answer(lock, run_dry=lambda command, folder, dry: 3 if dry.arch == "sm_90a" else 0)
    calls.put(lock, DryRun=SimpleNamespace(of=lambda arch: SimpleNamespace(arch=arch)))
    failed = lock._run_dry("s.py", ["sm_80", "sm_90a"], Path("folder"))
    assert failed == ["s.py ended with status 3 in its dry run for sm_90a"]
    first, second = (SimpleNamespace(arch=arch) for arch in ("sm_80", "sm_90a"))
    assert calls == [
        ("script_command", ["s.py"], False),
        *(("check_assembled", first), ("check_assembled", second)),
        *(("run_dry", "command", Path("folder"), first), ("run_dry", "command", Path("folder"), second)),
    ]


def test_a_lock_is_written_and_what_it_lacks_is_said(calls: Calls, capsys) -> None:
    calls.answer(lock, lockable_at=([("a", "ptx"), ("b", None), ("c", "ptx")], [], ["dry: note"]), write_lock=None)
    calls.answer(lock, read_whole_lock=SimpleNamespace(budgets="budgets"), spills_note=["s"], budget_notes=["b"])
    assert lock._lock(("dry",), Path("o.lock"), ["failed"], "s.py") == 1
    assert capsys.readouterr().out.splitlines() == [
        "wrote o.lock: 3 kernels; o.lock.d has the PTX of 2",
        *("- failed", "- s.py: note", "- s", "- b"),
    ]
    assert calls == [
        ("lockable_at", ("dry",)),
        ("read_whole_lock", Path("o.lock")),
        ("write_lock", Path("o.lock"), [("a", "ptx"), ("b", None), ("c", "ptx")], {"budgets": "budgets"}),
        *(("spills_note", ["a", "b", "c"]), ("budget_notes", ["a", "b", "c"])),
    ]

    def no_lock(path: Path) -> Any:
        raise SnapshotError("there is none")

    calls.answer(lock, lockable_at=([("a", None)], [], []), read_whole_lock=no_lock, spills_note=[], budget_notes=[])
    assert lock._lock(("a.so",), Path("o.lock"), []) == 0
    assert capsys.readouterr().out == "wrote o.lock: 1 kernel\n"
    assert ("write_lock", Path("o.lock"), [("a", None)], {"budgets": None}) in calls


def test_kernels_of_captures_and_built_files_are_locked_together(calls: Calls) -> None:
    captures = {"r": object.__new__(lock.Capture), "s": "damaged"}
    object.__setattr__(captures["r"], "arch", "sm_80")
    folder = SimpleNamespace(captures=lambda: captures)
    read = SimpleNamespace(kernels=["x", "y"], notes=["built note"])
    calls.answer(lock, is_built=lambda place: place.endswith(".so"), captures_at=folder, working=nullcontext())
    calls.answer(lock, kernels_at=lambda *given, names: ((["k"],), ["note"]), lockable=lambda *given: [("k", "ptx")])
    calls.answer(lock, built_kernels=read)
    check_archs = calls.standing_for("check_archs", None)
    found = lock.lockable_at(["a.so", "caps", "b.so"], ["known"], check_archs)  # type: ignore[list-item]
    assert found == ([("k", "ptx"), ("x", None), ("y", None)], ["k"], ["note", "built note"])
    assert calls[3:] == [
        ("captures_at", "caps"),
        ("check_archs", "caps", {"sm_80"}),
        ("kernels_at", folder, {"names": ("caps",)}),
        ("lockable", ["k"], ["known"]),
        ("working", "reading the kernels of a.so and b.so"),
        ("built_kernels", ["a.so", "b.so"]),
    ]
    said = refused(lock.lockable_at, ["one", "two", "a.so"])
    assert said == "one two: give one capture folder; built files may be several"
    assert lock.lockable_at([]) == ([], [], [])


def test_check_compares_places_and_verifies_or_updates(calls: Calls) -> None:
    now = SimpleNamespace(ptx_sha256="1", ptxas="12.9", options=("-O1",))
    old: Any = SimpleNamespace(ptx_sha256="2", ptxas="12.8", options=None)
    whole: Any = SimpleNamespace(kernels=[old], tests="tests", budgets="budgets")

    def found(places: Any, known: Any, check_archs: Any) -> Any:
        check_archs("/dry", {"sm_80"})
        return check.Found([(now, "ptx")], ["captured"], ["/dry: note in /dry: x", "other"])  # type: ignore[list-item]

    def told_apart(changes: Any, text: Any) -> Any:
        return [*changes, text(now), text(old)], ["further"]

    workflow: Any = SimpleNamespace(is_own="own", tell=calls.standing_for("tell", None))
    calls.answer(check, lockable_at=found, _check_archs=None, note_of=lambda given: [f"bugs of {list(given)}"])
    calls.answer(check, level_of="O1", compare=["change"], _pages="pages", kept_ptx="kept", told_apart=told_apart)
    calls.answer(check, lines_of="lines", _verified=lambda place, own, notes: place == "a.so", give_changes=0)
    calls.answer(check, settled="settled", write_lock=None)
    path, changes = Path("k.lock"), ["change", "ptx", "kept"]
    notes = ["s.py: note in /dry: x", "other", "bugs of [('ptx', '12.9', 'O1')]", "further"]
    for words, code in ((["--verify", "--top", "3"], 1), ([], 0)):
        calls.clear()
        asked = options("check", "k.lock", "s.py", "a.so", "--fail-on", "code", *words)
        assert check._check_places(asked, path, ["/dry", "a.so"], whole, workflow if words else None) == code
        assert calls[0][:3] == ("lockable_at", ["/dry", "a.so"], [old])
        *given, named = calls[-1]
        assert given == ["give_changes", asked.results, asked.fail_on, "k.lock", "s.py a.so", changes, notes]
        assert (named["shown"], named["pages"]) == (asked.shown, "pages")
        verified = [("_verified", "/dry", "s.py", notes), ("_verified", "a.so", "a.so", notes)]
        assert [call for call in calls[1:-1] if call[0] not in ("note_of", "told_apart", "_pages")] == [
            ("_check_archs", "s.py", [old], {"sm_80"}),
            ("level_of", ("-O1",)),
            ("compare", [old], [now]),
            ("kept_ptx", path, old),
            *([("lines_of", ["captured"], changes, "own"), *verified] if words else []),
        ]
        assert (named["tell"] is None) is (not words)
        if words:
            named["tell"]("result")
            assert calls[-1] == ("tell", "result", {"lines": "lines"})
    calls.clear()
    asked = options("check", "k.lock", "s.py", "--update")
    assert check._check_places(asked, path, ["/dry"], whole, workflow) == 0
    assert calls[0][2] == ()
    assert calls[-3:] == [
        ("settled", path, [old], [(now, "ptx")]),
        ("write_lock", path, "settled", "tests", "budgets"),
        (
            *("give_changes", asked.results, (), "k.lock", "s.py", changes),
            *([*notes, "k.lock now holds what is in s.py"], {"gate": False}),
        ),
    ]
    said = refused(check._check_places, options("check", "k.lock", "a", "--fail-on", "compile-time:2x"), *"abcd")
    assert said == "compile-time: a lock has no times; leave out the captures, or `tritonhook diff OLD NEW`"


def test_check_gives_each_way_what_it_needs(calls: Calls) -> None:
    whole = SimpleNamespace(kernels=["k"], budgets="budgets")
    calls.answer(check, _with_lock=lambda options: options, lock_path=Path("usual"), run_of_workflow="workflow")
    calls.answer(check, read_whole_lock=whole, _with_budgets=("rule",), check_new=None, _check_ptx=3, _check_places=4)
    calls.answer(check, is_built=lambda place: place == "a.so", dry_captures=lambda *given: nullcontext(given))
    asked = options("check", "--ptxas", "12.9", "--github")
    with_rules = replace(asked, fail_on=("rule",))
    assert check.run(asked) == 3
    assert calls == [
        ("_with_lock", asked),
        ("lock_path", Path.cwd()),
        ("run_of_workflow", True, asked.results),
        ("read_whole_lock", Path("usual")),
        ("_with_budgets", asked, "budgets"),
        ("_check_ptx", with_rules, Path("usual"), ["k"], "workflow"),
    ]
    calls.clear()
    asked = options("check", "k.lock", "s.py", "a.so", "--arch", "sm_80", "--update")
    assert check.run(asked) == 4
    path, with_rules = Path("k.lock"), replace(asked, fail_on=("rule",))
    places = [("s.py", "sm_80"), ("a.so", None)]
    assert calls[4:] == [
        ("check_new", path, {"force": True}),
        *(("is_built", "s.py"), ("dry_captures", "s.py", "sm_80"), ("is_built", "a.so"), ("dry_captures", *places[1])),
        ("_check_places", with_rules, path, places, whole, "workflow"),
    ]
    captures = "--ptxas and --options: only without captures, which are assembled already"
    verified = "--verify: give captures with launches, or a script and --arch; not with --update"
    for words, said in (
        (("--arch", "sm_80"), "--arch: give a script"),
        (("--update",), "--update: give the captures, or built files"),
        (("k.lock", "caps", "--ptxas", "12.9"), captures),
        (("k.lock", "caps", "--options", "-O1"), captures),
        (("--verify",), verified),
        (("k.lock", "caps", "--verify", "--update"), verified),
    ):
        assert refused(check.run, options("check", *words)) == said
