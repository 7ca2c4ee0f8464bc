"""Check that ptxas translates kernels correctly: run the builds of several ptxas versions and optimisation levels.

All builds of a kernel get the same buffers: recorded contents, random numbers, zeros, denormals, special numbers.
The values that they store are compared bit by bit. This needs a GPU, but no torch. Without a GPU, or with --cpu, the
emulator executes a few CTAs of each launch on the CPU, once from the PTX and once from each build, and compares.

  tritonhook verify script.py                             # every kernel that the script launches
  tritonhook verify tritonhook-captures                   # captures of `tritonhook run --launches script.py`
  tritonhook verify kernel.ptx --args launch.json
  tritonhook verify --cpu captures                        # captures of `tritonhook run --arch sm_90a script.py`
  tritonhook verify a.cubin b.cubin --args launch.json    # compare two builds, unchanged

With the following options a script runs dry, without a GPU, and its kernels are executed several times on the CPU. The
bits that they store are compared: between configurations of an autotuned kernel, between settings, between orders of
CTAs, warps and atomics, or for the same rows in inputs with fewer and more rows.

  tritonhook verify script.py --configs
  tritonhook verify script.py --set num_warps=4,8 --set BLOCK_K=32,64
  tritonhook verify script.py --orders 4
  tritonhook verify script.py --rows x                    # of the function that has an argument x
  tritonhook verify script.py --stages                    # interpreter, PTX, machine code: which changes the result?

--known runs nothing, and needs no GPU: it lists known bugs of ptxas whose pattern occurs in a kernel.

  tritonhook verify --known tritonhook-captures           # bugs of the ptxas that made each kernel
  tritonhook verify --known kernel.ptx --ptxas 12.9.86    # bugs of this ptxas, which need not be installed

Exit codes: 1 if a kernel crashes, hangs or stores different values, if compared bits differ, or with --known if the
ptxas in use has, or may have, one of the bugs; else 2 if a kernel could not be run or read.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.versions import is_version
from tritonhook.capture.launches.contents import INPUTS
from tritonhook.capture.model import Capture
from tritonhook.capture.selection import Skipped
from tritonhook.capture.store import by_module, read_capture, read_launch
from tritonhook.cli._bits import ARCH, compare_bits
from tritonhook.cli._inputs import (
    HUNG,
    OnlyKernel,
    RecordedLaunch,
    captures_at,
    chosen_assembler,
    cubin_of,
    limit_option,
    load_pair,
    no_kernels,
    place,
    read_bytes,
    trust_option,
)
from tritonhook.cli._launched import LaunchedKernel, launched
from tritonhook.cli._parser import Group, flag, option, part, rest
from tritonhook.cli._programs import is_function, is_script, record_launches, why_no_gpu
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.cubin.elf import MAGIC
from tritonhook.errors import CaptureError, DeviceError, PtxError, TritonHookError, UsageError
from tritonhook.ptx.miscompiles import KnownModule, findings
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.pool import usable_processors
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.tool import available_ptxas, find_ptxas
from tritonhook.verify.cpu import CTAS, CpuExecutor, with_ptx
from tritonhook.verify.cpu import LIMIT_S as CPU_LIMIT_S
from tritonhook.verify.differential import (
    RUNS,
    Built,
    Case,
    Recipe,
    Verified,
    build_all,
    case_of,
    recipes,
    skipped,
    verify,
)
from tritonhook.verify.executor import LIMIT_S, Executor
from tritonhook.verify.judgement import Latitude, latitude_of
from tritonhook.verify.model import Build, Runner, Verdict

if TYPE_CHECKING:
    from tritonhook.report.result import Result

_BAD = (Verdict.CRASH, Verdict.HANG, Verdict.DIFFERENT)
_AHEAD = 4  # number of kernels that are assembled while another kernel runs
_MOST_CHARACTERS = 100  # in the name of a kernel's folder


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _inputs(text: str) -> tuple[str, ...]:
    names = _words(text)
    if unknown := [name for name in names if name not in INPUTS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: no such input; give some of {', '.join(INPUTS)}")
    return names


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: tuple[str, ...] = place(
        nargs="+",
        help="SCRIPT.py [-- ARGUMENTS], MODULE:FUNCTION, capture folder, captured kernel or its id, PTX file; or two "
        "builds of a kernel: cubins, PTX files or captures",
    )
    rest: tuple[str, ...] | None = rest()
    known: bool = flag(help="list known bugs of ptxas whose pattern the PTX has; runs nothing")
    recorded: RecordedLaunch = part(RecordedLaunch)
    only: OnlyKernel = part(OnlyKernel)
    ptxas: str | None = option(metavar="VERSION|PATH", help="reference: the ptxas in use (default: the capture's)")
    ptxas_options: str | None = option("--options", metavar="'...'", help="ptxas options (default: the capture's)")
    against: tuple[str, ...] | None = option(
        type=_words,
        metavar="VERSION,...",
        help="compare with these ptxas versions (default: the oldest and the newest installed that accept the kernel)",
    )
    inputs: tuple[str, ...] = option(
        type=_inputs,
        default=INPUTS,
        metavar="NAME,...",
        help=f"contents of buffers before a launch (default: {', '.join(INPUTS)}); buffers of indices and flags keep "
        "their recorded contents",
    )
    runs: int = option(type=int, default=RUNS, metavar="N", help=f"runs of each build (default: {RUNS})")
    limit: float | None = limit_option(HUNG, f"{LIMIT_S:g}; on the CPU {CPU_LIMIT_S:g}")
    cpu: bool = flag(help="execute on the CPU, by emulation (default without a GPU)")
    orders: int = option(
        type=int,
        default=1,
        metavar="N",
        help="on the CPU, execute each launch in N orders of CTAs, warps and atomics, with all CTAs; exit code 1 if "
        "stored values depend on the order",
    )
    ctas: int = option(
        type=int, default=CTAS, metavar="N", help=f"on the CPU, number of CTAs to execute of a launch (default: {CTAS})"
    )
    minimise: Path | None = option(
        type=Path,
        metavar="FOLDER",
        help="shrink each kernel with verdict DIFFERENT, in up to 5 minutes; write a reproducer to FOLDER/KERNEL",
    )
    configs: bool = flag(help="with a script: compare the bits that the configurations of each autotuned kernel store")
    set: tuple[str, ...] = option(
        action="append",
        default=[],
        metavar="NAME=VALUE,...",
        help="with a script: compare the bits that each kernel stores if NAME has these values. NAME: a constant of "
        "the kernel, num_warps, num_stages, num_ctas or maxnreg. If repeated, all combinations are compared",
    )
    rows: str | None = option(
        metavar="ARG[:DIM],...",
        help="with a script: call the function that has this tensor argument again, with 1 to 256 rows of the tensor, "
        "and compare the rows of the results; FUNCTION.ARG[:DIM] chooses the function",
    )
    stages: bool = flag(
        help="with a script: execute the first launch of each kernel in several ways, and compare the results: by "
        "Triton's interpreter, from PTX, from machine code of -O0, and from the kernel's own machine code. Also find "
        "uses of masked values of tl.load without `other`"
    )
    arch: str | None = option(
        metavar="sm_XX",
        help=f"with a script and --orders, --configs, --set, --rows or --stages: architecture of the dry run "
        f"(default: {ARCH})",
    )
    sanitize: bool = flag(
        help="with --orders, --configs, --set, --rows or --stages: look for faults of the kernels, too"
    )
    trust: bool = trust_option()
    results: Results = part(Results)

    @property
    def is_program(self) -> bool:
        """Whether the target is a program, which is run to record or execute its launches."""
        return is_function(self.target[0]) or is_script(self.target[0])

    @property
    def compares_bits(self) -> bool:
        """Whether the kernels of a program are executed several times, to compare the bits that they store."""
        asked = self.configs or self.set or self.rows is not None or self.stages or self.orders > 1
        return self.is_program and bool(asked)

    def check(self) -> None:
        if self.known:
            return
        if min(self.runs, self.ctas, self.orders) < 1:
            raise UsageError("--runs, --ctas and --orders must be positive")
        asked = [f"--{it}" for it in ("configs", "set", "rows", "stages", "arch", "sanitize") if getattr(self, it)]
        if asked and not self.is_program:
            raise UsageError(f"{asked[0]}: only for a script or MODULE:FUNCTION; {self.target[0]} is neither")
        if asked and not self.compares_bits:
            raise UsageError(f"{asked[0]}: only with --orders, --configs, --set, --rows or --stages")


def run(options: Options) -> int:
    if options.known:
        result, code = _known(options)
    elif options.compares_bits:
        result, code = compare_bits(options)
    else:
        result, code = _verification(options)
    give(options.results, result)
    return code


def _verification(options: Options) -> tuple[Result, int]:
    """Verify each kernel of the target; while a kernel runs, the next kernels are assembled. Also return the exit
    code."""
    from tritonhook.report.results.verification import Verification

    no_gpu = why_no_gpu()
    options = replace(options, cpu=options.cpu or no_gpu is not None)
    if options.cpu:
        _check_cpu(options, no_gpu)
    elif options.orders > 1:
        raise UsageError("--orders: only with --cpu; a GPU chooses the order itself")
    verified: list[Verified] = []
    with tempfile.TemporaryDirectory(prefix="tritonhook-verify-") as top, working("verifying kernels") as done:
        subjects = _with_builds(_subjects(options, Path(top)), Path(top), options.cpu)
        if options.cpu:
            runner: Runner = CpuExecutor(options.ctas, options.limit or CPU_LIMIT_S, options.orders)
        else:
            runner = Executor(options.limit or LIMIT_S)
        with runner:
            for subject, built in subjects:
                verified.append(_verified(options, subject, built, runner))
                done(1)
    result = Verification.of(" ".join(options.target), runner.device, verified)
    verdicts = {kernel.verdict for kernel in verified}
    if verdicts & {*_BAD, *((Verdict.NONDETERMINISTIC,) if options.orders > 1 else ())}:
        return result, 1
    return result, 2 if not verdicts or verdicts & {Verdict.SKIPPED, Verdict.NOT_UNDERSTOOD} else 0


def _check_cpu(options: Options, no_gpu: str | None) -> None:
    """Raise DeviceError if numpy is missing, which the emulator needs; UsageError for a script, whose launches
    must first be recorded by a dry run."""
    first = options.target[0]
    if find_spec("numpy") is None:
        raise DeviceError(
            f"{no_gpu or 'numpy is not installed'}; verify can emulate kernels with numpy: "
            "`pip install 'tritonhook[emulate]'`. `tritonhook verify --known FILE|CAPTURES` needs no GPU and no numpy"
        )
    if options.is_program:
        raise UsageError(
            f"{no_gpu or '--cpu'}: the launches of {first} come from a dry run: "
            f"`tritonhook run --arch sm_90a {first}`, then `tritonhook verify tritonhook-captures`"
        )


def _verified(options: Options, subject: _Subject | Skipped, built: Future[Built] | None, runner: Runner) -> Verified:
    """Run the builds of one kernel, and judge. With --minimise, write a reproducer if they differ."""
    if isinstance(subject, Skipped):
        return skipped(subject.kernel, "", subject.reason)
    assert built is not None
    case = subject.case
    try:
        verified = verify(case, built.result(), runner, options.inputs, options.runs)
    except DeviceError:
        raise
    except TritonHookError as error:  # further kernels can still be verified
        runner.close()
        return skipped(case.kernel, case.launch.summary, str(error))
    if options.minimise is None or verified.verdict is not Verdict.DIFFERENT:
        return verified
    from tritonhook.verify.reproduce import reproduce

    note = "not minimised: cubins have no PTX; give the PTX and --args"
    if subject.ptx is not None:
        folder = options.minimise / case.kernel[:_MOST_CHARACTERS]
        try:
            with working(f"minimising {case.kernel}") as advance:
                on_step = lambda name, trial: advance(1)  # noqa: E731
                note = reproduce(case, subject.ptx, verified, subject.recipes, runner, folder, on_step).note
        except DeviceError:
            raise
        except TritonHookError as error:
            note = f"not minimised: {error}"
    return replace(verified, notes=(*verified.notes, note))


# --- what is verified ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Subject:
    """A kernel with a launch, and its builds: existing cubins, or recipes by which its PTX is assembled."""

    case: Case
    ptx: Ptx | None = None
    recipes: tuple[Recipe, ...] = ()
    builds: tuple[Build, ...] = ()


_WithBuilds = tuple[_Subject | Skipped, Future[Built] | None]


def _with_builds(subjects: Iterable[_Subject | Skipped], folder: Path, on_cpu: bool) -> Iterator[_WithBuilds]:
    """Yield kernels with their builds, which are assembled in advance, into `folder`. on_cpu: put the PTX before the
    builds, as the emulator's reference."""
    waiting: deque[_WithBuilds] = deque()
    with tool_threads(usable_processors()) as pool, tool_threads(_AHEAD) as ahead:

        def build(subject: _Subject, folder: Path) -> Built:
            if subject.ptx is None:
                return Built(subject.builds, (), ())
            built = build_all(subject.ptx, subject.case.kernel, subject.recipes, folder, pool)
            return with_ptx(built, subject.ptx, subject.case.kernel, folder) if on_cpu else built

        for number, subject in enumerate(subjects):
            place = folder / f"builds-{number}"
            waiting.append((subject, None if isinstance(subject, Skipped) else ahead.submit(build, subject, place)))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


def _subjects(options: Options, folder: Path) -> Iterator[_Subject | Skipped]:
    """Yield the kernels of the target, each with its most frequent launch. Configurations that lost an autotuning are
    left out. folder: temporary folder for captures and cubins.

    Raises TritonHookError if there is nothing to run.
    """
    target, *others = options.target
    if others and not options.is_program:
        if len(others) > 1:
            raise UsageError(
                f"{' '.join(others)}: too many targets; give one target, two builds of one kernel, or a script"
            )
        yield _of_two_builds(options, folder)
        return
    if options.is_program:
        if options.recorded.args:
            raise UsageError(f"--args: not allowed here: {target} is run to record its launches")
        target = str(folder / "captures")
        record_launches([*options.target, *(options.rest or ())], Path(target), "nothing was verified")
        options = replace(options, trust=True)  # the captures were made by this command
    for one in launched(target, options.only.entry, options.recorded, dry=options.cpu):
        if isinstance(one, Skipped):
            yield one
            continue
        try:
            yield _of_ptx(options, one)
        except TritonHookError as error:
            if not one.record:
                raise
            yield Skipped(one.kernel, one.record, str(error))


def _of_ptx(options: Options, one: LaunchedKernel) -> _Subject:
    """Read a kernel, and choose the recipes by which its PTX is assembled."""
    given = one.load()
    if given.ptx is None:
        raise UsageError(f"{given.label}: no PTX to assemble; give a second build to compare the two unchanged")
    own, arguments = chosen_assembler(options.ptxas, options.ptxas_options, options.trust, [given])
    latitude = latitude_of(given.ptx)
    tools = list(map(find_ptxas, options.against or ())) or list(available_ptxas())
    wanted = recipes(own, arguments, latitude, tools, each=bool(options.against))
    case = case_of(given.entry, read_launch(one.launch), one.launch.parent, given.ptx, latitude)
    return _Subject(case, given.ptx, wanted)


def _of_two_builds(options: Options, folder: Path) -> _Subject:
    """Read two builds to compare. Cubins stay unchanged; PTX is assembled."""
    a, b = options.target
    launch = options.recorded.of([a, b], dry=options.cpu)
    both = load_pair(a, b, options.only.entry)
    builds = []
    for number, given in enumerate(both):
        path = folder / f"{number}.cubin"
        path.write_bytes(cubin_of(given, options.ptxas, options.ptxas_options, options.trust)[0].data)
        builds.append(Build(given.label, path, given.entry, given.ptxas))
    ptx = next((given.ptx for given in both if given.ptx is not None), None)
    latitude = replace(Latitude(contraction=True) if ptx is None else latitude_of(ptx), contracted=True)
    case = case_of(both[0].entry, read_launch(launch), launch.parent, None, latitude)
    return _Subject(case, builds=tuple(builds))


# --- known bugs of ptxas: nothing is run ------------------------------------------------------------


def _known(options: Options) -> tuple[Result, int]:
    """List known bugs of ptxas whose pattern occurs in PTX files, captures and capture folders. Also return the exit
    code: 1 if the ptxas in use has such a bug, or may have it; 2 if a kernel could not be read. Raises CaptureError for
    a folder without kernels."""
    from tritonhook.report.results.verification import Known

    modules = list(_modules(options.target, options.ptxas))
    result = Known.of(" ".join(options.target), modules)
    if any(hit.is_suspect or hit.ptxas is None for module in modules for hit in module.found):
        return result, 1
    return result, 2 if any(module.unread is not None for module in modules) else 0


def _modules(targets: Sequence[str], ptxas: str | None) -> Iterator[KnownModule]:
    """Yield the modules of the targets, with the bugs found. A capture is judged by its optimisation level. ptxas: the
    version whose bugs are listed. None: the capture's ptxas; for a PTX file, the newest installed one."""
    version = ptxas if ptxas is None or is_version(ptxas) else find_ptxas(ptxas).version
    for target in targets:
        path = Path(target)
        if not path.is_dir():
            data = read_bytes(path)
            if data[:4] == MAGIC:
                raise UsageError(f"{path}: machine code has no PTX; give PTX, or a capture")
            ptx, newest = Ptx.from_bytes(data, str(path)), version or find_ptxas(None).version
            yield KnownModule(str(path), ptx.target, newest, findings(ptx.text, newest))
            continue
        records: Mapping[str, Capture | CaptureError]
        if (path / "capture.json").exists():
            capture = read_capture(path)
            records, ids = {target: capture}, {target: capture.kernel}
        else:
            folder = captures_at(target)
            records, ids = folder.captures(), folder.ids
            if not records:
                raise no_kernels(target)
        captures = {record: outcome for record, outcome in records.items() if isinstance(outcome, Capture)}
        for module in by_module(captures):
            record, first = next(iter(module.items()))
            name, own = ids[record], version or first.assembler.version
            try:
                hits = findings(first.ptx.text, own, level_of(first.assembler.options))
                yield KnownModule(name, first.arch, own, hits)
            except (CaptureError, PtxError) as error:
                yield KnownModule(name, first.arch, own, unread=str(error))
        damaged = ((record, outcome) for record, outcome in records.items() if not isinstance(outcome, Capture))
        yield from (KnownModule(ids[record], None, None, unread=str(error)) for record, error in damaged)
