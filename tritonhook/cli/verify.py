"""Check that ptxas computes what the PTX says: run each kernel as several ptxas versions and levels assemble it.

All builds of a kernel get the same buffers: recorded contents, random numbers, zeros, denormals, special numbers.
What they store is compared bit by bit. This needs a GPU, and no torch. Without a GPU, or with --cpu, a few CTAs of each
launch are emulated on the CPU: the PTX, and each build, which must store what the PTX stores.

  tritonhook verify script.py                             # every kernel that it launches
  tritonhook verify tritonhook-captures                   # with launches, from `tritonhook run --launches`
  tritonhook verify kernel.ptx --args launch.json
  tritonhook verify --cpu captures                        # of a dry run: `tritonhook run --arch sm_90a script.py`
  tritonhook verify a.cubin b.cubin --args launch.json    # two builds as they are

A script runs dry, on the CPU. For it, these options compare the bits that kernels store: in each configuration of an
autotuned kernel, in other settings, in other orders of CTAs, warps and atomics, for the same rows among fewer and more.

  tritonhook verify script.py --configs
  tritonhook verify script.py --set num_warps=4,8 --set BLOCK_K=32,64
  tritonhook verify script.py --orders 4
  tritonhook verify script.py --rows x                    # of the function with an argument x
  tritonhook verify script.py --stages                    # interpreter, PTX, machine code: which changed the result?

With --known nothing is run, and no GPU is needed: it lists the known bugs of ptxas whose pattern a kernel has.

  tritonhook verify --known tritonhook-captures           # each kernel judged by its own ptxas
  tritonhook verify --known kernel.ptx --ptxas 12.9.86    # that ptxas need not be installed

Exit codes: 1 if a kernel crashes, hangs, stores something different, or other bits where these are compared, or if the
ptxas in use is known to be wrong, or may be; else 2 if one could not be run or read.
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
from tritonhook.capture.selection import Skipped, selected
from tritonhook.capture.store import by_module, read_capture, read_launch
from tritonhook.cli._bits import ARCH, compare_bits
from tritonhook.cli._inputs import (
    HUNG,
    Input,
    OnlyKernel,
    RecordedLaunch,
    captures_at,
    chosen_assembler,
    cubin_of,
    input_of,
    limit_option,
    load_input,
    load_pair,
    no_kernels,
    place,
    read_bytes,
    trust_option,
)
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
_AHEAD = 4  # kernels that are assembled while another one runs
_MOST_CHARACTERS = 100  # in the name of a kernel's folder


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

    @property
    def is_program(self) -> bool:
        """Whether the target is run, to record or to execute its launches."""
        return is_function(self.target[0]) or is_script(self.target[0])

    @property
    def compares_bits(self) -> bool:
        """Whether a program's kernels are executed more than once, and the bits that they store compared."""
        asked = self.configs or self.set or self.rows is not None or self.stages or self.orders > 1
        return self.is_program and bool(asked)

    def check(self) -> None:
        if self.known:
            return
        if min(self.runs, self.ctas, self.orders) < 1:
            raise UsageError("--runs, --ctas and --orders must be positive")
        asked = [f"--{it}" for it in ("configs", "set", "rows", "stages", "arch", "sanitize") if getattr(self, it)]
        if asked and not self.is_program:
            raise UsageError(f"{asked[0]}: for a script, or MODULE:FUNCTION, which runs dry; {self.target[0]} is none")
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
    """Verify each kernel of the target. While one runs, the next ones are assembled. Also return the exit code."""
    from tritonhook.report.results.verification import Verification

    no_gpu = why_no_gpu()
    options = replace(options, cpu=options.cpu or no_gpu is not None)
    if options.cpu:
        _check_cpu(options, no_gpu)
        runner: Runner = CpuExecutor(options.ctas, options.limit or CPU_LIMIT_S, options.orders)
    elif options.orders > 1:
        raise UsageError("--orders: a GPU chooses its orders itself; give --cpu")
    else:
        runner = Executor(options.limit or LIMIT_S)
    verified: list[Verified] = []
    with tempfile.TemporaryDirectory(prefix="tritonhook-verify-") as top, runner, working("verifying kernels") as done:
        folder = Path(top)
        for subject, built in _with_builds(_subjects(options, folder), folder, options.cpu):
            verified.append(_verified(options, subject, built, runner))
            done(1)
    result = Verification.of(" ".join(options.target), runner.device, verified)
    verdicts = {kernel.verdict for kernel in verified}
    if verdicts & {*_BAD, *((Verdict.NONDETERMINISTIC,) if options.orders > 1 else ())}:
        return result, 1
    return result, 2 if not verdicts or verdicts & {Verdict.SKIPPED, Verdict.NOT_UNDERSTOOD} else 0


def _check_cpu(options: Options, no_gpu: str | None) -> None:
    """Raise DeviceError if nothing can be emulated; UsageError for a script: without a GPU it needs a dry run first."""
    first = options.target[0]
    if find_spec("numpy") is None:
        raise DeviceError(
            f"{no_gpu or 'numpy is not installed'}; verify can emulate kernels with numpy: "
            "`pip install 'tritonhook[emulate]'`. `tritonhook verify --known FILE|CAPTURES` needs neither"
        )
    if options.is_program:
        raise UsageError(
            f"{no_gpu or '--cpu'}: the launches of {first} come from a dry run: "
            f"`tritonhook run --arch sm_90a {first}`, then `tritonhook verify tritonhook-captures`"
        )


def _verified(options: Options, subject: _Subject | Skipped, built: Future[Built] | None, runner: Runner) -> Verified:
    """Run the builds of one kernel and judge; with --minimise also make a reproducer."""
    if isinstance(subject, Skipped):
        return skipped(subject.kernel, "", subject.reason)
    assert built is not None
    case = subject.case
    try:
        verified = verify(case, built.result(), runner, options.inputs, options.runs)
    except DeviceError:
        raise
    except TritonHookError as error:  # the others can still be verified
        runner.close()
        return skipped(case.kernel, case.launch.summary, str(error))
    if options.minimise is None or verified.verdict is not Verdict.DIFFERENT:
        return verified
    from tritonhook.verify.reproduce import reproduce

    note = "not minimised: that needs PTX, and these are cubins; give the PTX and --args"
    if subject.ptx is not None:
        try:
            folder, gpu = options.minimise / verified.kernel[:_MOST_CHARACTERS], runner.device or "a GPU"
            with working(f"minimising {verified.kernel}") as advance, runner.trials() as trials:
                run, tools, on_step = trials.run_until_lost, tuple(available_ptxas()), lambda name, trial: advance(1)
                note = reproduce(
                    case, subject.ptx, verified, subject.recipes, run, folder, gpu=gpu, tools=tools, on_step=on_step
                ).note
        except DeviceError:
            raise
        except TritonHookError as error:
            note = f"not minimised: {error}"
    return replace(verified, notes=(*verified.notes, note))


# --- what is verified ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Subject:
    """A kernel with a launch of it, and where its builds come from: recipes for its PTX, or existing cubins."""

    case: Case
    ptx: Ptx | None = None
    recipes: tuple[Recipe, ...] = ()
    builds: tuple[Build, ...] = ()


_WithBuilds = tuple[_Subject | Skipped, Future[Built] | None]


def _with_builds(subjects: Iterable[_Subject | Skipped], folder: Path, on_cpu: bool) -> Iterator[_WithBuilds]:
    """Yield the kernels with their builds, in `folder`, while the next ones are assembled. on_cpu: put the PTX before
    the builds, for the emulator."""
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
    """Yield the kernels of the target; of a capture folder each with its most frequent launch, without the
    configurations that lost an autotuning. folder: for captures and cubins, as long as the verification lasts.

    Raises TritonHookError if there is nothing to run.
    """
    first, *others = options.target
    path, entry = Path(first), options.only.entry
    if others and not options.is_program:
        if len(others) > 1:
            raise UsageError(
                f"{' '.join(others)}: not understood; give one target, two builds of one kernel, or a script"
            )
        yield _of_two_builds(options, folder)
        return
    if options.is_program:
        if options.recorded.args:
            raise UsageError(f"--args: not allowed here: {first} is run to record its launches")
        path = folder / "captures"
        record_launches([*options.target, *(options.rest or ())], path, "nothing was verified")
        options = replace(options, trust=True)  # this command made the captures
    elif options.recorded.args or not (path / "index").is_dir():  # a PTX file, a capture, or one kernel of a folder
        yield _of_ptx(options, load_input(first, entry), options.recorded.of([first], dry=options.cpu))
        return
    captures, has_kernels = captures_at(path), False
    for chosen in selected(captures, entry, options.recorded.launch, dry=options.cpu):
        if isinstance(chosen, Skipped):
            yield chosen
            continue
        has_kernels, kernel, record = True, chosen.capture.kernel, chosen.record
        if not chosen.launches:
            record_it = "record with `tritonhook run --launches`, or give one with --args and --entry"
            yield Skipped(kernel, record, chosen.unrecorded or f"no launch of it was recorded; {record_it}")
            continue
        try:
            given = input_of(str(captures.path / "kernels" / record), chosen.capture)
            yield _of_ptx(options, given, chosen.launches[0].path)
        except TritonHookError as error:
            yield Skipped(kernel, record, str(error))
    if not has_kernels:
        raise UsageError(f"{path}: {f'no kernel {entry!r}' if entry else 'no kernels'} in this capture folder")


def _of_ptx(options: Options, given: Input, launch: Path) -> _Subject:
    """Choose what assembles a kernel's PTX."""
    if given.ptx is None:
        raise UsageError(f"{given.label}: no PTX to assemble again; give a second build to compare the two unchanged")
    own, arguments = chosen_assembler(options.ptxas, options.ptxas_options, options.trust, [given])
    latitude = latitude_of(given.ptx)
    tools = list(map(find_ptxas, options.against or ())) or list(available_ptxas())
    wanted = recipes(own, arguments, latitude, tools, each=bool(options.against))
    case = case_of(given.entry, read_launch(launch), launch.parent, given.ptx, latitude)
    return _Subject(case, given.ptx, wanted)


def _of_two_builds(options: Options, folder: Path) -> _Subject:
    """Read two builds to compare unchanged: cubins, captures of other compilers or options, PTX files."""
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
    """List known bugs in the PTX of files, captures and capture folders: of --ptxas, else of each capture's own, and of
    the newest installed for a file. Also return the exit code: 1 if that ptxas is wrong somewhere, or may be; 2 if
    something could not be read. Raises CaptureError for a folder without kernels."""
    from tritonhook.report.results.verification import Known

    modules = list(_modules(options.target, options.ptxas))
    result = Known.of(" ".join(options.target), modules)
    if any(hit.is_suspect or hit.ptxas is None for module in modules for hit in module.found):
        return result, 1
    return result, 2 if any(module.unread is not None for module in modules) else 0


def _modules(targets: Sequence[str], ptxas: str | None) -> Iterator[KnownModule]:
    """Yield the modules of the targets, those of captures judged at their own level. ptxas: to judge by; None: a
    capture's own, and the newest for a file."""
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
