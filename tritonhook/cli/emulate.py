"""Execute kernels on the CPU from their PTX, and look for faults of the kernels themselves. Needs no GPU, but numpy.

It finds accesses outside of the launch's buffers and misaligned ones, races in shared and global memory, barriers that
not all lanes of a warp reach, shuffles of lanes that take no part, results that depend on memory or registers that
nothing has written, and generic writes that wgmma or bulk copies read without fence.proxy.async. Each has its lines in
PTX and source. With --orders, it also finds results that depend on the order of CTAs, warps and atomics. `verify --cpu`
asks another question: does ptxas compute what the PTX says?

  tritonhook emulate kernel.ptx --args launch.json                 # all CTAs of one launch
  tritonhook emulate kernel.ptx --args launch.json --contents out  # also write its buffers afterwards
  tritonhook emulate tritonhook-captures --ctas 2                  # each kernel that was captured with a launch
  tritonhook emulate script.py --configs                           # its kernels, with several num_stages and num_warps
  tritonhook emulate kernel.cubin --args launch.json --count       # Nsight Compute's counters, from machine code

With --count, the machine code is executed, and counted: instructions, sectors, bank conflicts, by line.

A kernel that hangs or traps is a finding too. Memory stays below 2 GiB, whatever a launch asks for.

Exit codes: 1 if a fault was found, else 2 if a kernel did not finish.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import check_numpy
from tritonhook.capture.dry_run.gpu import CONFIGS, Compared, DryRun
from tritonhook.capture.dry_run.gpu import Emulation as DryEmulation
from tritonhook.capture.launches.contents import INPUTS, RECORDED
from tritonhook.capture.launches.views import BOUNDS, STORAGE
from tritonhook.capture.model import Stage
from tritonhook.capture.selection import Selected, Skipped, selected
from tritonhook.capture.store import read_launch
from tritonhook.cli._inputs import Input, OnlyKernel, RecordedLaunch, captures_at, limit_option, load_input, place
from tritonhook.cli._parser import Group, flag, option, part, rest
from tritonhook.cli._programs import is_script, run_emulated, script_command
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, check_new, give, write_new
from tritonhook.errors import NotUnderstood, TritonHookError, UsageError, listed
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.verify.cpu import LIMIT_S, counted, sanitized
from tritonhook.verify.differential import Case, case_of
from tritonhook.verify.judgement import Latitude, latitude_of

if TYPE_CHECKING:
    from tritonhook.report.results.counters import CountedKernel
    from tritonhook.report.results.emulation import EmulatedKernel

_MOST_STATEMENTS = 300_000  # of PTX: about 1.5 GiB of memory
_ARCH = "sm_90a"
_SETTINGS = {"num_stages": (1, 2, 3, 4), "num_warps": (1, 2, 4, 8)}
_LONGEST_S = 1e8  # limit of a timer
_FAILURES = (TritonHookError, OSError, MemoryError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: str = place(metavar="KERNEL", help="PTX file, capture folder, captured kernel or its id, script")
    rest: tuple[str, ...] | None = rest()
    recorded: RecordedLaunch = part(RecordedLaunch)
    only: OnlyKernel = part(OnlyKernel)
    input: str = option(
        choices=INPUTS, default=RECORDED, metavar="NAME", help=f"buffers' contents (default: {RECORDED}), as in verify"
    )
    ctas: int | None = option(type=int, metavar="N", help="number of CTAs to execute of a launch (default: all)")
    limit: float = limit_option("seconds for a kernel, with reading it", f"{LIMIT_S:g}", LIMIT_S)
    seed: int = option(type=int, default=0, metavar="N", help="seed for the order of CTAs, warps and atomics")
    orders: int = option(
        type=int, default=1, metavar="N", help="execute in N orders; other bits in a buffer are a fault (default: 1)"
    )
    contents: Path | None = option(
        type=Path, metavar="FOLDER", help="write buffers to FOLDER/KERNEL-NUMBER.bin (ID-NUMBER.bin if names are equal)"
    )
    bounds: str = option(
        choices=BOUNDS,
        default=STORAGE,
        metavar="WHAT",
        help="with `view`, a tensor ends where its view of a storage ends",
    )
    configs: bool = flag(help="run a script dry, and execute its kernels with num_stages 1 to 4 and num_warps 1 to 8")
    arch: str | None = option(metavar="sm_XX", help=f"with --configs: run the script dry for this (default: {_ARCH})")
    count: bool = flag(help="execute the machine code, and give Nsight Compute's counters")
    gpu: str | None = option(metavar="NAME", help="with --count: the GPU of the floor of time (H100, H200, A100, ...)")
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.results.counters import Counting
    from tritonhook.report.results.emulation import EmulatedKernel, Emulation

    if (options.ctas is not None and options.ctas < 1) or options.orders < 1:
        raise UsageError("--ctas and --orders must be positive")
    if options.orders > 1 and (options.count or options.seed):
        raise UsageError(
            "--orders: not with --count or --seed: the first order is program order, the others have seeds"
        )
    if options.gpu is not None and not options.count:
        raise UsageError("--gpu: only with --count, which computes the floor of time of this GPU")
    check_numpy()
    if options.configs or options.arch or is_script(options.target):
        return _in_configurations(options)
    with working("emulating kernels") as advance:
        done: list[Any] = []
        for target in _targets(options):
            done.append(_emulated(options, target))
            advance(1)
    if not done:
        raise UsageError(f"{options.target}: no kernel with a recorded launch; give one with --args")
    if options.count:
        give(options.results, Counting(options.target, options.input, options.ctas, tuple(done)))
    else:
        give(options.results, Emulation(options.target, options.input, options.ctas, tuple(done)))
    if any(kernel.faults for kernel in done if isinstance(kernel, EmulatedKernel)):
        return 1
    return 2 if any(kernel.reason for kernel in done) else 0


def _in_configurations(options: Options) -> int:
    """Run a script dry, and look for faults of each kernel that it launches, in each configuration that compiles."""
    from tritonhook.report.results.emulation import Emulation

    if not (options.configs and is_script(options.target)):
        raise UsageError(
            f"{options.target}: write `emulate SCRIPT.py --configs`, or `run --arch --emulate` for a script"
        )
    words = [options.target, *(options.rest or ())]
    dry = DryRun.of(options.arch or _ARCH)
    with tempfile.TemporaryDirectory(prefix="tritonhook-configs-") as folder:
        found = Path(folder) / "findings"
        compared = Compared(folder, settings=_SETTINGS, once=True)
        how = DryEmulation(True, math.inf, compared=compared, bounds=options.bounds, findings=str(found))
        run_emulated(
            script_command(words, False), dry, how, Path(folder) / "captures", words[0], "not all was executed"
        )
        kernels = tuple(_configured(Path(folder), found))
    if not kernels:
        raise UsageError(f"{words[0]}: it launched no kernel of Triton")
    give(options.results, Emulation(options.target, "what the script put there", options.ctas, kernels))
    return 1 if any(kernel.faults for kernel in kernels) else 0


def _configured(folder: Path, found: Path) -> Iterator[EmulatedKernel]:
    """Yield a kernel for each one in each configuration. found: the sanitizer's findings."""
    from tritonhook.emulate.sanitizer.findings import HINT
    from tritonhook.report.results.emulation import EmulatedKernel, KernelFault
    from tritonhook.verify.schema import read_executions

    lines = map(json.loads, found.read_text().splitlines() if found.is_file() else ())
    findings = [line["finding"] for line in lines if "finding" in line]
    for one in read_executions(folder):
        if one.kind == CONFIGS:
            faults = tuple(
                KernelFault(kind, f"{kind} at {listed(dict.fromkeys(lines))}{HINT if HINT in text else ''}", ())
                for kernel, kind, lines, text, label in findings
                if (kernel, label) == (one.kernel, one.label)
            )
            reason = "" if faults else one.reason
            yield EmulatedKernel(f"{one.kernel}[{one.label}]", one.launch, reason, 0, (), faults)


@dataclass(frozen=True, slots=True)
class _Target:
    """A kernel to emulate. file: prefix of its buffers' file names. load: reads its code and its launch.
    is_one_of_many: if it fails, the others are still emulated."""

    kernel: str
    file: str
    load: Callable[[], tuple[Input, Case]]
    is_one_of_many: bool


def _targets(options: Options) -> Iterator[_Target]:
    """Yield each kernel with its launch."""
    path = Path(options.target)
    if not (path / "index").is_dir() or options.recorded.args:
        record = options.recorded.of([options.target], dry=True)
        yield _Target(options.target, "", lambda: _case(options, options.target, options.only.entry, record), False)
        return
    captures = captures_at(path)
    chosen = list(selected(captures, options.only.entry, options.recorded.launch, dry=True))
    if not any(isinstance(one, Selected) and one.launches for one in chosen):
        return
    names = Counter(one.capture.kernel for one in chosen if isinstance(one, Selected))
    for one in chosen:
        kernel = one.kernel if isinstance(one, Skipped) else one.capture.kernel
        if isinstance(one, Skipped):
            load = partial(_refuse, one.reason)
        elif one.launches:
            load = partial(
                _case, options, str(captures.path / "kernels" / one.record), None, one.launches[0].path, kernel
            )
        else:
            load = partial(_refuse, one.unrecorded or "no launch of it was recorded")
        yield _Target(kernel, one.record if names[kernel] > 1 else "", load, True)


def _refuse(why: str) -> tuple[Input, Case]:
    raise UsageError(why)


def _case(
    options: Options, target: str, entry: str | None, record: Path, kernel: str | None = None
) -> tuple[Input, Case]:
    given = load_input(target, entry)
    ptx = given.ptx
    if ptx is None and not options.count:
        raise UsageError(f"{target}: no PTX, which emulate executes; give PTX, or a capture that has it")
    if ptx is not None and (size := ptx.text.count(";")) > _MOST_STATEMENTS:
        raise UsageError(f"{target}: {size:,} statements of PTX: at most {_MOST_STATEMENTS:,} are emulated")
    latitude = Latitude() if ptx is None else latitude_of(ptx)
    return given, case_of(kernel or given.entry, read_launch(record), record.parent, ptx, latitude)


def _emulated(options: Options, target: _Target) -> EmulatedKernel | CountedKernel:
    from tritonhook.report.results.counters import CountedKernel
    from tritonhook.report.results.emulation import EmulatedKernel

    began, kernel, launch = time.monotonic(), target.kernel, ""
    try:
        with _limit(options.limit):
            given, case = target.load()
        kernel, launch = case.kernel, case.launch.summary
        files = _files(options, target.file or kernel, len(case.launch.buffers))
        # The emulator looks at the clock itself, and names the line; this is for the time in which it decodes.
        with _limit(options.limit, began - time.monotonic() + 1):
            how = options.input, options.ctas, options.limit, options.seed, began
            if options.count:
                return _counted(given, case, files, how, options)
            assert given.ptx is not None
            is_triton = given.capture is not None and Stage.TTIR in given.capture.artifacts
            done = sanitized(
                case, given.ptx, *how, options.orders, cubin=given.cubin, bounds=options.bounds, is_triton=is_triton
            )
    except _FAILURES as error:
        if options.count:
            return CountedKernel(kernel, launch, _reason(error, target))
        return EmulatedKernel.of(kernel, launch, None, (), _reason(error, target))
    contents = done.ran.contents if done.ran is not None else ()
    _write(files, contents, options.results.force)
    hashes = [hashlib.sha256(data).hexdigest()[:16] for data in contents]
    return EmulatedKernel.of(kernel, launch, done, hashes, str(done.error or ""))


def _counted(
    given: Input, case: Case, files: Sequence[Path], how: tuple[str, int | None, float, int, float], options: Options
) -> CountedKernel:
    """Count one kernel. PTX without machine code is assembled first."""
    from tritonhook.report.results.counters import CountedKernel, held_at_once, rates_of

    cubin = given.cubin
    if cubin is None:
        assert given.ptx is not None
        cubin = toolchain_of(find_ptxas()).assemble_or_raise(given.ptx).cubin
    rates_of(cubin.arch, options.gpu or "")  # an unknown name is refused before the work
    found, ran = counted(case, cubin, *how)
    _write(files, ran.contents, options.results.force)
    held = held_at_once(case.launch, cubin, case.kernel)
    return CountedKernel.of(case.launch.summary, found, held, options.gpu or "")


def _write(files: Sequence[Path], contents: Sequence[bytes], force: bool) -> None:
    for path, data in zip(files, contents, strict=False):
        write_new(path, data, force)


def _reason(error: BaseException, target: _Target) -> str:
    """Explain why a kernel was not executed. Raises the error again if it is the only kernel and the user can fix the
    cause."""
    from tritonhook.emulate.errors import Unfinished

    if isinstance(error, (MemoryError, RecursionError)):
        return f"not enough memory ({type(error).__name__})"
    if isinstance(error, NotUnderstood):
        return f"NOT UNDERSTOOD: {error}"
    if not target.is_one_of_many and not isinstance(error, Unfinished):
        raise error
    return str(error)


@contextmanager
def _limit(limit_s: float, more_s: float = 0) -> Iterator[None]:
    """Raise Unfinished after `limit_s` seconds. Only the main thread is interrupted."""
    from tritonhook.emulate.errors import Unfinished

    limit_text = f"{limit_s:g} s"

    def stop(*_: object) -> None:
        raise Unfinished(f"not read and decoded within {limit_text}")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    began, limit_s = time.monotonic(), min(max(limit_s + more_s, 0.01), _LONGEST_S)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s and max(left_s - (time.monotonic() - began), 0.01))


def _files(options: Options, name: str, count: int) -> list[Path]:
    """List the files for a kernel's buffers. Raises UsageError, before any work, if it cannot make them."""
    if options.contents is None:
        return []
    try:
        options.contents.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{options.contents}: cannot make this folder: {error.strerror}") from None
    name = re.sub(r"[^\w$.-]", "_", name[:200])
    paths = [options.contents / f"{name}-{number}.bin" for number in range(count)]
    for path in paths:
        if path.is_symlink():
            raise UsageError(f"{path}: a link, which --contents does not follow; remove it, or name another folder")
        check_new(path, options.results.force)
    return paths
