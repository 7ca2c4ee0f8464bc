"""What `tritonhook verify` runs: the kernels of a target, each with a launch, and the recipes of its builds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.capture.launches.contents import INPUTS
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.selection import Selected, Skipped, selected
from tritonhook.capture.store import CaptureFolder, read_launch
from tritonhook.cli._inputs import (
    HUNG,
    Input,
    OnlyKernel,
    RecordedLaunch,
    captures_at,
    chosen_arguments,
    chosen_ptxas,
    limit_option,
    load_input,
    load_pair,
    place,
    trust_option,
)
from tritonhook.cli._parser import Group, flag, option, part, rest
from tritonhook.cli._programs import is_function, is_script, record_launches, why_no_gpu
from tritonhook.cli._results import Results
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool, available_ptxas, find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.verify.cpu import CTAS
from tritonhook.verify.cpu import LIMIT_S as CPU_LIMIT_S
from tritonhook.verify.differential import RUNS, Built, Recipe, build_all, recipes
from tritonhook.verify.executor import LIMIT_S
from tritonhook.verify.judgement import Latitude, latitude_of
from tritonhook.verify.model import Build

ARCH = "sm_90a"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _inputs(text: str) -> tuple[str, ...]:
    names = _words(text)
    if unknown := [name for name in names if name not in INPUTS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: give some of {', '.join(INPUTS)}")
    return names


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: tuple[str, ...] = place(
        nargs="+",
        help="SCRIPT.py [-- ARGUMENTS], MODULE:FUNCTION, capture folder, captured kernel or its id, PTX file; or two "
        "builds",
    )
    rest: tuple[str, ...] | None = rest()
    known: bool = flag(help="list known bugs of ptxas in the PTX, without a GPU")
    recorded: RecordedLaunch = part(RecordedLaunch)
    only: OnlyKernel = part(OnlyKernel)
    ptxas: str | None = option(metavar="VERSION|PATH", help="the ptxas in use (default: the capture's)")
    ptxas_options: str | None = option("--options", metavar="'...'", help="ptxas options (default: the capture's)")
    against: tuple[str, ...] | None = option(
        type=_words,
        metavar="VERSION,...",
        help="compare with these ptxas (default: the oldest and the newest installed that accept the kernel)",
    )
    inputs: tuple[str, ...] = option(
        type=_inputs,
        default=INPUTS,
        metavar="NAME,...",
        help=f"contents of buffers before a launch (default: {', '.join(INPUTS)}); indices and flags stay as recorded",
    )
    runs: int = option(type=int, default=RUNS, metavar="N", help=f"runs of each build (default: {RUNS})")
    limit: float | None = limit_option(HUNG, f"{LIMIT_S:g}; on the CPU {CPU_LIMIT_S:g}")
    cpu: bool = flag(help="emulate on the CPU (default without a GPU)")
    orders: int = option(
        type=int,
        default=1,
        metavar="N",
        help="on the CPU, execute each launch in N orders of CTAs, warps and atomics, with all CTAs: exit code 1 if "
        "what it stores depends on the order",
    )
    ctas: int = option(
        type=int, default=CTAS, metavar="N", help=f"number of CTAs to emulate of a launch (default: {CTAS})"
    )
    minimise: Path | None = option(
        type=Path,
        metavar="FOLDER",
        help="shrink each kernel that is DIFFERENT (up to 5 minutes each); write reproducers to FOLDER/KERNEL",
    )
    configs: bool = flag(help="compare the bits that the configurations of each autotuned kernel of a script store")
    set: tuple[str, ...] = option(
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="compare each kernel of a script with these values of a constant, or of num_warps, num_stages, num_ctas, "
        "maxnreg; may be repeated: all combinations",
    )
    rows: str | None = option(
        metavar="ARG[:DIM],...",
        help="call the function of a script that has this tensor argument again, with 1 to 256 rows, and compare the "
        "rows of its results; FUNCTION.ARG[:DIM] chooses the function",
    )
    stages: bool = flag(
        help="compare what the first launch of each kernel of a script stores by Triton's interpreter, from its PTX "
        "and from its machine code, at -O0 and as built; find uses of values that tl.load without `other` leaves open"
    )
    arch: str | None = option(
        metavar="sm_XX",
        help=f"with a script and --orders, --configs, --set, --rows or --stages: run it dry for this (default: {ARCH})",
    )
    sanitize: bool = flag(help="with a script that runs dry: look for faults of its kernels too")
    trust: bool = trust_option()
    results: Results = part(Results)


@dataclass(frozen=True, slots=True)
class VerifySubject:
    """A kernel, a launch of it, and where its builds come from: recipes for its PTX, or existing cubins.

    folder: of the launch's recorded contents.
    """

    kernel: str
    launch: Launch
    folder: Path | None
    latitude: Latitude
    ptx: Ptx | None = None
    recipes: tuple[Recipe, ...] = ()
    cubins: tuple[Build, ...] = ()

    def build(self, folder: Path, pool: Executor) -> Built:
        """Make the builds. Raises UsageError if the reference cannot be made."""
        if self.ptx is None:
            return Built(self.cubins, (), ())
        return build_all(self.ptx, self.kernel, self.recipes, folder, pool)


def subjects_of(options: Options, folder: Path) -> Iterator[VerifySubject | Skipped]:
    """Yield the kernels of the target. folder: for captures and cubins, as long as the verification lasts.

    Raises TritonHookError if there is nothing to run.
    """
    first, *rest = options.target
    if is_function(first) or is_script(first):
        if options.recorded.args:
            raise UsageError(f"--args: not allowed here: {first} is run to record its launches")
        captures = folder / "captures"
        record_launches([first, *rest, *(options.rest or ())], captures, "nothing was verified")
        yield from _of_captures(replace(options, trust=True), captures)
    elif len(rest) == 1:
        yield _of_cubins(options, first, rest[0], folder)
    elif rest:
        raise UsageError(f"{' '.join(rest)}: not understood; give one target, two builds of one kernel, or a script")
    elif (Path(first) / "index").is_dir() and not options.recorded.args:
        yield from _of_captures(options, Path(first))
    else:
        yield _of_file(options, first)


def check_cpu(options: Options) -> None:
    """Raise DeviceError if nothing can be emulated; UsageError for a script: without a GPU it needs a dry run first."""
    if find_spec("numpy") is None:
        raise DeviceError(
            f"{why_no_gpu() or 'numpy is not installed'}; verify can emulate kernels with numpy: "
            "`pip install 'tritonhook[emulate]'`. `tritonhook verify --known FILE|CAPTURES` needs neither"
        )
    first = options.target[0]
    if is_function(first) or is_script(first):
        raise UsageError(
            f"{why_no_gpu() or '--cpu'}: the launches of {first} come from a dry run: "
            f"`tritonhook run --arch sm_90a {first}`, then `tritonhook verify tritonhook-captures`"
        )


# --- kinds of target -----------------------------------------------------------------------------


def _of_captures(options: Options, path: Path) -> Iterator[VerifySubject | Skipped]:
    """Yield each kernel of a capture folder with its most frequent launch; configurations that lost an autotuning are
    left out."""
    captures = captures_at(path)
    has_kernels = False
    for kernel in selected(captures, options.only.entry, options.recorded.launch, dry=options.cpu):
        has_kernels = has_kernels or isinstance(kernel, Selected)
        yield kernel if isinstance(kernel, Skipped) else _of_record(options, captures, kernel)
    if not has_kernels:
        what = f"no kernel {options.only.entry!r}" if options.only.entry else "no kernels"
        raise UsageError(f"{path}: {what} in this capture folder")


def _of_record(options: Options, captures: CaptureFolder, chosen: Selected) -> VerifySubject | Skipped:
    kernel = chosen.capture.kernel
    if not chosen.launches:
        record_it = "record with `tritonhook run --launches`, or give one with --args and --entry"
        return Skipped(kernel, chosen.record, chosen.unrecorded or f"no launch of it was recorded; {record_it}")
    try:
        given = load_input(str(captures.path / "kernels" / chosen.record), None)
        return _subject(options, given, chosen.launches[0].path)
    except TritonHookError as error:
        return Skipped(kernel, chosen.record, str(error))


def _of_file(options: Options, path: str) -> VerifySubject:
    """Read a PTX file, a capture, or one kernel of a capture folder."""
    given = load_input(path, options.only.entry)
    launch = options.recorded.of([path], dry=options.cpu)
    return _subject(options, given, launch)


def _subject(options: Options, given: Input, launch: Path) -> VerifySubject:
    if given.ptx is None:
        raise UsageError(f"{given.label}: no PTX to assemble again; give a second build to compare the two unchanged")
    own = chosen_ptxas(options.ptxas, options.trust, [given])
    arguments = chosen_arguments(options.ptxas_options, [given])
    latitude = latitude_of(given.ptx)
    wanted = recipes(own, arguments, latitude, _others(options))
    if options.against:
        wanted = _against(wanted, own)
    return VerifySubject(given.entry, read_launch(launch), launch.parent, latitude, given.ptx, wanted)


def _others(options: Options) -> list[Tool]:
    """Find the ptxas of --against, else all installed ones."""
    if not options.against:
        return list(available_ptxas())
    return [find_ptxas(version) for version in options.against]


def _against(wanted: Sequence[Recipe], own: Tool) -> tuple[Recipe, ...]:
    """Make a recipe for every version of --against, instead of the oldest and the newest that accept the kernel."""
    flat = [r for recipe in wanted for r in ((recipe, *recipe.others) if recipe.ptxas != own else (recipe,))]
    single = [replace(recipe, others=recipe.others if recipe.ptxas == own else ()) for recipe in flat]
    mine, others = [r for r in single if r.ptxas == own], [r for r in single if r.ptxas != own]
    return (*mine[:2], *sorted(others, key=lambda recipe: version_key(recipe.ptxas.version)), *mine[2:])


def _of_cubins(options: Options, a: str, b: str, folder: Path) -> VerifySubject:
    """Read two builds to compare unchanged: cubins, captures of other compilers or options, PTX files."""
    launch = options.recorded.of([a, b], dry=options.cpu)
    given = load_pair(a, b, options.only.entry)
    builds = tuple(_as_it_is(options, kernel, folder / f"{n}.cubin") for n, kernel in enumerate(given))
    ptx = next((kernel.ptx for kernel in given if kernel.ptx is not None), None)
    latitude = replace(Latitude(contraction=True) if ptx is None else latitude_of(ptx), contracted=True)
    return VerifySubject(given[0].entry, read_launch(launch), launch.parent, latitude, None, (), builds)


def _as_it_is(options: Options, given: Input, path: Path) -> Build:
    cubin = given.cubin
    if cubin is None:
        assert given.ptx is not None
        made = toolchain_of(chosen_ptxas(options.ptxas, options.trust, [given]))
        cubin = made.assemble_or_raise(given.ptx, chosen_arguments(options.ptxas_options, [given])).cubin
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cubin.data)
    return Build(given.label, path, given.entry, given.ptxas)
