"""The steps of `tritonhook tune`: which gets what, in which order. Other files test what each step does."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_calls import Calls, options, refused, temporary

from tritonhook.capture.selection import Skipped
from tritonhook.cli import tune
from tritonhook.errors import DeviceError
from tritonhook.tuning.engine import TuneSettings


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
            for call in (("_earlier", own, ["before"]), ("_levers", asked, subjects[own], (f"earlier of {own.name}",)))
        ),
        ("cache", asked.sweep),
        ("running", asked.sweep, "cache"),
        ("expect", 9),
        ("choices", [(subjects[own], ("one", "two")) for own in (a, first, b)], "go", Path.cwd() / "sub"),
        ("_with_siblings", *(asked, folder, a, {d: Own("kept"), a: Own("whole"), first: Own("of a1")})),
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
