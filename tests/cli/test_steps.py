"""The steps of the verbs that need a GPU, many versions of ptxas or a while: which step gets what, in which order.

The steps themselves are stood for by functions that keep what they are given; other files test what they do.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_calls import Calls

from tritonhook.capture.selection import Selected, Skipped
from tritonhook.cli import bisect, check, completion, lock, parser, tune, verify
from tritonhook.cli._parser import Parser, TopParser, add_verbs, from_namespace, verb_in
from tritonhook.cli.ab import timed
from tritonhook.cli.lab import caps
from tritonhook.cli.mem import fix
from tritonhook.cli.verify import targets
from tritonhook.errors import DeviceError, SnapshotError, ToolError, TritonHookError, UsageError
from tritonhook.ptxas.tool import Tool
from tritonhook.tuning.engine import TuneSettings
from tritonhook.verify.differential import Recipe
from tritonhook.verify.judgement import Latitude


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    monkeypatch.chdir(tmp_path)
    return Calls(monkeypatch)


def options(*words: str) -> Any:
    """What the verb's `run` gets for these words."""
    namespace = parser(words[0]).parse_args(list(words))
    return from_namespace(namespace.chosen.options, namespace)


def refused(call: Any, *given: Any, kind: type[Exception] = UsageError) -> str:
    with pytest.raises(kind) as raised:
        call(*given)
    return str(raised.value)


def temporary(calls: Calls, module: Any) -> None:
    """The module's temporary folders are named after their prefix, and never made."""
    calls.put(module, tempfile=SimpleNamespace(TemporaryDirectory=lambda prefix: nullcontext(f"/tmp/{prefix}")))


# --- completion -----------------------------------------------------------------------------------


def test_files_complete_what_takes_one(calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    top = Parser(prog="top")
    top.add_argument("--flag", action="store_true")
    top.add_argument("--save", metavar="FILE")
    top.add_argument("--ptxas", metavar="VERSION|PATH")
    top.add_argument("--name", metavar="NAME")
    top.add_argument("--other")
    verb = top.add_subparsers(dest="verb").add_parser("verb")
    verb.add_argument("place", nargs="*")
    verb.add_argument("mode", choices=("a", "b"))
    verb.add_argument("pattern", metavar="REGEX")
    verb.add_argument("--out", metavar="FILE")
    verb.add_argument("--once", metavar="FILE", action="append_const", const=1)
    monkeypatch.setattr("tritonhook.cli.parser", lambda: top)
    shtab = SimpleNamespace(FILE="a file", complete=calls.standing_for("complete", "the script\n"))
    monkeypatch.setitem(sys.modules, "shtab", shtab)
    assert completion.run(options("completion", "zsh")) == 0
    assert calls == [("complete", top, "zsh")] and capsys.readouterr().out == "the script\n"
    completed = {it.dest: it.complete for it in (*top._actions, *verb._actions) if hasattr(it, "complete")}
    assert completed == dict.fromkeys(("save", "ptxas", "place", "out"), "a file")


def test_the_list_of_verbs_and_their_declarations() -> None:
    top = TopParser({}, prog="top")
    add_verbs(top, "verb", (verb_in("tritonhook.cli", "tune"), verb_in("tritonhook.cli", "mem")))
    (choice,) = (it for it in top._actions if isinstance(it, argparse._SubParsersAction))
    tuned, memory = choice.choices["tune"], choice.choices["mem"]
    assert tuned.description == (tune.__doc__ or "").strip()
    assert [it.help for it in choice._choices_actions] == [
        (import_module(f"tritonhook.cli.{name}").__doc__ or "").strip().splitlines()[0] for name in ("tune", "mem")
    ]
    (action,) = (it for it in memory._actions if isinstance(it, argparse._SubParsersAction))
    assert (choice.dest, choice.metavar, action.dest, action.metavar) == ("verb", "VERB", "action", "ACTION")
    declared = {it.dest: (it.option_strings, it.metavar, it.nargs, it.default) for it in tuned._actions}
    assert declared["target"] == ([], None, "*", None)
    assert declared["output"] == (["-o", "--policy"], "FILE", None, None)
    assert declared["check_policy"] == (["--check"], None, 0, False)
    assert declared["trust"][:2] == (["--trust"], None)


# --- tune -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own:
    """A kernel of a capture folder, as far as these steps look at it."""

    name: str
    siblings: tuple[Own, ...] = ()
    launches: tuple[str, ...] = ()
    record: str = "record"
    share: float = 0.25
    config: int = 7

    def as_config(self, *words: Any) -> tuple[Any, ...]:
        return (self.name, *words)


def test_tune_takes_its_steps_in_order(calls: Calls) -> None:
    own = Own("k", (Own("k", launches=("x", "y")), Own("k", launches=("z",))))
    made = SimpleNamespace(path="captures' path")
    temporary(calls, tune)
    calls.answer(
        tune,
        _checked=None,
        why_not_timed=None,
        record_launches=None,
        captures_at=made,
        _kernels=([own], ["skipped"]),
        working=nullcontext(),
        rough_times="times",
        with_shares="shares",
        that_matter=(["matters"], ["other"]),
        _assembled=(["chosen"], ["failed"]),
        tune_progress=nullcontext("progress"),
        tune="ran",
        _keep=None,
        _give=7,
    )
    words = ["--rtol", "0.5", "--limit", "9", "--top", "3", "--min-share", "2%", "-o", "p.toml"]
    asked = options("tune", "s.py", *words, "--", "--steps", "3")
    assert tune.run(asked) == 7
    trusted = options("tune", "s.py", *words, "--trust", "--", "--steps", "3")
    folder = Path("/tmp/tritonhook-tune-/captures")
    assert calls == [
        ("_checked", asked),
        ("why_not_timed",),
        ("record_launches", ["s.py", "--steps", "3"], folder, "nothing was tuned"),
        ("captures_at", folder),
        ("_kernels", trusted, made),
        ("working", "timing the recorded launches"),
        ("rough_times", "captures' path", {"others": ["x", "y", "z"]}),
        ("with_shares", made, [own], "times"),
        ("that_matter", "shares", 3, 0.02),
        ("_assembled", trusted, made, ["matters"], ()),
        ("tune_progress", 1),
        ("tune", ["chosen"], TuneSettings(rtol=0.5, limit_s=9.0, start=tune._start), "progress"),
        ("_keep", Path("p.toml"), (), "ran"),
        ("_give", trusted, "ran", ["failed", "other", "skipped"]),
    ]
    calls.clear()
    calls.answer(tune, _checked=made, read_entries=("entry",), why_not_timed="no GPU")
    Path("p.toml").touch()
    said = refused(tune.run, asked, kind=DeviceError)
    assert said == "no GPU: tuning needs torch and a GPU; --assemble-only needs neither"
    assert calls[1:] == [("read_entries", Path("p.toml")), ("why_not_timed",)]


def test_tune_only_assembles_and_only_checks(calls: Calls) -> None:
    made = SimpleNamespace(path="captures' path")
    calls.answer(tune, _checked=made, _kernels=(["k"], ["skipped"]), _assembled=([("k", "c"), ("l", "d")], ["failed"]))
    calls.answer(tune, keep_choices=None, assembled="ran", _give=0, compare_policy=4, give_policy=5)
    asked = options("tune", "captures", "--assemble-only", "-o", "p.toml")
    assert tune.run(asked) == 0
    assert calls == [
        ("_checked", asked),
        ("_kernels", asked, made),
        ("_assembled", asked, made, ["k"], ()),
        ("keep_choices", "captures' path", "k", "c"),
        ("keep_choices", "captures' path", "l", "d"),
        ("assembled", [("k", "c"), ("l", "d")]),
        ("_give", asked, "ran", ["failed", "skipped"]),
    ]
    calls.clear()
    one, none = options("tune", "--check", "captures", "-o", "p.toml"), options("tune", "--check")
    assert (tune.run(one), tune.run(none)) == (4, 5)
    assert calls == [
        ("compare_policy", Path("p.toml"), "captures", one.sweep, one.results),
        ("give_policy", Path(tune.USUAL_NAME), none.results),
    ]
    for words in (("a", "b"), ("a", "--")):
        said = refused(tune.run, options("tune", "--check", *words))
        assert said == "--check: give a capture folder, or nothing to list the policy"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "nothing to tune; give a script, MODULE:FUNCTION or a capture folder with launches"),
        ("a b", "a b: not understood; give one target, or a script with its arguments"),
        ("m:f b", "m:f b: not understood; give one target, or a script with its arguments"),
        ("a -- -x y", "-- -x y: only a script takes arguments after --"),
        ("m:f --", "-- : only a script takes arguments after --"),
        (
            "m:f --assemble-only",
            "--assemble-only: not for m:f, whose launches are recorded on a GPU; record them there with "
            "`tritonhook run --launch-values`, and give the capture folder",
        ),
        ("m:f --rtol -0.5", "--rtol -0.5: give 0 or more"),
        ("m:f --rtol nan", "--rtol nan: give 0 or more"),
    ],
)
def test_what_tune_refuses(calls: Calls, words: str, said: str) -> None:
    assert refused(tune._checked, options("tune", *words.split())) == said


def test_what_tune_looks_at_before_any_work(calls: Calls) -> None:
    lever = SimpleNamespace(assembling=calls.standing_for("assembling", None))
    calls.answer(tune, captures_at="captures", levers=[lever], kept_controls=None, _controls=(), check_new=None)
    asked = options("tune", "c", "--levers", "O1", "--controls", "x.bin", "-o", "sub/p.toml", "--rtol", "0")
    assert tune._checked(asked) == "captures"
    assert calls == [
        ("captures_at", "c"),
        ("levers", "O1"),
        ("assembling", Path.cwd() / "sub"),
        ("kept_controls", Path("x.bin")),
        ("_controls", asked, tune.CONTROLS_VERSION),
        ("check_new", Path("sub/p.toml"), {"force": True}),
    ]
    calls.clear()
    assert tune._checked(options("tune", "c", "--assemble-only")) == "captures"
    assert tune._checked(options("tune", "s.py", "a", "--", "b")) is None
    assert [call[0] for call in calls] == ["captures_at", "_controls", "_controls", "check_new"]


def test_kernels_are_assembled_unless_the_folder_keeps_their_codes(calls: Calls) -> None:
    first, second, third = Own("a1"), Own("a2"), Own("a3")
    a, b, c, d = Own("a", (first, second, third)), Own("b", share=0.5), Own("c"), Own("d")
    skipped = Skipped("c", "record", "no PTX")
    calls.put(tune, Subject=SimpleNamespace, Choice=Own)
    subjects = {own: SimpleNamespace(own=own.name) for own in (a, first, b)}
    calls.answer(
        tune,
        kept_choices=lambda captures, own: Own("kept") if own is d else None,
        subject_of=lambda captures, own, trust: skipped if own is c else subjects[own],
        _earlier=lambda own, before: (f"earlier of {own.name}",),
        _levers=("one", "two"),
        running=nullcontext(("go", calls.standing_for("expect", None))),
        choices=[Own("of a"), Own("of a1"), "ptxas crashed"],
        _with_siblings=Own("whole"),
    )
    calls.answer("tritonhook.cli._sweeps.Sweep", cache="cache")
    asked = options("tune", "captures", "--configs", "2", "-o", "sub/p.toml", "--trust")
    folder: Any = "captures"
    assert tune._assembled(asked, folder, [a, b, c, d], ["before"]) == (  # type: ignore[list-item, comparison-overlap]
        [(a, Own("whole")), (d, Own("kept"))],
        [skipped, Skipped("b", "record", "ptxas crashed", 0.5)],
    )
    assert calls == [
        *(("kept_choices", folder, own) for own in (a, b, c, d)),
        *(("subject_of", folder, own, True) for own in (a, first, b, c)),
        *(
            call
            for own in (a, first, b)
            for call in (
                ("_earlier", own, ["before"]),
                ("_levers", asked, subjects[own], (f"earlier of {own.name}",)),
            )
        ),
        ("cache", asked.sweep),
        ("running", asked.sweep, "cache"),
        ("expect", 9),
        ("choices", [(subjects[own], ("one", "two")) for own in (a, first, b)], "go", Path.cwd() / "sub"),
        (
            "_with_siblings",
            *(asked, folder, a, {d: Own("kept"), a: Own("whole"), first: Own("of a1")}),
        ),
    ]
    for word in ("--levers=O1", "--controls=x", "--assemble-only"):
        calls.clear()
        tune._assembled(options("tune", "captures", word), folder, [c], ())  # type: ignore[list-item]
        assert [call[0] for call in calls] == ["subject_of"]


def test_the_other_configurations_have_their_levers_or_are_as_captured(calls: Calls, monkeypatch) -> None:
    siblings = tuple(Own(name, launches=(name.upper(),), config=n) for n, name in enumerate("xyz"))
    kernel = Own("k", siblings)
    calls.answer(tune, plain_choice=lambda captures, own, trust: None if own.name == "y" else Own("plain"))
    made: Any = {kernel: Own("whole"), siblings[0]: Own("tried")}
    whole = tune._with_siblings(options("tune", "c"), "captures", kernel, made)  # type: ignore[arg-type]
    assert whole == Own("whole", (("tried", "0", ("X",)), ("plain", "2", ("Z",))))  # type: ignore[arg-type, comparison-overlap]
    assert calls == [("plain_choice", "captures", own, False) for own in siblings[1:]]


@pytest.mark.parametrize(("entries", "pins", "code"), [("f", "f", 0), ("ft", "f", 1), ("f", "t", 1), ("", "", 0)])
def test_a_policy_is_compared_with_captures(calls: Calls, entries: str, pins: str, code: int) -> None:
    def states(letters: str) -> list[Any]:
        return [SimpleNamespace(state=SimpleNamespace(is_trouble=letter == "t")) for letter in letters]

    of_entries, of_pins = states(entries), states(pins)
    folder = SimpleNamespace(records=("a", "b"), capture=str.upper)
    calls.answer(tune, captures_at=folder, running=nullcontext(("go", None)), against_captures=of_entries)
    calls.answer(tune, pins_against=of_pins, outdated_note="note", give=None)
    calls.answer("tritonhook.cli._sweeps.Sweep", cache="cache")
    calls.answer_made("tritonhook.report.results.policy.PolicyResult", "result")
    sweep, path = options("tune").sweep, Path("p.toml")
    assert tune.compare_policy(path, "place", sweep, "results") == code  # type: ignore[arg-type]
    assert calls == [
        ("captures_at", "place"),
        ("cache", sweep),
        ("running", sweep, "cache"),
        ("against_captures", path, ["A", "B"], "go"),
        ("pins_against", path, folder),
        ("outdated_note", folder),
        ("PolicyResult", "p.toml", "place", of_entries, "note", of_pins),
        ("give", "results", "result", "p.toml"),
    ]


def test_the_result_of_a_tuning_names_target_and_policy(calls: Calls) -> None:
    calls.answer(tune, give=lambda results, make: make(True))
    calls.answer_made("tritonhook.report.results.tuning.Tuning", None)
    for words, target, stopped, code in (
        (("s.py", "a", "--", "b", "c"), "s.py a -- b c", "interrupted", 130),
        (("s.py", "--"), "s.py", None, 0),
    ):
        ran: Any = SimpleNamespace(stopped=stopped)
        assert tune._give(options("tune", "-o", "p.toml", *words), ran, ["skipped"]) == code  # type: ignore[list-item]
        assert calls[-1] == ("Tuning", target, "p.toml", ran, ["skipped"], True)


# --- bisect ---------------------------------------------------------------------------------------

ENDS = ("--good", "12.8.93", "--bad", "12.9.86")


@dataclass(frozen=True)
class Ended:
    """The end of the search for one kernel."""

    name: str
    first: str | None = None
    problem: str | None = None
    arch: str = "sm_90a"

    @property
    def identity(self) -> Any:
        return SimpleNamespace(text=f"{self.name} {self.arch}", arch=self.arch)


UNSTEADY = "ptxas is not deterministic for sm_10x: each version was run several times, and all its codes count"


@pytest.mark.parametrize(
    ("ended", "on", "code", "said", "notes"),
    [
        ([Ended("a"), Ended("b")], "spills", 0, [], []),
        ([Ended("a"), Ended("b", first="12.9.1", problem="x")], "instructions", 1, [], []),
        ([Ended("a", problem="x"), Ended("b", arch="sm_100a")], "loop_instructions", 2, ["a sm_90a: x"], [UNSTEADY]),
        (
            [Ended("a"), Ended("b", problem="x"), Ended("c", problem="y"), Ended("d", problem="z")],
            *("code", 2, ["b sm_90a: x (and the same for 2 more)"], []),
        ),
    ],
)
def test_bisect_searches_for_all_kernels(calls: Calls, ended, on: str, code: int, said: list[str], notes) -> None:
    first, again = (Tool(Path(f"/{n}/ptxas"), "12.9.86", "PATH") for n in (1, 2))
    kernels = [SimpleNamespace(locked=SimpleNamespace(identity=name)) for name in "ab"]
    calls.answer(bisect, _kernels=kernels, available_ptxas=[first, again], _versions=("12.8.93", "12.9.86"))
    calls.answer(bisect, disassembler="disassemble", bisect=ended, give=None, say=None)
    calls.answer_made("tritonhook.report.results.bisect.Bisect", "result")
    asked = options("bisect", "k.ptx", *ENDS, "--on", on, "--all")
    assert bisect.run(asked) == code
    counted = on in ("instructions", "loop_instructions")
    searches = [bisect.Search(name, on, ("12.8.93", "12.9.86")) for name in "ab"]  # type: ignore[arg-type]
    tools = bisect._Tools({"12.9.86": first})
    assemble = bisect._Assemble(kernels, tools, asked.sweep, "disassemble" if counted else None)  # type: ignore[arg-type]
    assert calls == [
        ("_kernels", asked),
        ("available_ptxas",),
        ("_versions", asked, tools),
        *([("disassembler",)] if counted else []),
        ("bisect", searches, assemble, frozenset({"12.9.86"}), True),
        ("Bisect", "k.ptx", ended, True, notes),
        ("give", asked.results, "result"),
        *(("say", f"tritonhook bisect: {line}") for line in said),
    ]


def test_versions_between_two_of_which_each_is_there(calls: Calls) -> None:
    tools = bisect._Tools(dict.fromkeys(("12.8.93", "12.10.1", "12.9.86", "13.0.1", "11.8.89", "12.0.5", "9.0.1")))  # type: ignore[arg-type]
    calls.answer(bisect, _released=["12.9.1", "12.9.86", "14.0.0"])

    def between(good: str, bad: str, *words: str) -> tuple[str, ...]:
        return bisect._versions(options("bisect", "k", "--good", good, "--bad", bad, *words), tools)

    assert between("12.8.93", "12.10.1") == ("12.8.93", "12.9.1", "12.9.86", "12.10.1")
    assert between("12.8.93", "12.10.1", "--at-hand") == ("12.8.93", "12.9.86", "12.10.1")
    assert calls == [("_released",)]
    older = "give the older version as --good, even if it is the worse one"
    assert refused(between, "12.9.86", "12.9.86") == f"--good 12.9.86 --bad 12.9.86: {older}"
    near = "12.8.93, 12.9.86, 12.10.1, 12.0.5, 11.8.89"
    said = refused(between, "12.8.90", "13.0.1", "--at-hand")
    assert said == f"--good 12.8.90: no such version at hand; near it are {near}"
    said = refused(between, "12.8.93", "13.0.2")
    assert said == (
        "--bad 13.0.2: no such version on the package index; near it are 13.0.1, 14.0.0, 12.0.5, 12.8.93, 12.9.1"
    )
    assert bisect._distance("12.8.93", "13.5") == (1, 3) and bisect._distance("13.5", "12.8.93") == (1, 3)


def test_the_ptx_of_each_kind_of_place(calls: Calls) -> None:
    def capture(name: str, text: str | None) -> Any:
        facts = SimpleNamespace(identity=SimpleNamespace(kernel=f"{name}!"))
        return SimpleNamespace(kernel=name, options={"n": 1}, text=lambda stage: text), facts

    kernels = [capture("a", "ptx a"), capture("b", None), capture("c", "ptx c"), capture("d", "ptx d")]
    facts = [own for _, own in kernels]
    calls.answer(bisect, is_folder=True, kernels_at=((kernels,), ["note"]))
    calls.answer(bisect, fits=lambda entry, kernel, options: kernel in ("b", "c"))
    assert list(bisect._with_ptx("place", "a!")) == [(facts[0], "ptx a"), (facts[2], "ptx c")]
    assert calls[:2] == [("is_folder", "place"), ("kernels_at", "place")]
    assert calls[2:] == [("fits", "a!", name, {"n": 1}) for name in "bcd"]
    Path("one").mkdir()
    Path("k.lock").touch()
    loaded = SimpleNamespace(ptx=SimpleNamespace(text="text"), entry="k", assembler=SimpleNamespace(options=("-O1",)))
    locked = [SimpleNamespace(identity=SimpleNamespace(kernel=kernel), entry=f"_{kernel}") for kernel in "aba"]
    calls.answer(bisect, is_folder=False, load_input=loaded, _unknown="unknown", is_lock=True, read_lock=locked)
    calls.answer(bisect, all_kept_ptx=lambda path, kernels: [f"ptx {it.entry}" for it in kernels])
    assert list(bisect._with_ptx("one", "k")) == [("unknown", "text")]
    assert calls[-2:] == [("load_input", "one", "k"), ("_unknown", "k", loaded.ptx, ("-O1",))]
    loaded.assembler = None
    assert list(bisect._with_ptx("one", "k")) and calls[-1] == ("_unknown", "k", loaded.ptx, None)
    loaded.ptx = None
    said = refused(list, bisect._with_ptx("one", None))
    assert said == "one: no PTX in it, so no ptxas can assemble it; capture it again"
    assert list(bisect._with_ptx("k.lock", "a")) == [(locked[0], "ptx _a"), (locked[2], "ptx _a")]
    assert list(bisect._with_ptx("k.lock", "_b")) == [(locked[1], "ptx _b")]
    assert [kernel for kernel, _ in bisect._with_ptx("k.lock", None)] == locked
    assert calls[-1] == ("all_kept_ptx", Path("k.lock"), locked)
    calls.answer(bisect, is_lock=False, load_file="file", _of_file=lambda file, entry: iter([(file, entry)]))
    assert list(bisect._with_ptx("k.ptx", "x")) == [("file", "x")] and calls[-2] == ("load_file", "k.ptx")


# --- verify ---------------------------------------------------------------------------------------


def tool(version: str) -> Tool:
    return Tool(Path(f"/{version}/ptxas"), version, "added")


def test_each_version_that_is_asked_for_is_a_build() -> None:
    own, older, newer = tool("12.9.86"), tool("12.8.93"), tool("12.10.1")
    spare = Recipe(older, ("-O0",))
    usual = [
        Recipe(own, ("-O3",), others=(spare,)),
        Recipe(own, ("-O0",)),
        Recipe(newer, ("-O3",), others=(Recipe(older, ("-O3",)),)),
        Recipe(own, ("-O3",), as_used=True),
    ]
    assert targets._against(usual, own) == (
        *usual[:2],
        Recipe(older, ("-O3",)),
        Recipe(newer, ("-O3",)),
        usual[3],
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("m:f",), ["record_launches", "_of_captures"]),
        (("s.py", "a"), ["record_launches", "_of_captures"]),
        (("caps",), ["_of_captures"]),
        (("caps", "--args", "x"), ["_of_file"]),
        (("k.ptx",), ["_of_file"]),
        (("a", "b"), ["_of_cubins"]),
    ],
)
def test_what_verify_takes_for_a_target(calls: Calls, words: tuple[str, ...], expected: list[str]) -> None:
    Path("caps", "index").mkdir(parents=True)
    Path("a").touch()
    Path("b").touch()
    calls.answer(targets, record_launches=None, _of_captures=["one", "two"], _of_cubins="one", _of_file="one")
    asked, folder = options("verify", *words), Path("folder")
    found = list(targets.subjects_of(asked, folder))
    assert found == (["one", "two"] if "_of_captures" in expected else ["one"])
    assert [call[0] for call in calls] == expected
    trusted = options("verify", *words, "--trust")
    assert (
        calls[-1][1:]
        == {
            "m:f": (trusted, folder / "captures"),
            "s.py": (trusted, folder / "captures"),
            "caps": (asked, "caps" if "--args" in words else Path("caps")),
            "k.ptx": (asked, "k.ptx"),
            "a": (asked, "a", "b", folder),
        }[words[0]]
    )


def test_verify_records_a_program_with_its_arguments(calls: Calls) -> None:
    for name in "abc":
        Path(name).touch()
    calls.answer(targets, record_launches=None, _of_captures=[])
    list(targets.subjects_of(options("verify", "s.py", "a", "--", "--steps", "3"), Path("folder")))
    recorded = ("record_launches", ["s.py", "a", "--steps", "3"], Path("folder/captures"), "nothing was verified")
    assert calls[0] == recorded

    def given(*words: str) -> Any:
        return list(targets.subjects_of(options("verify", *words), Path("folder")))

    assert refused(given, "s.py", "--args", "x") == "--args: not allowed here: s.py is run to record its launches"
    said = refused(given, "a", "b", "c")
    assert said == "b c: not understood; give one target, two builds of one kernel, or a script"


def test_verify_without_a_gpu_wants_numpy_and_captures(calls: Calls) -> None:
    remedy = "verify can emulate kernels with numpy: `pip install 'tritonhook[emulate]'`. `tritonhook verify --known "
    for reason, numpy, script in (("no GPU", "no GPU", "no GPU"), (None, "numpy is not installed", "--cpu")):
        calls.answer(targets, find_spec=None, why_no_gpu=reason)
        said = refused(targets.check_cpu, options("verify", "k.ptx"), kind=DeviceError)
        assert said == f"{numpy}; {remedy}FILE|CAPTURES` needs neither"
        calls.answer(targets, find_spec="numpy")
        for program in ("s.py", "m:f"):
            assert refused(targets.check_cpu, options("verify", program)) == (
                f"{script}: the launches of {program} come from a dry run: "
                f"`tritonhook run --arch sm_90a {program}`, then `tritonhook verify tritonhook-captures`"
            )
    targets.check_cpu(options("verify", "k.ptx"))
    assert calls[-1] == ("find_spec", "numpy")


def test_every_kernel_of_a_folder_is_run_or_has_a_reason(calls: Calls) -> None:
    folder: Any = SimpleNamespace(path=Path("caps"))
    skipped = Skipped("k", "r", "why")
    chosen = [object.__new__(Selected), skipped]
    calls.answer(targets, captures_at=folder, selected=lambda *given, dry: chosen, _of_record="of a record")
    asked = options("verify", "caps", "--entry", "k", "--launch", "key", "--cpu")
    assert list(targets._of_captures(asked, Path("caps"))) == ["of a record", skipped]
    assert calls == [
        ("captures_at", Path("caps")),
        ("selected", folder, "k", "key", {"dry": True}),
        ("_of_record", asked, folder, chosen[0]),
    ]
    del chosen[0]
    for words, what in ((("--entry", "k"), "no kernel 'k'"), ((), "no kernels")):
        said = refused(list, targets._of_captures(options("verify", "caps", *words), Path("caps")))
        assert said == f"caps: {what} in this capture folder"


def test_a_record_without_a_launch_or_that_cannot_be_read_is_skipped(calls: Calls, monkeypatch) -> None:
    folder: Any = SimpleNamespace(path=Path("caps"))

    def chosen(*paths: str, unrecorded: str = "") -> Any:
        launches = [SimpleNamespace(path=path) for path in paths]
        capture = SimpleNamespace(kernel="k")
        return SimpleNamespace(capture=capture, record="r", launches=launches, unrecorded=unrecorded)

    def fail(*given: Any) -> Any:
        raise TritonHookError("damaged")

    asked = options("verify", "caps")
    calls.answer(targets, load_input="given", _subject="subject")
    assert targets._of_record(asked, folder, chosen("first", "second")) == "subject"
    assert calls == [("load_input", "caps/kernels/r", None), ("_subject", asked, "given", "first")]
    record_it = "record with `tritonhook run --launches`, or give one with --args and --entry"
    for unrecorded, reason in (("", f"no launch of it was recorded; {record_it}"), ("why", "why")):
        assert targets._of_record(asked, folder, chosen(unrecorded=unrecorded)) == Skipped("k", "r", reason)
    calls.answer(targets, _subject=fail)
    assert targets._of_record(asked, folder, chosen("first")) == Skipped("k", "r", "damaged")


def test_a_subject_has_the_recipes_of_its_ptx(calls: Calls) -> None:
    given: Any = SimpleNamespace(label="k.ptx", ptx="ptx", entry="k")
    calls.answer(targets, load_input=given, launch_of=Path("caps/launch.json"), chosen_ptxas="own", recipes=("r",))
    calls.answer(
        targets,
        chosen_arguments=("-O1",),
        latitude_of="latitude",
        find_ptxas=lambda version: version.upper(),
        _against=("a",),
    )
    calls.answer(targets, available_ptxas=iter("xy"), read_launch="launch")
    words = ("--args", "x", "--launch", "key", "--entry", "k", "--ptxas", "1.2", "--options", "-O1", "--trust")
    asked = options("verify", "k.ptx", *words)
    made = targets.VerifySubject("k", "launch", Path("caps"), "latitude", "ptx", ("r",))  # type: ignore[arg-type]
    assert targets._of_file(asked, "k.ptx") == made
    assert calls == [
        ("load_input", "k.ptx", "k"),
        ("launch_of", "x", "key", ["k.ptx"], {"dry": False}),
        ("chosen_ptxas", "1.2", True, [given]),
        ("chosen_arguments", "-O1", [given]),
        ("latitude_of", "ptx"),
        ("available_ptxas",),
        ("recipes", "own", ("-O1",), "latitude", ["x", "y"]),
        ("read_launch", Path("caps/launch.json")),
    ]
    calls.clear()
    found = targets._of_file(options("verify", "k.ptx", "--against", "a,b", "--cpu"), "k.ptx")
    assert found.recipes == ("a",) and calls[1] == ("launch_of", None, None, ["k.ptx"], {"dry": True})
    assert calls[5:8] == [
        *(("find_ptxas", "a"), ("find_ptxas", "b")),
        ("recipes", "own", ("-O1",), "latitude", ["A", "B"]),
    ]
    given.ptx = None
    said = refused(targets._of_file, asked, "k.ptx")
    assert said == "k.ptx: no PTX to assemble again; give a second build, to compare the two as they are"


def test_two_builds_are_run_as_they_are(calls: Calls) -> None:
    cubin = SimpleNamespace(data=b"data")
    first: Any = SimpleNamespace(label="a", entry="ka", ptx=None, cubin=cubin, ptxas="1.2")
    second: Any = SimpleNamespace(label="b", entry="kb", ptx="ptx", cubin=None, ptxas="1.3")
    made = SimpleNamespace(assemble_or_raise=calls.standing_for("assemble", SimpleNamespace(cubin=cubin)))
    calls.answer(targets, launch_of=Path("caps/launch.json"), load_pair=(first, second), toolchain_of=made)
    calls.answer(targets, chosen_ptxas="own", chosen_arguments=("-O1",), read_launch="launch")
    calls.answer(targets, latitude_of=Latitude(approximate=("ex2",)))
    Path("a").touch()
    Path("b").touch()
    asked = options("verify", "a", "b", "--entry", "k", "--args", "x", "--launch", "key", "--cpu", "--options", "-O2")
    folder = Path("new/folder")
    builds = (
        targets.Build("a", folder / "0.cubin", "ka", "1.2"),
        targets.Build("b", folder / "1.cubin", "kb", "1.3"),
    )
    latitude = Latitude(contracted=True, approximate=("ex2",))
    subject = targets.VerifySubject("ka", "launch", Path("caps"), latitude, None, (), builds)  # type: ignore[arg-type]
    assert targets._of_cubins(asked, "a", "b", folder) == subject
    assert [build.path.read_bytes() for build in builds] == [b"data", b"data"]
    assert calls == [
        ("launch_of", "x", "key", ["a", "b"], {"dry": True}),
        ("load_pair", "a", "b", "k"),
        ("chosen_ptxas", None, False, [second]),
        ("toolchain_of", "own"),
        ("chosen_arguments", "-O2", [second]),
        ("assemble", "ptx", ("-O1",)),
        ("latitude_of", "ptx"),
        ("read_launch", Path("caps/launch.json")),
    ]
    second.ptx, second.cubin = None, cubin
    found = targets._of_cubins(asked, "a", "b", folder)
    assert found.latitude == Latitude(contraction=True, contracted=True)
    assert found.build(Path(), None) == targets.Built(builds, (), ())  # type: ignore[arg-type]


# --- ab -------------------------------------------------------------------------------------------


def test_ab_prepares_times_and_saves(calls: Calls, capsys) -> None:
    def but(**changes: Any) -> Any:
        return calls.standing_for("but", made)(**changes)

    made = SimpleNamespace(notes=("n2",), but=but)
    plan = SimpleNamespace(plan="plan", notes=("n1",))
    temporary(calls, timed)
    calls.answer(timed, working=nullcontext(), refuse_without_gpu=None, progress_bar=nullcontext("bar"))
    calls.answer(timed, target_of=SimpleNamespace(prepare=calls.standing_for("prepare", plan)))
    calls.answer(timed, time_plan=made, _code={"k": "more"}, to_json="text", write_new=None)
    calls.answer_made("tritonhook.report.results.ab.TimedComparison", SimpleNamespace(document=lambda: "document"))
    for words, band, processes, seconds in (
        (["--band", "3%", "--processes", "1", "--seconds", "0.5", "--save", "s.json"], 0.03, 1, 0.5),
        ([], timed.DEFAULT_BAND, timed.MIN_PROCESSES, timed.DEFAULT_SECONDS),
    ):
        calls.clear()
        asked = options("ab", "m:f", *words)
        assert timed._measure(asked) is made
        saved = [
            ("TimedComparison", made),
            ("to_json", "document"),
            ("write_new", Path("s.json"), "text", False),
        ]
        assert calls == [
            ("working", "preparing the sides"),
            ("target_of", asked),
            ("prepare", Path("/tmp/tritonhook-ab-")),
            ("refuse_without_gpu", "nothing was timed"),
            ("progress_bar", seconds),
            ("time_plan", "plan", band, processes, seconds, "bar"),
            ("_code", "plan", made),
            ("but", {"notes": ("n1", "n2"), "code": {"k": "more"}}),
            *(saved if words else []),
        ]
    wrong = "--processes and --seconds must be positive"
    for words in (["--processes", "0"], ["--seconds", "0"], ["--seconds", "nan"], ["--seconds", "-1"]):
        assert refused(timed._measure, options("ab", "m:f", *words)) == wrong


def test_ab_gives_what_was_timed_or_saved(calls: Calls) -> None:
    calls.answer(timed, check_new=None, _measure="measured", _saved="saved", give=None, exit_code=5)
    calls.answer_made("tritonhook.report.results.ab.TimedComparison", "result")
    measured = options("ab", "m:f", "--save", "s.json", "--force", "--fail-on", "slower")
    assert timed.run(measured) == 5
    assert calls == [
        ("check_new", Path("s.json"), True),
        ("_measure", measured),
        ("TimedComparison", "measured", {"judged": True}),
        ("give", options("ab", "m:f", "--force").results, "result"),
        ("exit_code", "measured", "slower"),
    ]
    calls.clear()
    saved = options("ab", "--from", "s.json")
    assert timed.run(saved) == 5 and calls[0] == ("_saved", saved, Path("s.json"))
    assert calls[-1] == ("exit_code", "saved", None)
    said = "nothing to time; give MODULE:FUNCTION, a script, a capture with launches, or --from FILE"
    assert refused(timed.run, options("ab")) == said


def test_what_differs_in_the_code_is_described_or_the_reason_given(calls: Calls) -> None:
    def fail() -> Any:
        raise TritonHookError("no ptxas")

    plan: Any = SimpleNamespace(images=("image",), launch="launch", out=Path("out"))
    ran: Any = SimpleNamespace(changed_kernels=("a", "b"))
    calls.answer(timed, find_toolchain="tools", describe_images={"i": ""}, describe_captures={"c": ""})
    assert timed._code(plan, ran) == {"i": ""}
    plan.images = ()
    assert timed._code(plan, ran) == {"c": ""}
    assert timed._code(plan, SimpleNamespace(changed_kernels=())) == {}  # type: ignore[arg-type]
    assert calls == [
        ("find_toolchain",),
        ("describe_images", ("image",), "launch", "tools"),
        ("find_toolchain",),
        ("describe_captures", Path("out/0"), ("a", "b"), "tools"),
    ]
    calls.answer(timed, find_toolchain=fail, complain=None)
    assert timed._code(plan, ran) == {"a": "not known: no ptxas"}
    error = UsageError("it is there")

    def refuse() -> None:
        raise error

    timed._try("--save", refuse)
    assert calls[-1] == ("complain", "ab --save", error)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["SAME"], 0),
        (["SAME", "SKIPPED"], 0),
        (["SKIPPED", "NOT_UNDERSTOOD"], 2),
        (["NOT_UNDERSTOOD"], 2),
        ([], 2),
        (["DIFFERENT", "SKIPPED"], 1),
        (["SAME", "CRASH"], 1),
    ],
)
def test_verify_gives_what_was_found(calls: Calls, verdicts: list[str], code: int) -> None:
    found = tuple(SimpleNamespace(verdict=verify.Verdict[name]) for name in verdicts)
    executor = SimpleNamespace(device="GPU")
    temporary(calls, verify)
    calls.answer(verify, why_no_gpu=None, check_cpu=None, _runner=nullcontext(executor), _verified=found, give=None)
    calls.answer_made("tritonhook.report.results.verification.Verification", "result")
    Path("a").touch()
    Path("b").touch()
    asked = options("verify", "a", "b")
    assert verify.run(asked) == code
    steps = [
        ("_runner", asked),
        ("_verified", asked, Path("/tmp/tritonhook-verify-"), executor),
        ("Verification", "a b", "GPU", found),
        ("give", asked.results, "result"),
    ]
    assert calls == [("why_no_gpu",), *steps]
    calls.clear()
    calls.answer(verify, why_no_gpu="no GPU")
    on_cpu = options("verify", "a", "b", "--cpu")
    assert verify.run(asked) == code
    assert calls[:3] == [("why_no_gpu",), ("check_cpu", on_cpu), ("_runner", on_cpu)]


def test_what_runs_the_kernels_has_the_limit_asked_for(calls: Calls) -> None:
    calls.answer(verify, Executor=None, CpuExecutor=None)
    for words in ((), ("--limit", "7"), ("--cpu",), ("--cpu", "--limit", "70", "--ctas", "3")):
        for most in (None, 5.0, 100.0):
            verify._runner(options("verify", "k.ptx", *words), most)
    on_gpu, on_cpu, ctas = verify.LIMIT_S, verify.CPU_LIMIT_S, targets.CTAS
    assert calls == [
        *(("Executor", limit) for limit in (on_gpu, min(on_gpu, 5), min(on_gpu, 100), 7, 5, 7)),
        *(("CpuExecutor", ctas, limit) for limit in (on_cpu, min(on_cpu, 50), min(on_cpu, 1000))),
        *(("CpuExecutor", 3, limit) for limit in (70, 50, 70)),
    ]
    for words in (("--runs", "0"), ("--ctas", "0"), ("--limit", "0"), ("--limit", "nan")):
        said = refused(verify.run, options("verify", "k.ptx", *words))
        assert said == "--runs, --ctas and --limit must be positive"


# --- lock and check -------------------------------------------------------------------------------


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
    path = Path("k.lock")
    for words, code in ((("--verify", "--top", "3"), 1), ((), 0)):
        calls.clear()
        asked = options("check", "k.lock", "s.py", "a.so", "--fail-on", "code", *words)
        assert check._check_places(asked, path, ["/dry", "a.so"], whole, workflow if words else None) == code
        changes = ["change", "ptx", "kept"]
        notes = ["s.py: note in /dry: x", "other", "bugs of [('ptx', '12.9', 'O1')]", "further"]
        name, places, known, _ = calls[0]
        assert (name, places, known) == ("lockable_at", ["/dry", "a.so"], [old])
        given = calls[-1]
        assert given[:-1] == ("give_changes", asked.results, asked.fail_on, "k.lock", "s.py a.so", changes, notes)
        assert (given[-1]["shown"], given[-1]["pages"]) == (asked.shown, "pages")
        assert calls[1] == ("_check_archs", "s.py", [old], {"sm_80"})
        steps = [call for call in calls[2:-1] if call[0] not in ("note_of", "told_apart")]
        assert steps[:4] == [
            ("level_of", ("-O1",)),
            ("compare", [old], [now]),
            ("_pages", [old], check.Found([(now, "ptx")], ["captured"], calls_notes(calls))),  # type: ignore[list-item]
            ("kept_ptx", path, old),
        ]
        assert steps[4:] == (
            [
                ("lines_of", ["captured"], changes, "own"),
                *(("_verified", "/dry", "s.py", notes), ("_verified", "a.so", "a.so", notes)),
            ]
            if words
            else []
        )
        if words:
            given[-1]["tell"]("result")
            assert calls[-1] == ("tell", "result", {"lines": "lines"})
        else:
            assert given[-1]["tell"] is None
    calls.clear()
    asked = options("check", "k.lock", "s.py", "--update")
    assert check._check_places(asked, path, ["/dry"], whole, workflow) == 0
    assert calls[0][2] == () and calls[-3:-1] == [
        ("settled", path, [old], [(now, "ptx")]),
        ("write_lock", path, "settled", "tests", "budgets"),
    ]
    notes = [*notes, "k.lock now holds what is in s.py"]
    assert calls[-1] == ("give_changes", asked.results, (), "k.lock", "s.py", changes, notes, {"gate": False})
    said = refused(check._check_places, options("check", "k.lock", "a", "--fail-on", "compile-time:2x"), *"abcd")
    assert said == "compile-time: a lock has no times; leave out the captures, or `tritonhook diff OLD NEW`"


def calls_notes(calls: Calls) -> list[str]:
    """The notes of what was found at the places, as they were before the user's names stood in them."""
    (pages,) = (call for call in calls if call[0] == "_pages")
    assert pages[2].notes == ["/dry: note in /dry: x", "other"]
    return list(pages[2].notes)


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


# --- lab and mem ----------------------------------------------------------------------------------


def test_a_survey_asks_for_known_targets_and_says_what_it_costs(calls: Calls, monkeypatch) -> None:
    monkeypatch.delenv("TRITONHOOK_QUIET", raising=False)
    expect = calls.standing_for("expect", None)
    calls.answer(caps, _matching=["probe"], wanted_tools=["tool", "other"], running=nullcontext(("go", expect)))
    calls.answer(caps, find_nvdisasm="nvdisasm", give=None, say=None, usable_processors=2, is_quiet=False)
    calls.answer("tritonhook.cli._sweeps.Sweep", cache="cache")
    calls.answer("tritonhook.ptxas.tool", targets=lambda tool: {"tool": ["sm_80"], "other": ["sm_120a", "sm_20"]}[tool])

    def survey(tools: Any, archs: Any, probes: Any, go: Any, nvdisasm: Any, announced: Any, cache: Any) -> str:
        announced(999)
        announced(6000)
        return "matrix"

    calls.answer("tritonhook.lab.capabilities", survey=survey)
    calls.answer_made("tritonhook.report.results.capabilities.Capabilities", "result")
    said = "tritonhook: 6,000 assemblies, about 1 min here; those of earlier runs are cached"
    for words, archs in (
        ((), ("sm_80", "sm_120a")),
        (("--arch", "all"), None),
        (("--arch", "sm_90a, sm_80,"), ("sm_90a", "sm_80")),
    ):
        calls.clear()
        asked = options("lab", "caps", *words, "--ptxas", "12.8.93,all", "--only", "TMA")
        assert caps.run(asked) == 0
        _, *surveyed = next(call for call in calls if call[0] == "survey")
        assert surveyed[:5] == [["tool", "other"], archs, ["probe"], "go", "nvdisasm"] and surveyed[6] == "cache"
        without = [call for call in calls if call[0] not in ("survey", "targets")]
        assert without[0][0] == "_matching" and without[0][2] == "TMA"
        assert without[1:] == [
            ("wanted_tools", ("12.8.93", "all")),
            ("cache", asked.sweep),
            ("running", asked.sweep, "cache"),
            ("find_nvdisasm",),
            ("expect", 999),
            *(("is_quiet",), ("usable_processors",), ("say", said), ("expect", 6000)),
            ("Capabilities", "matrix"),
            ("give", asked.results, "result"),
        ]


def test_a_memory_fix_assembles_both_forms_by_the_recorded_ptxas(calls: Calls, capsys) -> None:
    own = SimpleNamespace(path="path", version="1.2")
    ptx, changed = "ptx", SimpleNamespace(text="fixed")
    loads = [SimpleNamespace(refusal=None)]
    calls.put(fix, ClusterToCta=lambda: SimpleNamespace(apply=calls.standing_for("apply", changed)))
    calls.answer(
        fix, _load=(ptx, ("-O1",), own), sites=loads, write_new=None, recorded_ptxas=None, find_ptxas=tool("9")
    )
    calls.answer(fix, working=nullcontext(), _effects=["effect"], give=None)
    calls.answer_made("tritonhook.report.results.stacks.MemoryFix", "result")
    Path("k.ptx").touch()
    asked = options("mem", "fix", "k.ptx", "-o", "o.ptx", "--force", "--target", "sm_120a", "--trust")
    assert fix.run(asked) == 0 and capsys.readouterr().err == "wrote o.ptx\n"
    assert calls == [
        ("_load", Path("k.ptx")),
        ("sites", ptx),
        ("apply", ptx),
        ("write_new", Path("o.ptx"), "fixed", True),
        ("recorded_ptxas", "path", "1.2", True),
        ("find_ptxas", None),
        ("working", "assembling both forms with ptxas 9"),
        ("_effects", tool("9"), ptx, changed, ("-O1", "--gpu-name=sm_120a")),
        ("MemoryFix", loads, ["effect"], "9", None, "o.ptx"),
        ("give", asked.results, "result"),
    ]

    def fail(*given: Any) -> Any:
        raise ToolError("first \n  second")

    calls.answer(fix, find_ptxas=fail)
    asked = options("mem", "fix", "k.ptx", "--ptxas", "8")
    assert fix.run(asked) == 2 and capsys.readouterr().err == ""
    assert calls[-3:] == [
        ("find_ptxas", "8"),
        ("MemoryFix", loads, [], None, "first; second", None),
        ("give", asked.results, "result"),
    ]
    calls.answer(fix, find_ptxas=tool("9"), _effects=fail)
    assert fix.run(asked) == 2
    assert calls[-3:-1] == [
        ("_effects", tool("9"), ptx, changed, ("-O1",)),
        ("MemoryFix", loads, [], "9", "first; second", None),
    ]
    loads.append(SimpleNamespace(refusal="why"))
    calls.answer(fix, _effects=[])
    assert fix.run(asked) == 1
