"""The steps of bisect, ab, lab caps and completion: which gets what, in which order."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_calls import Calls, options, refused, temporary

from tritonhook.cli import bisect, completion
from tritonhook.cli._parser import Parser
from tritonhook.cli.ab import timed
from tritonhook.cli.lab import caps
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptxas.tool import Tool


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


def test_bisect_fetches_what_is_missing_and_assembles_each_once_or_several_times(calls: Calls) -> None:
    ptx: Any = SimpleNamespace(target="sm_90a", text="text")
    unknown = bisect._unknown("k", ptx, ("-O1",))
    figures = dict.fromkeys(bisect.FIGURES)
    identity = bisect.Identity("k", "sm_90a", "PTX")
    digest = bisect.sha256("text")
    assert unknown == bisect.KernelFacts(identity, "k", {}, digest, None, ("-O1",), (), figures)
    there, fetched = (Tool(Path(f"/{version}/ptxas"), version, "added") for version in ("1.1", "1.2"))
    calls.answer(
        bisect,
        working=nullcontext(),
        add_ptxas=fetched,
        running=nullcontext(("go", calls.standing_for("expect", None))),
    )
    calls.answer(bisect, all_drawn=[("facts",)] * 2, _tried=lambda version, facts: (version, facts))
    calls.answer("tritonhook.cli._sweeps.Sweep", cache="cache")
    tools, sweep = bisect._Tools({"1.1": there}), options("bisect", "k.ptx", *ENDS).sweep
    assert tools.get("1.1") is there and calls == []
    assert tools.get("1.2") is tools.get("1.2") is fetched and tools.fetched == ["1.2"]
    assert calls == [("working", "fetching ptxas 1.2 (about 30 MB)"), ("add_ptxas", "1.2")]
    kernel = bisect._Kernel(unknown, "text", ("-O1",))
    assemble = bisect._Assemble([kernel], tools, sweep, "disassemble")  # type: ignore[arg-type]
    tasks = [bisect.Task(unknown, "text", tool, ("-O1",)) for tool in (there, fetched)]
    for draws, runs in ((False, 1), (True, bisect.STEADY_RUNS + 1)):
        calls.clear()
        tried = assemble._assembled([(0, "1.1"), (0, "1.2")], draws)
        assert tried == [("1.1", ("facts",)), ("1.2", ("facts",))]  # type: ignore[comparison-overlap]
        assert calls[:4] == [
            ("cache", sweep),
            ("running", sweep, "cache"),
            ("expect", 2 * runs),
            ("all_drawn", tasks, "go", "disassemble", runs),
        ]


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
        saved = [("TimedComparison", made), ("to_json", "document"), ("write_new", Path("s.json"), "text", False)]
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
