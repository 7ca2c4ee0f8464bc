"""Compare two kernels, two modules or two capture folders: PTX, cubin or capture on each side.

Two files with several kernels are compared kernel by kernel. Kernels are matched by name; names may differ in the
trigger. --entry chooses one. Exit codes: 0 same code and all else that the driver loads, 1 other, 2 trouble.

With --rename, --prefix, --strip or --to one kernel is compared with itself under a new name, and under a control name
of the same length: only its spelling differs from the new name. Exit codes: 0 same code, 1 other code, or ptxas crashes
under the new name, 2 trouble, or ptxas crashes under the control name.

PTX is assembled with the same ptxas and options on both sides. If both are one kernel under two names of different
length, one of them is assembled under a control name as long as the other's: the length alone moves sections.

  tritonhook diff a.ptx b.ptx --ptxas 12.8.93
  tritonhook diff OUT/kernels/add-0123 OUT/kernels/cutlass_add-4567
  tritonhook diff a.cubin b.cubin                                     # all their kernels
  tritonhook diff a.cubin b.cubin --entry add:cutlass_add
  tritonhook diff a.ptx --rewrite mma-throughput --ptxas 13.5.37      # a kernel before and after a rewrite
  tritonhook diff kernel.ptx --rename                                 # what does the prefix cutlass_ change?
  tritonhook diff --previous a1b2 --code                              # what an edit did to the machine code
  tritonhook diff OLD NEW --fail-on spills,registers+10%              # all kernels of two capture folders
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.selection import settings_of, titles
from tritonhook.capture.settings import REWRITES, default_out, rewrite_by_name
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._inputs import (
    Input,
    KernelFile,
    captures_at,
    check_entry,
    chosen_arguments,
    chosen_ptxas,
    input_of,
    is_folder,
    kernels_at,
    load_file,
    load_input,
    load_pair,
    place,
    trust_option,
)
from tritonhook.cli._lockable import with_counts
from tritonhook.cli._parser import Group, flag, given_options, option, part
from tritonhook.cli._streams import KernelPage, Results, capture_page, give, working, write_paged
from tritonhook.cli.check import ShownChanges, fail_on_option, give_changes, told_apart
from tritonhook.cli.rename import RenameOptions, check_mapping
from tritonhook.compare.diff import CodeVerdict, CubinDiff
from tritonhook.compare.names import NameComparison, compare_names, diff_cubins
from tritonhook.cubin.image import Cubin
from tritonhook.errors import PtxError, UsageError, listed
from tritonhook.ptx.miscompiles import warnings_of
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain, may_draw, reading_toolchain, toolchain_of
from tritonhook.rename import PREFIX, TRIGGER, Rename, Rewrites, control_name
from tritonhook.snapshot.changes import Change, renumbered
from tritonhook.snapshot.changes import compare as compare_facts
from tritonhook.snapshot.facts import COUNTERS, Identity, KernelFacts, identity_of
from tritonhook.snapshot.rules import Rule

if TYPE_CHECKING:
    from tritonhook.report.result import Result
    from tritonhook.report.results.diff import Diff
    from tritonhook.snapshot.captured import Kernels


@dataclass(frozen=True, kw_only=True)
class ToolOptions(Group):
    """Which kernel, which ptxas and its options: for diff and ab."""

    entry: str | None = option(metavar="NAME|A:B", help="the kernel, if there are several; A:B: a name for each side")
    ptxas: str | None = option(
        metavar="VERSION|PATH", help="assemble with this ptxas (default: the capture's, else the newest)"
    )
    trust: bool = trust_option()
    ptxas_options: str | None = option(
        "--options", metavar="'...'", help="ptxas options, e.g. '-O1 -v' (default: the capture's, else -v -lineinfo)"
    )


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    a: str = place(nargs="?", default="", help="PTX file, cubin, capture folder, or a captured kernel or its id")
    b: str | None = place(nargs="?", help="second kernel, as for a; omit it with --rename and --rewrite")
    previous: bool = flag(
        help="compare the latest run in a capture folder (default: the one that `run` writes to) with the previous "
        "run of the same command; give a kernel to compare this one alone"
    )
    rewrite: str | None = option(
        choices=REWRITES, metavar="NAME", help=f"compare a with its rewritten form: {' or '.join(REWRITES)}"
    )
    rename: bool = flag(help="compare a with itself under a new name: cutlass_ in front, or set by the next options")
    names: RenameOptions = part(RenameOptions)
    tool: ToolOptions = part(ToolOptions)
    code: bool = flag(one_of="code", help="print the lines of machine code that differ, with their source lines")
    ptx: bool = flag(one_of="code", help="print lines of PTX that differ; --ttgir, --ttir: of this stage of captures")
    ttgir: bool = flag(one_of="code", help=argparse.SUPPRESS)
    ttir: bool = flag(one_of="code", help=argparse.SUPPRESS)
    no_control: bool = flag(help="use no control name if names differ in length")
    count: bool = flag(
        help="of captured kernels: execute a recorded launch on the CPU, and tell which counters of which lines moved"
    )
    fail_on: tuple[Rule, ...] = fail_on_option()
    shown: ShownChanges = part(ShownChanges)
    results: Results = part(Results)


def run(options: Options) -> int:
    if options.previous:
        options = _with_previous(options)
    if not options.a:
        raise UsageError("give two kernels or folders, or --previous")
    if (rename := options.names.wanted() or (Rename(prefix=PREFIX) if options.rename else None)) is not None:
        return _compare_names(options, rename)
    if options.b is not None and options.tool.entry is None and _are_folders(options.a, options.b):
        return _compare_folders(options, options.b)
    if idle := [*(["--fail-on"] if options.fail_on else []), *given_options(options.shown)]:
        raise UsageError(f"{idle[0]}: only for two capture folders")
    files = _files(options)
    if files is not None and (options.code or options.ptx or options.ttgir or options.ttir):
        raise UsageError("--code, --ptx, --ttgir and --ttir: for two kernels; choose one with --entry")
    return _compare_kernels(options) if files is None else _compare_modules(options, files)


def _compare_names(options: Options, rename: Rename) -> int:
    if idle := [*([options.b] if options.b else []), *(it for it in given_options(options) if it != "--rename")]:
        raise UsageError(f"{idle[0]}: one kernel is compared with itself under a new name")
    kernel = load_input(options.a, options.tool.entry)
    check_entry(options.tool.entry, [kernel])
    ptxas = chosen_ptxas(options.tool.ptxas, options.tool.trust, [kernel])
    arguments = chosen_arguments(options.tool.ptxas_options, [kernel])
    return give_names(kernel, rename, ptxas, arguments, options.results)


def _with_previous(options: Options) -> Options:
    """Replace the sides by the latest run and the run before, or by one kernel of both."""
    if options.b is not None or options.rewrite is not None:
        raise UsageError("--previous: give one capture folder or kernel, or none")
    path = Path(options.a or default_out())
    if not (path / "capture.json").exists():
        before, latest = CaptureFolder.open(path).previous()
        return replace(options, a=f"{path}@{before}", b=f"{path}@{latest}")
    folder = CaptureFolder.open(path.absolute().parent.parent)
    identity, runs = identity_of(folder.capture(path.name)), [s.run for s in folder.seen(path.name) if s.run]
    if not runs:
        raise UsageError(f"{options.a}: `tritonhook run` did not capture it, so there is no previous run")
    numbers = folder.previous(folder.runs.index(max(runs, key=lambda run: run.started_ns)) + 1)
    parts = [folder.of_run(number) for number in numbers]
    known, now = ({r: identity_of(part.capture(r)) for r in part.running} for part in parts)
    records = [r for r, own in known.items() if own == identity] or _nearest(identity, known, set(now.values()))
    if len(records) != 1:
        ids = listed([f"{folder.ids[record]}  {' '.join(known[record].specialisation)}" for record in records], "\n  ")
        said = f"several kernels of the previous run fit equally well; compare it with one of them:\n  {ids}"
        raise UsageError(f"{options.a}: {said if records else 'the previous run did not compile it; give two kernels'}")
    return replace(options, a=str(folder.path / "kernels" / records[0]), b=str(path))


def _nearest(identity: Identity, known: Mapping[str, Identity], now: Set[Identity]) -> list[str]:
    """List the records of the previous run that a kernel may come from: those that share most of its configuration.
    known: kernels of the previous run; those in `now` still exist and are other kernels."""
    own, left = set(identity.specialisation), {r: it for r, it in known.items() if it not in now}
    apart = {r: len(own ^ set(it.specialisation)) for r, it in left.items() if it.lasting == identity.lasting}
    return [record for record, times in apart.items() if times == min(apart.values())]


def _are_folders(*sides: str) -> bool:
    """Return whether these are meant as capture folders; beside a folder, a path that does not exist counts as one."""
    return any(map(is_folder, sides)) and all(is_folder(side) or not Path(side).exists() for side in sides)


def _files(options: Options) -> list[KernelFile] | None:
    """Read two files to compare kernel by kernel; None if only one kernel is compared."""
    if options.tool.entry is not None or options.b is None or any(Path(it).is_dir() for it in (options.a, options.b)):
        return None
    files = [load_file(path) for path in (options.a, options.b)]
    return files if all(len(file.kernels) > 1 for file in files) else None


def _compare_modules(options: Options, files: Sequence[KernelFile]) -> int:
    from tritonhook.compare.modules import diff_modules

    inputs = [file.kernel(file.kernels[0]) for file in files]
    notes: list[str] = []
    with working("assembling both sides"):
        a, b = (_side(number, given.entry, inputs, options.tool, notes) for number, given in enumerate(inputs))
    notes += _notes_on_sides(inputs, a, b)
    with working("disassembling and comparing both sides"):
        result = diff_modules(a.cubin, b.cubin, reading_toolchain())
    notes += _notes_on_draws(result.identical_code, a.cubin)
    if any(len(kernel.a) != len(kernel.b) for kernel in result.kernels):
        notes.append("names differ in length, which by itself moves string tables and alignment")
    if not result.kernels:
        raise UsageError(f"{options.a} and {options.b} have no kernel in common; compare two of them with --entry A:B")
    from tritonhook.report.results.modules import ModuleDiffResult

    give(options.results, ModuleDiffResult.of(result, a.ptxas, b.ptxas, notes))
    return 0 if result.identical_code else 1


def _compare_kernels(options: Options) -> int:
    inputs = _inputs(options)
    with working("assembling and comparing both sides"):
        result, diff = _compared(options.tool, options.no_control, inputs, _titles(inputs))
    if options.count:
        diff = partial(_with_counters, _moved(options, inputs), diff)
    if options.code or options.ptx or options.ttgir or options.ttir:
        write_paged(_code_diff(options, inputs, result))
    else:
        give(options.results, diff)
    return 0 if result.verdict is CodeVerdict.SAME_CODE else 1


def _moved(options: Options, inputs: Sequence[Input]) -> list[tuple[str, str, int | None, int | None]]:
    """Count a launch of both kernels: the counters of source lines that differ."""
    from tritonhook.snapshot.counted import moved

    sides = [(given.capture, place) for given, place in zip(inputs, (options.a, options.b), strict=True)]
    (a, at), (b, other) = sides
    if a is None or b is None or at is None or other is None:
        raise UsageError("--count: for two captured kernels, whose launches were recorded")
    with working("counting both sides"):
        return moved((a, at), (b, other))


def _with_counters(
    found: Sequence[tuple[str, str, int | None, int | None]], diff: Callable[[bool], Diff], full: bool
) -> Diff:
    from msgspec import structs

    from tritonhook.report.results.diff import MovedCounter

    return structs.replace(diff(full), moved=tuple(MovedCounter(*one) for one in found))


def _compared(
    tool: ToolOptions, no_control: bool, inputs: Sequence[Input], own: tuple[str, str]
) -> tuple[CubinDiff, Callable[[bool], Diff]]:
    """Compare two kernels. Also return a function that makes the result, called with True to add the code. own: the
    user's names for them."""
    from tritonhook.report.results.diff import Diff

    names, notes = _names(inputs, no_control)
    a, b = (_side(number, name, inputs, tool, notes) for number, name in enumerate(names))
    notes += _notes_on_sides(inputs, a, b)
    result = diff_cubins(a.cubin, b.cubin, reading_toolchain(), a.name, b.name)
    result = result.with_launches(*(given.dynamic_shared for given in inputs))
    notes += _notes_on_draws(result.identical_code, a.cubin)
    ptxas, ptx, captures = (a.ptxas, b.ptxas), (a.ptx, b.ptx), [given.capture for given in inputs]
    return result, lambda full: Diff.of(result, ptxas, ptx, own, notes, full, captures)


def _code_diff(options: Options, inputs: Sequence[Input], result: CubinDiff) -> str:
    """Draw the lines that differ, in machine code or in the requested stage."""
    from tritonhook.report.render.code import render_code_diff, render_text_diff
    from tritonhook.report.results.diff import CodePair

    if options.code:
        ptx = [None if given.ptx is None else given.ptx.text for given in inputs]
        pair = CodePair.of(result, ptx, [given.capture for given in inputs])
        return render_code_diff(pair.a, pair.b, sys.stdout)
    stage = Stage.PTX if options.ptx else Stage.TTGIR if options.ttgir else Stage.TTIR
    texts = []
    for given in inputs:
        text = None if given.capture is None else given.capture.text(stage)
        text = given.ptx.text if stage is Stage.PTX and given.ptx is not None else text
        if text is None:
            raise UsageError(f"{given.label}: no {stage.value}; compare two captured kernels that have it")
        texts.append(text)
    return render_text_diff(texts[0], texts[1], sys.stdout)


def _titles(inputs: Sequence[Input]) -> tuple[str, str]:
    """Title both kernels; if they share a name, with the configuration that differs."""
    by_side = titles({side: (given.entry, "", given.settings) for side, given in enumerate(inputs)})
    return by_side[0], by_side[1]


def _compare_folders(options: Options, b: str) -> int:
    """Compare all kernels of two capture folders as compiled."""
    if idle := [
        name for name in given_options(options, options.tool) if name not in ("--fail-on", "--previous", "--count")
    ]:
        raise UsageError(f"{idle[0]}: not for two capture folders, which are compared as they are")
    return give_folders(options.results, options.fail_on, options.a, b, options.shown, options.count)


def give_folders(
    results: Results, fail_on: Sequence[Rule], a: str, b: str, shown: ShownChanges | None = None, counts: bool = False
) -> int:
    """Compare the kernels of two capture folders, or of two runs in one, and print what changed. counts: their counters
    too."""
    sides, notes = kernels_at(a, b)
    old, new = ([facts for _, facts in kernels] for kernels in sides)
    if counts or any(rule.what in COUNTERS for rule in fail_on):
        old, further = with_counts(sides[0], old)
        new, more = with_counts(sides[1], renumbered(old, new), old)
        notes += [*further, *more]
    captures = {facts.ptx_sha256: capture for kernels in sides for capture, facts in kernels}
    changes, further = told_apart(compare_facts(old, new), lambda it: captures[it.ptx_sha256].text(Stage.PTX))
    pages = _pages((a, b), sides, (old, renumbered(old, new)), changes)
    failed = tuple(captures_at(b).failed.values())
    noted = [*notes, *further]
    return give_changes(results, fail_on, a, b, changes, noted, shown=shown, pages=pages, failed=failed)


_AS_COMPILED = ToolOptions(entry=None, ptxas=None, trust=False, ptxas_options=None)
Called = tuple[str, str, Capture]  # a captured kernel: path, title, capture


def _pages(
    places: Sequence[str], sides: Sequence[Kernels], facts: Sequence[Sequence[KernelFacts]], changes: Sequence[Change]
) -> list[KernelPage]:
    """Make a page for each change: both kernels, or the one that exists."""
    from tritonhook.report.results.snapshot import page_key

    known = {
        (side, one.identity): capture
        for side, kernels in enumerate(sides)
        for (capture, _), one in zip(kernels, facts[side], strict=True)
    }
    called = titles({key: (function_name(it.kernel), it.arch, settings_of(it.options)) for key, it in known.items()})

    def page(change: Change) -> KernelPage:
        keys = [(side, one.identity) for side, one in enumerate((change.old, change.new)) if one is not None]
        return page_key(change.identity), partial(_page, [(places[key[0]], called[key], known[key]) for key in keys])

    return [page(change) for change in changes]


def _page(kernels: Sequence[Called]) -> Result:
    """Compare two captured kernels with their code, or show one kernel."""
    inputs = [input_of(f"{place}: {title}", capture) for place, title, capture in kernels]
    if len(inputs) == 2 and all(given.cubin is not None or given.ptx is not None for given in inputs):
        return _compared(_AS_COMPILED, False, inputs, (kernels[0][1], kernels[1][1]))[1](True)
    return capture_page(kernels[-1][2], kernels[-1][1])


def _inputs(options: Options) -> list[Input]:
    """Read both kernels: two on the command line, or one and its rewritten form."""
    if options.b is not None and options.rewrite is None:
        return load_pair(options.a, options.b, options.tool.entry)
    if options.b is not None or options.rewrite is None:
        raise UsageError("give two kernels, or one and --rename or --rewrite NAME")
    a = load_input(options.a, options.tool.entry)
    check_entry(options.tool.entry, [a])
    if a.ptx is None:
        raise UsageError(f"{options.a}: a cubin has no PTX to rewrite; give PTX, or a capture")
    ptx, _ = rewrite_by_name(a.ptx, options.rewrite, (a.entry,) if len(a.ptx.entries) > 1 else None)
    tool = chosen_ptxas(options.tool.ptxas, options.tool.trust, [a])
    if reason := Rewrites((REWRITES[options.rewrite],)).why_not(tool.version):
        raise UsageError(reason)
    return [a, replace(a, label=f"{a.label} after {options.rewrite}", ptx=ptx, cubin=None)]


@dataclass(frozen=True, slots=True)
class _Side:
    """A cubin to compare. name: of the kernel in it. ptxas, options: what made it; None if unknown. ptx: its source."""

    name: str
    cubin: Cubin
    ptxas: str | None
    options: Sequence[str] | None
    ptx: str | None


def _names(inputs: Sequence[Input], no_control: bool) -> tuple[list[str], list[str]]:
    """Choose the names to compare the kernels under, one a control name if their lengths differ; and notes on that."""
    names = [given.entry for given in inputs]
    a, b = names
    if len(a) == len(b):
        return names, []
    if no_control or not _is_one_kernel(*inputs):
        without = [f"side {side}" for side, given in zip("ab", inputs, strict=True) if given.ptx is None]
        why = f"; {' and '.join(without)} has no PTX, so no control name is used" if without else ""
        return names, [f"the names differ in length, which by itself moves string tables and alignment{why}"]
    index = _control_side(a, b)
    control = control_name(names[index], names[1 - index])
    note = (
        f"one kernel under two names: side {'ab'[index]} ({names[index]}) is assembled under the control name "
        f"{control}, as long as the other name and without effect, so that only the spelling of the names differs"
    )
    names[index] = control
    return names, [note]


def _is_one_kernel(a: Input, b: Input) -> bool:
    """Whether both sides are the same entry of the same PTX, except for the names of its entries."""
    if a.ptx is None or b.ptx is None or len(a.ptx.entries) != len(b.ptx.entries):
        return False
    names = dict(zip(a.ptx.entries, b.ptx.entries, strict=True))
    if names[a.entry] != b.entry:
        return False
    try:
        renamed = a.ptx.rename_entries(names)
    except PtxError:  # a name is already used
        return False
    return renamed.tokens.code.split() == b.ptx.tokens.code.split()


def _control_side(a: str, b: str) -> int:
    """Choose the side that gets a control name: the one without the trigger, else the shorter."""
    if (TRIGGER in a) != (TRIGGER in b):
        return int(TRIGGER in a)
    return 0 if len(a) < len(b) else 1


def _options(given: Input) -> Sequence[str] | None:
    return None if given.assembler is None else given.assembler.options


def _side(number: int, name: str, inputs: Sequence[Input], tool: ToolOptions, notes: list[str]) -> _Side:
    """Make the cubin of one input under a name. Assemble it if needed, and add a note."""
    given = inputs[number]
    chosen = tool.ptxas is not None or tool.ptxas_options is not None
    assemble = given.cubin is None or (chosen and given.ptx is not None)
    ptx = given.ptx if given.ptx is None or name == given.entry else given.ptx.rename_entries({given.entry: name})
    if ptx is None or not (assemble or name != given.entry):
        assert given.cubin is not None  # load_input gives PTX or a cubin
        return _Side(name, given.cubin, given.ptxas, _options(given), None if ptx is None else ptx.text)
    # Only the name of a capture may change: it is assembled again by the ptxas that made it, not by the other side's.
    sources = inputs if assemble else [given]
    ptxas = chosen_ptxas(tool.ptxas, tool.trust, sources)
    arguments = chosen_arguments(tool.ptxas_options, sources)
    notes.append(f"side {'ab'[number]} assembled with ptxas {ptxas.version}: {' '.join(arguments)}")
    cubin = Toolchain(ptxas, ptxas).assemble_or_raise(ptx, arguments).cubin
    return _Side(name, cubin, ptxas.version, arguments, ptx.text)


def _notes_on_draws(identical: bool, cubin: Cubin) -> list[str]:
    if identical or not may_draw(cubin.arch):
        return []
    return ["ptxas is not deterministic for this architecture: a few changed instructions can come from two runs alone"]


def _notes_on_sides(inputs: Sequence[Input], a: _Side, b: _Side) -> list[str]:
    """List known miscompilations of both ptxas, and note if their versions differ."""
    notes = [
        f"{given.label}: {sentence}"
        for given, side in zip(inputs, (a, b), strict=True)
        if given.ptx is not None
        for sentence in warnings_of(given.ptx.text, side.ptxas, level_of(side.options))
    ]
    if a.ptxas != b.ptxas:
        by_a, by_b = (f"ptxas {side.ptxas}" if side.ptxas else "an unknown ptxas" for side in (a, b))
        notes.append(f"a was made by {by_a}, b by {by_b}: this alone can make differences")
    return notes


# --- one kernel under several names --------------------------------------------------------------


def give_names(kernel: Input, rename: Rename, ptxas: Tool, options: Sequence[str], results: Results) -> int:
    """Assemble a kernel under three names, and compare the codes. A crash under the new name is a result, like other
    code; without the control there is no result."""
    from tritonhook.report.results.names import Names

    if kernel.ptx is None:
        raise UsageError(f"{kernel.label}: no PTX to assemble under two names; give PTX or a capture that has it")
    check_mapping(rename, kernel.ptx, kernel.label)
    with working(f"assembling {kernel.entry} under three names with ptxas {ptxas.version}"):
        comparison = compare_names(kernel.ptx, rename, toolchain_of(ptxas), options, kernel.entry)
        comparison = comparison.with_launches(kernel.dynamic_shared)
    give(results, lambda full: Names.of(comparison, ptxas, options, full))
    return _exit_code(comparison)


def _exit_code(comparison: NameComparison) -> int:
    if comparison.renamed.cubin is None:
        return 1
    if comparison.control.cubin is None or comparison.diff is None:
        return 2
    return 0 if comparison.diff.verdict is CodeVerdict.SAME_CODE and comparison.control_is_neutral else 1
