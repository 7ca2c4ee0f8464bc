"""Compare two kernels, two modules or two capture folders: PTX, cubin or capture on each side.

Two files with several kernels are compared kernel by kernel. Kernels are matched by name; names may differ in the
trigger "cutlass". --entry chooses one kernel. Exit codes: 0 all that the driver loads is the same, 1 different, 2
error.

With --rename, --prefix, --strip or --to, one kernel is compared with itself under a new name, and under a control name
of the same length and without effect, so that only the spelling differs. Exit codes: 0 same code; 1 other code, or a
crash of ptxas under the new name; 2 error, or a crash of ptxas under the control name.

PTX is assembled with the same ptxas and options on both sides. If both sides are one kernel under names of different
length, one side gets a control name as long as the other name, because the length alone moves sections.

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
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook.capture.model import Stage
from tritonhook.capture.selection import titles
from tritonhook.capture.settings import REWRITES, default_out, rewrite_by_name
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli._changes import ShownChanges, fail_on_option, give_folders
from tritonhook.cli._inputs import (
    Input,
    KernelFile,
    check_entry,
    chosen_assembler,
    is_folder,
    load_file,
    load_input,
    load_pair,
    place,
)
from tritonhook.cli._pair import ToolOptions, compared, notes_on_draws, notes_on_sides, side_of
from tritonhook.cli._parser import Group, flag, given_options, option, part
from tritonhook.cli._progress import working
from tritonhook.cli._renames import RenameOptions, check_mapping
from tritonhook.cli._results import Results, give
from tritonhook.cli._streams import write_paged
from tritonhook.compare.diff import CodeVerdict, CubinDiff
from tritonhook.compare.names import compare_names
from tritonhook.errors import UsageError, listed
from tritonhook.ptxas.toolchain import reading_toolchain, toolchain_of
from tritonhook.rename import PREFIX, Rename, Rewrites
from tritonhook.snapshot.facts import Identity, identity_of
from tritonhook.snapshot.rules import Rule

if TYPE_CHECKING:
    from tritonhook.report.results.diff import Diff


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    a: str = place(nargs="?", default="", help="PTX file, cubin, capture folder, or a captured kernel or its id")
    b: str | None = place(nargs="?", help="second kernel, given like a; omit it with --rename and --rewrite")
    previous: bool = flag(
        help="compare the latest run in a capture folder (default: the one that `run` writes to) with the previous "
        "run of the same command; give a captured kernel to compare only this kernel"
    )
    rewrite: str | None = option(
        choices=REWRITES, metavar="NAME", help=f"compare a with its rewritten form: {' or '.join(REWRITES)}"
    )
    rename: bool = flag(
        help="compare a with itself under a new name: with the prefix cutlass_, or as set by the next options"
    )
    names: RenameOptions = part(RenameOptions)
    tool: ToolOptions = part(ToolOptions)
    code: bool = flag(one_of="code", help="print the lines of machine code that differ, with their source lines")
    ptx: bool = flag(one_of="code", help="print the lines of PTX that differ; --ttgir, --ttir: the same for that stage")
    ttgir: bool = flag(one_of="code", help=argparse.SUPPRESS)
    ttir: bool = flag(one_of="code", help=argparse.SUPPRESS)
    no_control: bool = flag(help="use no control name if names differ in length")
    count: bool = flag(
        help="for captured kernels: execute a recorded launch on the CPU, and show the counters that differ, by line"
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
    sides = (options.a, options.b or "")  # beside a capture folder, a missing path counts as a folder, too
    are_folders = any(map(is_folder, sides)) and all(is_folder(side) or not Path(side).exists() for side in sides)
    if options.b is not None and options.tool.entry is None and are_folders:
        both = given_options(options, options.tool)
        if idle := [name for name in both if name not in ("--fail-on", "--previous", "--count")]:
            raise UsageError(f"{idle[0]}: not for two capture folders, which are compared as they are")
        return give_folders(options.results, options.fail_on, options.a, options.b, options.shown, options.count)
    if idle := [*(["--fail-on"] if options.fail_on else []), *given_options(options.shown)]:
        raise UsageError(f"{idle[0]}: only for two capture folders")
    files = _files(options)
    if files is not None and (options.code or options.ptx or options.ttgir or options.ttir):
        raise UsageError("--code, --ptx, --ttgir, --ttir: only for one kernel on each side; choose one with --entry")
    return _compare_kernels(options) if files is None else _compare_modules(options, files)


def _compare_names(options: Options, rename: Rename) -> int:
    """Assemble a kernel under three names, and compare the codes. If ptxas crashes under the new name, that is a
    result, like other code; if it crashes under the control name, there is no result."""
    from tritonhook.report.results.names import Names

    if idle := [*([options.b] if options.b else []), *(it for it in given_options(options) if it != "--rename")]:
        raise UsageError(
            f"{idle[0]}: one kernel is compared with itself under a new name; omit {idle[0]}, or the new name"
        )
    tool = options.tool
    kernel = load_input(options.a, tool.entry)
    check_entry(tool.entry, [kernel])
    ptxas, arguments = chosen_assembler(tool.ptxas, tool.ptxas_options, tool.trust, [kernel])
    if kernel.ptx is None:
        raise UsageError(f"{kernel.label}: no PTX to assemble under two names; give PTX or a capture that has it")
    check_mapping(rename, kernel.ptx, kernel.label)
    with working(f"assembling {kernel.entry} under three names with ptxas {ptxas.version}"):
        names = compare_names(kernel.ptx, rename, toolchain_of(ptxas), arguments, kernel.entry)
        names = names.with_launches(kernel.dynamic_shared)
    give(options.results, lambda full: Names.of(names, ptxas, arguments, full))
    if names.renamed.cubin is None:
        return 1
    if names.control.cubin is None or names.diff is None:
        return 2
    return 0 if names.diff.verdict is CodeVerdict.SAME_CODE and names.control_is_neutral else 1


def _with_previous(options: Options) -> Options:
    """Set the two sides to the previous and the latest run, or to one kernel of both runs."""
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
    """List the records of the previous run from which a kernel may come: those whose specialisation has most in common
    with the kernel's. known: kernels of the previous run. now: kernels of the latest run, which are no candidates."""
    own, left = set(identity.specialisation), {r: it for r, it in known.items() if it not in now}
    apart = {r: len(own ^ set(it.specialisation)) for r, it in left.items() if it.lasting == identity.lasting}
    return [record for record, times in apart.items() if times == min(apart.values())]


def _files(options: Options) -> list[KernelFile] | None:
    """Read two files whose kernels are compared one by one; return None if only one kernel is compared."""
    if options.tool.entry is not None or options.b is None or any(Path(it).is_dir() for it in (options.a, options.b)):
        return None
    files = [load_file(path) for path in (options.a, options.b)]
    return files if all(len(file.kernels) > 1 for file in files) else None


def _compare_modules(options: Options, files: Sequence[KernelFile]) -> int:
    from tritonhook.compare.modules import diff_modules

    inputs = [file.kernel(file.kernels[0]) for file in files]
    notes: list[str] = []
    with working("assembling both sides"):
        a, b = (side_of(number, given.entry, inputs, options.tool, notes) for number, given in enumerate(inputs))
    notes += notes_on_sides(inputs, a, b)
    with working("disassembling and comparing both sides"):
        result = diff_modules(a.cubin, b.cubin, reading_toolchain())
    notes += notes_on_draws(result.identical_code, a.cubin)
    if any(len(kernel.a) != len(kernel.b) for kernel in result.kernels):
        notes.append("names differ in length, which by itself moves string tables and alignment")
    if not result.kernels:
        raise UsageError(f"{options.a} and {options.b} have no kernel in common; compare two of them with --entry A:B")
    from tritonhook.report.results.modules import ModuleDiffResult

    give(options.results, ModuleDiffResult.of(result, a.ptxas, b.ptxas, notes))
    return 0 if result.identical_code else 1


def _compare_kernels(options: Options) -> int:
    inputs = _inputs(options)
    called = titles({side: (given.entry, "", given.settings) for side, given in enumerate(inputs)})
    with working("assembling and comparing both sides"):
        result, diff = compared(options.tool, options.no_control, inputs, (called[0], called[1]))
    if options.count:
        diff = _with_counters(options, inputs, diff)
    if options.code or options.ptx or options.ttgir or options.ttir:
        write_paged(_code_diff(options, inputs, result))
    else:
        give(options.results, diff)
    return 0 if result.verdict is CodeVerdict.SAME_CODE else 1


def _with_counters(options: Options, inputs: Sequence[Input], diff: Callable[[bool], Diff]) -> Callable[[bool], Diff]:
    """Execute a launch of both kernels on the CPU, and add to the result the counters that differ on a source line."""
    from msgspec import structs

    from tritonhook.report.results.diff import MovedCounter
    from tritonhook.snapshot.counted import moved

    a, b = (given.capture for given in inputs)
    if a is None or b is None or options.b is None:
        raise UsageError("--count: only for two captured kernels whose launches were recorded")
    with working("counting both sides"):
        found = tuple(MovedCounter(*one) for one in moved((a, options.a), (b, options.b)))
    return lambda full: structs.replace(diff(full), moved=found)


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
    sources = [{} if given.capture is None else given.capture.sources for given in inputs]
    return render_text_diff(texts[0], texts[1], sys.stdout, sources)


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
    tool, _ = chosen_assembler(options.tool.ptxas, None, options.tool.trust, [a])
    if reason := Rewrites((REWRITES[options.rewrite],)).why_not(tool.version):
        raise UsageError(reason)
    return [a, replace(a, label=f"{a.label} after {options.rewrite}", ptx=ptx, cubin=None)]
