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
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tritonhook._util.versions import is_version
from tritonhook.capture.launches.contents import INPUTS
from tritonhook.capture.model import Capture
from tritonhook.capture.selection import Skipped, selected
from tritonhook.capture.store import by_module, read_capture, read_launch
from tritonhook.cli._bits import ARCH, compare_bits, is_compared
from tritonhook.cli._inputs import (
    HUNG,
    Input,
    OnlyKernel,
    RecordedLaunch,
    captures_at,
    chosen_assembler,
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
from tritonhook.ptxas.toolchain import toolchain_of
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
    inputs_for,
    recipes,
    skipped,
    verify,
)
from tritonhook.verify.executor import LIMIT_S, TRIAL_LIMIT_S, Executor
from tritonhook.verify.judgement import Latitude, latitude_of
from tritonhook.verify.model import Build, Runner, Verdict

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


def run(options: Options) -> int:
    if options.known:
        return _give_known(options)
    if min(options.runs, options.ctas, options.orders) < 1:
        raise UsageError("--runs, --ctas and --orders must be positive")
    is_program = is_function(options.target[0]) or is_script(options.target[0])
    if is_compared(options, is_program):
        return compare_bits(options)
    options = replace(options, cpu=options.cpu or why_no_gpu() is not None)
    if options.orders > 1 and not options.cpu:
        raise UsageError("--orders: a GPU chooses its orders itself; give --cpu")
    if options.cpu:
        _check_cpu(options, is_program)
    with tempfile.TemporaryDirectory(prefix="tritonhook-verify-") as folder:
        with _runner(options) as executor:
            verified = tuple(_verified(options, Path(folder), executor))
            device = executor.device
        from tritonhook.report.results.verification import Verification

        give(options.results, Verification.of(" ".join(options.target), device, verified))
    verdicts = {kernel.verdict for kernel in verified}
    if verdicts & {*_BAD, *((Verdict.NONDETERMINISTIC,) if options.orders > 1 else ())}:
        return 1
    return 2 if not verdicts or verdicts & {Verdict.SKIPPED, Verdict.NOT_UNDERSTOOD} else 0


def _check_cpu(options: Options, is_program: bool) -> None:
    """Raise DeviceError if nothing can be emulated; UsageError for a script: without a GPU it needs a dry run first."""
    first = options.target[0]
    if find_spec("numpy") is None:
        raise DeviceError(
            f"{why_no_gpu() or 'numpy is not installed'}; verify can emulate kernels with numpy: "
            "`pip install 'tritonhook[emulate]'`. `tritonhook verify --known FILE|CAPTURES` needs neither"
        )
    if is_program:
        raise UsageError(
            f"{why_no_gpu() or '--cpu'}: the launches of {first} come from a dry run: "
            f"`tritonhook run --arch sm_90a {first}`, then `tritonhook verify tritonhook-captures`"
        )


def _runner(options: Options, most_s: float | None = None) -> Executor | CpuExecutor:
    """Choose the runner of the kernels: GPU or emulator. most_s: seconds per launch."""
    if options.cpu:
        limit_s = options.limit or CPU_LIMIT_S
        return CpuExecutor(options.ctas, min(limit_s, 10 * most_s) if most_s else limit_s, options.orders)
    limit_s = options.limit or LIMIT_S
    return Executor(min(limit_s, most_s) if most_s else limit_s)


def _verified(options: Options, folder: Path, executor: Runner) -> Iterator[Verified]:
    """Yield each kernel of the target, verified. While one runs on the GPU, the next ones are assembled."""
    waiting: deque[tuple[_Subject | Skipped, Future[Built] | None]] = deque()
    with (
        tool_threads(usable_processors()) as pool,
        tool_threads(_AHEAD) as ahead,
        working("verifying kernels") as advance,
    ):

        def build(subject: _Subject, number: int) -> Built:
            builds = folder / f"builds-{number}"
            if subject.ptx is None:
                return Built(subject.builds, (), ())
            built = build_all(subject.ptx, subject.case.kernel, subject.recipes, builds, pool)
            return with_ptx(built, subject.ptx, subject.case.kernel, builds) if options.cpu else built

        def one() -> Verified:
            done = _one(options, *waiting.popleft(), executor)
            advance(1)
            return done

        for number, subject in enumerate(_subjects(options, folder)):
            built = None if isinstance(subject, Skipped) else ahead.submit(build, subject, number)
            waiting.append((subject, built))
            if len(waiting) > _AHEAD:
                yield one()
        while waiting:
            yield one()


def _one(options: Options, subject: _Subject | Skipped, future: Future[Built] | None, executor: Runner) -> Verified:
    if isinstance(subject, Skipped):
        return skipped(subject.kernel, "", subject.reason)
    assert future is not None
    case = subject.case
    try:
        verified = verify(case, future.result(), executor, inputs_for(case, options.inputs), options.runs)
    except DeviceError:
        raise
    except TritonHookError as error:  # the others can still be verified
        executor.close()
        return skipped(case.kernel, case.launch.summary, str(error))
    if options.minimise is None or verified.verdict is not Verdict.DIFFERENT:
        return verified
    from tritonhook.verify.reproduce import reproduce

    note = "not minimised: that needs PTX, and these are cubins; give the PTX and --args"
    if subject.ptx is not None:
        try:
            with working(f"minimising {verified.kernel}") as advance, _runner(options, TRIAL_LIMIT_S) as trials:
                made = reproduce(
                    case,
                    subject.ptx,
                    verified,
                    subject.recipes,
                    trials.run_until_lost,
                    options.minimise / verified.kernel[:_MOST_CHARACTERS],
                    gpu=executor.device or "a GPU",
                    tools=tuple(available_ptxas()),
                    on_step=lambda name, trial: advance(1),
                )
            note = made.note
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


def _subjects(options: Options, folder: Path) -> Iterator[_Subject | Skipped]:
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
    else:  # a PTX file, a capture, or one kernel of a capture folder
        given = load_input(first, options.only.entry)
        yield _subject(options, given, options.recorded.of([first], dry=options.cpu))


def _of_captures(options: Options, path: Path) -> Iterator[_Subject | Skipped]:
    """Yield each kernel of a capture folder with its most frequent launch; configurations that lost an autotuning are
    left out."""
    captures = captures_at(path)
    has_kernels = False
    for chosen in selected(captures, options.only.entry, options.recorded.launch, dry=options.cpu):
        if isinstance(chosen, Skipped):
            yield chosen
            continue
        has_kernels, kernel, record = True, chosen.capture.kernel, chosen.record
        if not chosen.launches:
            record_it = "record with `tritonhook run --launches`, or give one with --args and --entry"
            yield Skipped(kernel, record, chosen.unrecorded or f"no launch of it was recorded; {record_it}")
            continue
        try:
            given = load_input(str(captures.path / "kernels" / record), None)
            yield _subject(options, given, chosen.launches[0].path)
        except TritonHookError as error:
            yield Skipped(kernel, record, str(error))
    if not has_kernels:
        what = f"no kernel {options.only.entry!r}" if options.only.entry else "no kernels"
        raise UsageError(f"{path}: {what} in this capture folder")


def _subject(options: Options, given: Input, launch: Path) -> _Subject:
    if given.ptx is None:
        raise UsageError(f"{given.label}: no PTX to assemble again; give a second build to compare the two unchanged")
    own, arguments = chosen_assembler(options.ptxas, options.ptxas_options, options.trust, [given])
    latitude = latitude_of(given.ptx)
    tools = list(map(find_ptxas, options.against or ())) or list(available_ptxas())
    wanted = recipes(own, arguments, latitude, tools, each=bool(options.against))
    case = case_of(given.entry, read_launch(launch), launch.parent, given.ptx, latitude)
    return _Subject(case, given.ptx, wanted)


def _of_cubins(options: Options, a: str, b: str, folder: Path) -> _Subject:
    """Read two builds to compare unchanged: cubins, captures of other compilers or options, PTX files."""
    launch = options.recorded.of([a, b], dry=options.cpu)
    both = load_pair(a, b, options.only.entry)
    builds = []
    for number, given in enumerate(both):
        cubin = given.cubin
        if cubin is None:
            assert given.ptx is not None
            tool, arguments = chosen_assembler(options.ptxas, options.ptxas_options, options.trust, [given])
            cubin = toolchain_of(tool).assemble_or_raise(given.ptx, arguments).cubin
        path = folder / f"{number}.cubin"
        path.write_bytes(cubin.data)
        builds.append(Build(given.label, path, given.entry, given.ptxas))
    ptx = next((given.ptx for given in both if given.ptx is not None), None)
    latitude = replace(Latitude(contraction=True) if ptx is None else latitude_of(ptx), contracted=True)
    case = case_of(both[0].entry, read_launch(launch), launch.parent, None, latitude)
    return _Subject(case, builds=tuple(builds))


# --- known bugs of ptxas: nothing is run ------------------------------------------------------------


def _give_known(options: Options) -> int:
    """List known bugs in the PTX of files, captures and capture folders: of --ptxas, else of each capture's own, and of
    the newest installed for a file. Returns 1 if that ptxas is wrong somewhere, or may be; 2 if nothing could be read.
    Raises CaptureError for a folder without kernels."""
    from tritonhook.report.results.verification import Known

    ptxas = options.ptxas
    version = ptxas if ptxas is None or is_version(ptxas) else find_ptxas(ptxas).version
    modules = [module for target in options.target for module in _modules(target, version)]
    give(options.results, Known.of(" ".join(options.target), modules))
    if any(hit.is_suspect or hit.ptxas is None for module in modules for hit in module.found):
        return 1
    return 2 if any(module.unread is not None for module in modules) else 0


def _modules(target: str, ptxas: str | None) -> Iterator[KnownModule]:
    path = Path(target)
    if (path / "capture.json").exists():
        capture = read_capture(path)
        yield from _captured({capture.kernel: capture}, {}, ptxas)
    elif path.is_dir():
        folder = captures_at(target)
        records = folder.captures()
        if not records:
            raise no_kernels(target)
        captures = {record: outcome for record, outcome in records.items() if isinstance(outcome, Capture)}
        yield from _captured(captures, folder.ids, ptxas)
        damaged = {record: outcome for record, outcome in records.items() if not isinstance(outcome, Capture)}
        yield from (KnownModule(folder.ids[record], None, None, (), str(error)) for record, error in damaged.items())
    else:
        data = read_bytes(path)
        if data[:4] == MAGIC:
            raise UsageError(f"{path}: machine code has no PTX; give PTX, or a capture")
        ptx = Ptx.from_bytes(data, str(path))
        version = ptxas or find_ptxas(None).version
        yield KnownModule(str(path), ptx.target, version, findings(ptx.text, version))


def _captured(captures: Mapping[str, Capture], ids: Mapping[str, str], ptxas: str | None) -> Iterator[KnownModule]:
    """Yield each module of the captures, judged at its own level. ptxas: the version to judge by; None: its own."""
    for module in by_module(captures):
        record, first = next(iter(module.items()))
        name, version = ids.get(record, record), ptxas or first.assembler.version
        try:
            hits = findings(first.ptx.text, version, level_of(first.assembler.options))
            yield KnownModule(name, first.arch, version, hits)
        except (CaptureError, PtxError) as error:
            yield KnownModule(name, first.arch, version, (), str(error))
