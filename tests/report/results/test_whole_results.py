"""Whole results: every field of a document and of a Summary, held to tests/golden/results/."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from documents import PlainScreen, golden
from memory_traces import TRACES, timeline
from msgspec import structs
from repository import GOLDEN
from screens import Screens
from tuned import SKIPPED, tuned
from verified import verified

from tests.capture.policy.test_file import ENTRY
from tests.compare.test_diff import golden as golden_cubin
from tests.report.results.test_documents import bisections
from tests.report.results.test_probe import CHANGED, CRASH, NO_ANSWER, SAME, UNSTEADY
from tests.snapshot.test_changes import STAGES, facts
from tritonhook._util.schema import as_schema
from tritonhook.capture.policy.levers import lever
from tritonhook.capture.policy.model import Pin
from tritonhook.compare.diff import CodeVerdict
from tritonhook.compare.modules import KernelDelta, ModuleDiff
from tritonhook.compare.names import NameComparison, RenamedBuild
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.counters.metrics import Counted, CountedInstruction, counters
from tritonhook.emulate.counters.observer import Tally
from tritonhook.emulate.run import Ran
from tritonhook.emulate.sanitizer.findings import Finding, Place
from tritonhook.emulate.sanitizer.run import Sanitized
from tritonhook.memory.prediction import find_gpu, predict, stack_needs
from tritonhook.memory.timeline import Mark, Reading, Snapshot
from tritonhook.ptx.miscompiles import KnownModule
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Assembled, Crash
from tritonhook.report.render.code import render_code_diff, render_sass, render_text_diff
from tritonhook.report.render.github import annotation_commands, job_summary, joined
from tritonhook.report.render.markdown import render_markdown
from tritonhook.report.render.notebook import render_fragment
from tritonhook.report.render.terminal import render_terminal
from tritonhook.report.result import Result, Summary, Table
from tritonhook.report.results.ab import TimedComparison
from tritonhook.report.results.bisect import Bisect
from tritonhook.report.results.capture import CodeFields, Row
from tritonhook.report.results.counters import CountedKernel, Counting
from tritonhook.report.results.emulation import EmulatedKernel, Emulation
from tritonhook.report.results.file import File, GpuFile
from tritonhook.report.results.memory import Memory, Variants
from tritonhook.report.results.modules import ModuleDiffResult
from tritonhook.report.results.names import Names
from tritonhook.report.results.policy import PolicyResult
from tritonhook.report.results.probe import Probe
from tritonhook.report.results.same_bits import SameBits
from tritonhook.report.results.snapshot import KernelChanges, LockContent
from tritonhook.report.results.stacks import MemoryPrediction
from tritonhook.report.results.tools import Installed, PtxasList, PtxasTool, Renamed, StatusResult
from tritonhook.report.results.tuning import Tuning
from tritonhook.report.results.verification import Known, Verification
from tritonhook.snapshot.changes import Crossed, compare
from tritonhook.snapshot.facts import Identity
from tritonhook.snapshot.spills import SourceLine
from tritonhook.tuning.policy_check import Checked, CheckedPin, State
from tritonhook.verify.model import Difference
from tritonhook.verify.same_bits import BitsVerdict, Judged, Member

MIB = 1 << 20


def told(value: Any, name: str = "") -> Iterator[str]:
    """One line for each text, row and member of a list; fields that have their default are left out."""
    if isinstance(value, (Summary, Table)):
        for field in fields(value):
            if (inner := getattr(value, field.name)) != field.default:
                yield from told(inner, field.name)
    elif isinstance(value, (list, tuple)) and name not in ("left", "words", "extra", "kept", "columns"):
        for item in value:
            yield from (
                told(item, name) if isinstance(item, Table) else [f"{name}: {json.dumps(item, ensure_ascii=False)}"]
            )
    else:
        yield f"{name}: {json.dumps(value, ensure_ascii=False)}"


def written(result: Result) -> Iterator[str]:
    for name, value in result.document().items():
        yield from told(value, name)
    yield from told(result.summary())


# --- kernels before and after ----------------------------------------------------------------------


def changes() -> KernelChanges:
    """Kernels of every status and two architectures; two of a name; code that grew by its PTX, by ptxas, or by both."""
    first, second, third = (Identity("k", "sm_90a", "Triton", ("A=1", f"B={n}")) for n in (2, 3, 4))
    spilled = {"spill_stores": 8, "spill_loads": 1600, "stack": 16, "registers": 80, "instructions": 1100}
    rebuilt = {"stages": {**STAGES, "ptx": "x"}, "ptxas": "13.4.59", "options": ("-v", "-O1"), "ptx_sha256": None}
    bounds, parts = ("maxntid 256 1 1", "explicitcluster"), {"parameters": "1" * 16, "data": "2" * 16}
    worse = replace(facts(), identity=first, compile_us=20_000, launch_bounds=bounds, classes={"control": 4})
    other = replace(facts(code="5", registers=72), identity=second, compile_us=900)
    pairs = [
        (worse, replace(facts(code="2", **spilled), identity=first, compile_us=1_500_000, **rebuilt)),
        (other, replace(facts(code="6", registers=40), identity=second, compile_us=800, **rebuilt)),
        (replace(facts(), identity=third), replace(facts(code="7"), identity=third, rewrites="name")),
        (facts("failed"), replace(facts("failed"), codes=(), failure="ptxas 13.4.59: line 3: no")),
        (replace(facts("parts"), loaded=parts), replace(facts("parts"), loaded={**parts, "data": "3" * 16})),
        (facts("unknown"), replace(facts("unknown"), codes=())),
        (facts("_Z4fillPfi", arch="sm_100a"), facts("_Z4fillPfi", arch="sm_100a", code="3", loop_instructions=4)),
        (facts("gone"), None),
        (None, replace(facts("new"), ptxas=None, options=None)),
        (facts("same"), facts("same")),
        (replace(facts("same"), identity=replace(facts("same").identity, number=2)),) * 2,
    ]
    made = compare([old for old, _ in pairs if old is not None], [new for _, new in pairs if new is not None])
    crossed = Crossed(facts(code="8", **spilled), facts(code="9"))
    made = [replace(change, crossed=crossed) if change.has_two_steps else change for change in made]
    return KernelChanges.of("old", "new", made, {first: ["spills", "code"]}, ["a note"])


def built_lock() -> LockContent:
    """Kernels of a library, whose instructions are not counted, beside one that Triton compiled."""
    unknown = {"instructions": None, "loop_instructions": None, "local_bytes": 48, "code_bytes": 4096}
    library = replace(facts(**unknown), identity=Identity("gemm", "sm_80", "built", number=2), ptxas=None, options=None)
    own = replace(facts(spill_stores=1024, spill_loads=8, local_bytes=None, code_bytes=None), rewrites="name")
    return LockContent.of("a.lock", [library, own], None)


# --- others ----------------------------------------------------------------------------------------


def emulation() -> Emulation:
    """Kernels that ended, with and without faults, one that did not end, and one that is not understood."""
    places = Place("read by warp 2 of CTA 0", 12, "ld.shared.b32 %r1, [%r2];", "f.py:7"), Place("write", 3, "st;")
    found = Finding("race", "shared address 0x40", places), Finding("misaligned", "by 4", places[:1])
    kernels = [
        EmulatedKernel.of("faulty", "(4,1,1) x (32,1,1)", Sanitized(Ran((), 77), found), ["ab", "cd"], ""),
        EmulatedKernel.of("stuck", "(1,1,1) x (32,1,1)", Sanitized(None, ()), [], "no end within 10 s"),
        EmulatedKernel.of("odd", "(1,1,1) x (32,1,1)", None, [], "not understood: wgmma"),
        EmulatedKernel.of("fine", "(1,1,1) x (32,1,1)", Sanitized(Ran((), 5), ()), ["ef"], ""),
    ]
    return Emulation("sm_90a", "numbers from 0 to 1", 4, tuple(kernels))


def counting() -> Counting:
    """A kernel with conflicts, of which some CTAs were counted, and one that was not."""
    one = counters("LDS", "R0, [R1]", Tally(4, 128, 128, shared_requests=4, wavefronts=32, wavefronts_ideal=4), 90)
    row = CountedInstruction(0, "LDS", "LDS R0, [R1]", "/home/f.py", 7, one)
    kernels = [
        CountedKernel.of("grid 8", Counted("padded", 90, 4, 8, (row,), True), "8 of 64 warps in 2 blocks"),
        CountedKernel("odd", "grid 1", "NOT UNDERSTOOD: CS2R"),
    ]
    return Counting("sm_90a", "zeros", 4, tuple(kernels))


def several_timelines() -> Memory:
    """Two processes; in the second one the stack limit rises twice, and a part of the growth is not explained."""
    marks = [
        Mark(n * 10**8, "launch", f"k{n}", Reading(a, 900 * MIB, 0, 0), Reading(b, free * MIB, 0, 0), note)
        for n, (a, b, free, note) in enumerate(
            [(1024, 2048, 880, None), (2048, 4096, 800, None), (4096, 4096, 900, "n")]
        )
    ]
    late = timeline(
        **{"process": None, "arch": 90, "marks": tuple(marks), "end": Snapshot({"NVML": 9000 * MIB}, None, None)},
        **{"name": "NVIDIA H100", "notes": ("NVML ended",), "duration_ns": 12_345_000_000},
    )
    return Memory.of([timeline(), late], ["a note"])


def timed(blocks: int = 0, **changes: Any) -> dict[str, Any]:
    document = golden("ab")
    return document | {"blocks": document["blocks"][:blocks]} | changes


def of_tools() -> dict[str, Callable[[], Result]]:
    tools = [
        Tool(Path(f"/{n}/ptxas"), version, f"source {n}") for n, version in enumerate(("12.8.93", "13.0.48", "12.8.93"))
    ]
    hooks, variables = {"cache": "tritonhook", "stages": "nobody"}, {"TRITONHOOK": "out"}
    here = "/bin/ptxas", "installed"
    return {
        "status": lambda: StatusResult(
            "1.2.0",
            "3.6.0",
            "4.1",
            hooks,
            ("12.8.93", "13.0.48"),
            "13.5.37",
            True,
            "installed",
            variables,
            {"out": "x"},
        ),
        "status_of_nothing": lambda: StatusResult("1.2.0", None, None, {}, (), None, False, "not installed", {}),
        "ptxas_list": lambda: PtxasList.of(tools, "/added", ["12.8.61", "12.8.93", "13.0.48"]),
        "ptxas_list_of_nothing": lambda: PtxasList.of([], "/added", None),
        "ptxas_tool": lambda: PtxasTool("12.8.93", "added", "/added/12.8.93/ptxas"),
        "installed": lambda: Installed("ptxas wrapper", *here, "installed it", ("cut short", "no space"), "/log"),
        "renamed": lambda: Renamed("k.ptx", {"a": "x_a", "b": "b"}, 1, None, ("a remark",), "text"),
    }


def crashed_names() -> Names:
    """A kernel under three names, of which the second one makes ptxas crash."""
    tool, builds = Tool(Path("/bin/ptxas"), "12.8.93", "fake"), list[RenamedBuild]()
    for name in ("plain", "cutlass", "renamed"):
        cubin, _ = golden_cubin(f"sm_90a.exp.{name}")
        ptx = Ptx(f".version 8.7\n.target sm_90a\n.entry {cubin.kernels[0]}() {{ ret; }}\n")
        builds.append(RenamedBuild(cubin.kernels[0], ptx, Assembled(cubin, "", "ptxas k.ptx")))
    builds[1] = replace(builds[1], result=Crash(tool, builds[1].ptx, "ptxas k.ptx", -11, "SIGSEGV", "a text"))
    return Names.of(NameComparison(builds[0], builds[1], builds[2], None, None, 1, (1, 0, 1)))


def policy() -> Result:
    pin = Pin("f", "sm_90a", ("n=1", "torch.float32"), "B: 64", gpu="NVIDIA H200", date="2026-11-22")
    stale = CheckedPin(replace(pin, function="g", date=""), State.STALE, "another winner")
    gone = "no captured kernel of this name has its PTX; if it has changed, tune again and remove this block"
    won = replace(ENTRY, kernel="jsd", lever=lever("regusage=10+name"), gain_percent=2.04, interval_percent=(1.5, 2.6))
    checked = [
        Checked(replace(ENTRY, kernel="attention_fwd"), State.APPLIES),
        Checked(won, State.APPLIED),
        Checked(replace(ENTRY, kernel="layer_norm"), State.STALE, gone),
        Checked(replace(ENTRY, kernel="softmax"), State.NOT_SEEN, "no captured Triton kernel of this name for sm_90a"),
    ]
    return PolicyResult.of("p.toml", "captures", checked, ["a note"], [CheckedPin(pin, State.APPLIES), stale])


def of_cubins() -> dict[str, Callable[[], Result]]:
    (plain, _), (other, _) = (golden_cubin(f"sm_90a.exp.{name}") for name in ("plain", "cutlass"))
    module, module_code = golden_cubin("sm_90a.module")
    cluster = Cubin.from_bytes((GOLDEN / "sm_120a.tensor_load.cluster.cubin").read_bytes())
    resources = plain.resources[plain.kernels[0]], other.resources[other.kernels[0]]
    delta = KernelDelta("foo", "bar", CodeVerdict.DIFFERENT_CODE, *resources, 1024, 1088, "a summary")
    both = ModuleDiff(plain, other, (delta,), ("x",), ("y", "z"))
    return {
        "file": lambda: File.of(GpuFile("k.fatbin", "fat binary", (module,), (module_code,), "12.8.93", ["a note"])),
        "modules": lambda: ModuleDiffResult.of(both, None, None, ["a note"]),
        "stacks": lambda: MemoryPrediction.of(predict(stack_needs(cluster), find_gpu("RTX 5090")), 1 << 30, True),
        "policy": policy,
    }


def compared() -> list[Judged]:
    near = Difference(0, "float32", 4, 1, "other", (), ulps=2, share=1e-7)
    rest = Member("num_warps=8", 2, "", "argument y: 1 of 4 elements", near)
    members = Member("num_warps=4", 1), rest, Member("num_warps=32", None, "it does not fit")
    other = Judged("sum", "configs", "", BitsVerdict.OTHER_BITS, "num_warps=8: argument y", members)
    return [other, Judged("add", "orders", "grid 1", BitsVerdict.SAME, "", (Member("program order", 1),))]


MADE: Mapping[str, Callable[[], Result]] = {
    "kernel_changes": changes,
    "lock": built_lock,
    "bisect": lambda: Bisect.of("a.lock", bisections(), True, ["a note"]),
    "counters": counting,
    "emulation": emulation,
    "emulation_of_nothing": lambda: Emulation("sm_90a", "zeros", None, ()),
    "memory_nothing": lambda: Memory.of([TRACES["nothing"]()], ["a note"]),
    "memory_of_several": several_timelines,
    "variants_unknown": lambda: Variants.of({"a": [timeline()], "b": [TRACES["nothing"]()]}),
    "probe": lambda: Probe.of([SAME, CHANGED, UNSTEADY, CRASH, NO_ANSWER], ["a note"]),
    "verification": lambda: Verification.of("kernel.ptx", "NVIDIA H200", verified()),
    "same_bits": lambda: SameBits.of("s.py", "sm_90a", compared()),
    "tuning": lambda: Tuning.of("train.py", "p.toml", tuned(), SKIPPED),
    "timed": lambda: TimedComparison.of(as_schema(timed(12), TimedComparison), judged=True),
    "names_of_a_crash": crashed_names,
    "known_nothing": lambda: Known.of("k", [KnownModule("a", "sm_90a", None), KnownModule("b", None, None, (), "cut")]),
    **of_tools(),
    **of_cubins(),
}


@pytest.mark.parametrize("name", MADE)
def test_a_result_and_its_summary_are_as_in_its_golden_file(name: str, screens: Screens) -> None:
    """--update writes the file again."""
    screens.check_result(name, written(MADE[name]()))


def rendered() -> dict[str, Callable[[], str]]:
    """One result in each form that people read, and code with its differences, in colours."""
    rows = [Row("@P0" * (n == 2), f"OP{n}", "R1,R2", n << 5, (0, n) if n % 4 else None, None) for n in range(14)]
    a, b = (CodeFields("_Z4fillPfi", (), ("/src/k.py",), None, tuple(code)) for code in (rows, [*rows[1:9], rows[0]]))
    lines = [SourceLine("a%b,c:d.py", n // 2 + 1) for n in range(11)]
    return {
        "terminal": lambda: render_terminal(changes().summary(), PlainScreen()),
        "markdown": lambda: render_markdown(changes().summary()),
        "notebook": lambda: render_fragment(changes().summary()),
        "comment": lambda: joined("", changes(), "9d2c3e1f00aa4b5c6d7e", "https://example.org/1"),
        "job_summary": lambda: job_summary(changes()),
        "annotations": lambda: "\n".join(annotation_commands(with_new_only(), lines)),
        "code_diff": lambda: render_code_diff(a, b, PlainScreen()),
        "text_diff": lambda: render_text_diff("a\nb\nc", "a\n\td\nc", PlainScreen()),
        "listing": lambda: render_sass(a, "sm_90a"),
    }


def with_new_only() -> KernelChanges:
    """Without the kernels that are gone: these have no line."""
    found = changes()
    return structs.replace(found, kernels=tuple(kernel for kernel in found.kernels if kernel.new is not None))


@pytest.mark.parametrize("form", rendered())
def test_a_rendering_is_as_in_its_golden_file(form: str, screens: Screens, monkeypatch: pytest.MonkeyPatch) -> None:
    """--update writes the file again."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "10000"}.items():
        monkeypatch.setenv(name, value)
    screens.check_result(f"as_{form}", map(ascii, rendered()[form]().splitlines()))
