"""Execute kernels on the CPU from their PTX, and look for faults in them. Needs numpy, but no GPU.

Faults are: accesses outside of the launch's buffers, misaligned accesses, races in shared and global memory, barriers
that not all lanes of a warp reach, shuffles that read inactive lanes, results that depend on memory or registers that
nothing has written, and generic writes that wgmma or bulk copies read without fence.proxy.async. Each fault is listed
with its lines in PTX and source. With --orders, results that depend on the order of CTAs, warps and atomics are faults,
too. To check ptxas instead of the kernel, use `tritonhook verify --cpu`.

  tritonhook emulate kernel.ptx --args launch.json                 # all CTAs of one launch
  tritonhook emulate kernel.ptx --args launch.json --contents out  # also write the buffers afterwards
  tritonhook emulate tritonhook-captures --ctas 2                  # each captured kernel with a recorded launch
  tritonhook emulate script.py --configs                           # with several num_stages and num_warps
  tritonhook emulate kernel.cubin --args launch.json --count       # Nsight Compute's counters, from machine code

With --count, the machine code is executed. Instructions, sectors and bank conflicts are counted for each line.

A kernel that hangs or traps has a fault, too. The emulator uses less than 2 GiB of memory, whatever a launch asks for.

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import check_numpy
from tritonhook.capture.dry_run.gpu import CONFIGS, Compared, DryRun
from tritonhook.capture.dry_run.gpu import Emulation as DryEmulation
from tritonhook.capture.dry_run.process import assembled
from tritonhook.capture.launches.contents import INPUTS, RECORDED
from tritonhook.capture.launches.views import BOUNDS, STORAGE
from tritonhook.capture.model import Stage
from tritonhook.capture.selection import Skipped
from tritonhook.capture.store import read_launch
from tritonhook.cli._inputs import Input, OnlyKernel, RecordedLaunch, limit_option, place
from tritonhook.cli._launched import LaunchedKernel, launched
from tritonhook.cli._parser import Group, flag, option, part, rest
from tritonhook.cli._programs import is_script, run_emulated, script_command
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, check_new, give, write_new
from tritonhook.errors import NotUnderstood, TritonHookError, UsageError, listed
from tritonhook.ptxas.tool import find_ptxas
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.verify.cpu import LIMIT_S, ExecutionSettings, counted, sanitized
from tritonhook.verify.differential import Case, case_of

if TYPE_CHECKING:
    from tritonhook.report.result import Result
    from tritonhook.report.results.counters import CountedKernel
    from tritonhook.report.results.emulation import EmulatedKernel

_MOST_STATEMENTS = 300_000  # statements of PTX; this many need about 1.5 GiB of memory
_ARCH = "sm_90a"
_SETTINGS = {"num_stages": (1, 2, 3, 4), "num_warps": (1, 2, 4, 8)}
_LONGEST_S = 1e8  # a longer --limit is cut to this, which setitimer accepts
_FAILURES = (TritonHookError, OSError, MemoryError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    target: str = place(metavar="KERNEL", help="PTX file, capture folder, captured kernel or its id, script")
    rest: tuple[str, ...] | None = rest()
    recorded: RecordedLaunch = part(RecordedLaunch)
    only: OnlyKernel = part(OnlyKernel)
    input: str = option(
        choices=INPUTS,
        default=RECORDED,
        metavar="NAME",
        help=f"contents of the buffers, as for `verify --inputs` (default: {RECORDED})",
    )
    ctas: int | None = option(type=int, metavar="N", help="number of CTAs of a launch to execute (default: all)")
    limit: float = limit_option("seconds for reading and executing a kernel", f"{LIMIT_S:g}", LIMIT_S)
    seed: int = option(type=int, default=0, metavar="N", help="seed for the order of CTAs, warps and atomics")
    orders: int = option(
        type=int,
        default=1,
        metavar="N",
        help="execute in N orders; it is a fault if a buffer has other bits in another order (default: 1)",
    )
    contents: Path | None = option(
        type=Path, metavar="FOLDER", help="write buffers to FOLDER/KERNEL-NUMBER.bin (ID-NUMBER.bin if names are equal)"
    )
    bounds: str = option(
        choices=BOUNDS,
        default=STORAGE,
        metavar="WHAT",
        help="`view`: an access outside of a tensor's view is a fault, even inside its storage (default: storage)",
    )
    configs: bool = flag(help="run a script dry; execute its kernels with num_stages 1 to 4 and with num_warps 1 to 8")
    arch: str | None = option(metavar="sm_XX", help=f"with --configs: architecture of the dry run (default: {_ARCH})")
    count: bool = flag(help="execute the machine code, and compute the counters of Nsight Compute")
    gpu: str | None = option(
        metavar="NAME",
        help="with --count: compute the floor of time (a lower bound) on this GPU (H100, H200, A100, ...)",
    )
    results: Results = part(Results)


def run(options: Options) -> int:
    if (options.ctas is not None and options.ctas < 1) or options.orders < 1:
        raise UsageError("--ctas and --orders must be positive")
    if options.orders > 1 and (options.count or options.seed):
        raise UsageError(
            "--orders: not allowed with --count or --seed: the first order is program order, the others have seeds"
        )
    if options.gpu is not None and not options.count:
        raise UsageError("--gpu: only with --count, which computes a lower bound of the time on that GPU")
    check_numpy()
    if options.configs or options.arch or is_script(options.target):
        result, code = _in_configurations(options)
    else:
        result, code = _in_one_configuration(options)
    give(options.results, result)
    return code


def _in_configurations(options: Options) -> tuple[Result, int]:
    """Run a script dry, execute each kernel in each configuration that compiles, and look for faults. Also return the
    exit code."""
    from tritonhook.report.results.emulation import Emulation

    if not (options.configs and is_script(options.target)):
        raise UsageError(
            f"{options.target}: write `emulate SCRIPT.py --configs`, or `run --arch --emulate` for a script"
        )
    words = [options.target, *(options.rest or ())]
    dry = assembled(DryRun.of(options.arch or _ARCH))
    with tempfile.TemporaryDirectory(prefix="tritonhook-configs-") as folder:
        found = Path(folder) / "findings"
        compared = Compared(folder, settings=_SETTINGS, once=True)
        how = DryEmulation(True, math.inf, compared=compared, bounds=options.bounds, findings=str(found))
        command = script_command(words, False)
        run_emulated(command, dry, how, Path(folder) / "captures", words[0], "not all was executed")
        kernels = tuple(_configured(Path(folder), found))
    if not kernels:
        raise UsageError(f"{words[0]}: it launched no Triton kernel")
    result = Emulation(options.target, "what the script put there", options.ctas, kernels)
    return result, 1 if any(kernel.faults for kernel in kernels) else 0


def _configured(folder: Path, found: Path) -> Iterator[EmulatedKernel]:
    """Yield each kernel in each configuration, with its faults. folder: folder with the executions. found: file of the
    sanitizer's findings."""
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


def _in_one_configuration(options: Options) -> tuple[Result, int]:
    """Emulate the kernels of the target as they were compiled. Also return the exit code."""
    from tritonhook.report.results.counters import Counting
    from tritonhook.report.results.emulation import Emulation

    found = list(launched(options.target, options.only.entry, options.recorded))
    names = Counter(one.kernel for one in found if isinstance(one, LaunchedKernel))
    if not names:
        raise UsageError(f"{options.target}: no kernel with a recorded launch; give a launch with --args")
    done: list[Any] = []
    with working("emulating kernels") as advance:
        for one in found:
            done.append(_emulated(options, one, one.record if names[one.kernel] > 1 else ""))
            advance(1)
    what = Counting if options.count else Emulation
    result = what(options.target, options.input, options.ctas, tuple(done))
    if not options.count and any(kernel.faults for kernel in done):
        return result, 1
    return result, 2 if any(kernel.reason for kernel in done) else 0


def _read(one: LaunchedKernel | Skipped) -> tuple[Input, Case]:
    """Read a kernel and its launch. Raises UsageError if the kernel cannot be emulated."""
    if isinstance(one, Skipped):
        raise UsageError(one.reason)
    given = one.load()
    if given.ptx is not None and (size := given.ptx.text.count(";")) > _MOST_STATEMENTS:
        raise UsageError(f"{one.path}: {size:,} statements of PTX: at most {_MOST_STATEMENTS:,} are emulated")
    kernel = one.kernel if one.record else given.entry
    return given, case_of(kernel, read_launch(one.launch), one.launch.parent, given.ptx)


def _emulated(options: Options, one: LaunchedKernel | Skipped, file: str) -> EmulatedKernel | CountedKernel:
    """Emulate a kernel, and write its buffers. file: the prefix of their names; "" for the kernel's name."""
    from tritonhook.report.results.counters import CountedKernel
    from tritonhook.report.results.emulation import EmulatedKernel

    began, kernel, launch = time.monotonic(), one.kernel, ""
    try:
        with _limit(options.limit):
            given, case = _read(one)
            if given.ptx is None and not options.count:
                raise UsageError(f"{given.label}: no PTX, which emulate executes; give PTX, or a capture that has it")
        kernel, launch = case.kernel, case.launch.summary
        files = _files(options, file or kernel, len(case.launch.buffers))
        # The emulator has its own time limit, whose error names the line. This one limits the decoding.
        with _limit(options.limit, began - time.monotonic() + 1):
            how = ExecutionSettings(options.input, options.ctas, options.limit, options.seed, began)
            if options.count:
                counting, contents = _counted(given, case, options.gpu or "", how)
            else:
                assert given.ptx is not None
                is_triton = given.capture is not None and Stage.TTIR in given.capture.artifacts
                done = sanitized(case, given.ptx, how, options.orders, given.cubin, options.bounds, is_triton)
                contents = done.ran.contents if done.ran is not None else ()
    except _FAILURES as error:
        reason = _reason(error, one)
        if options.count:
            return CountedKernel(kernel, launch, reason)
        return EmulatedKernel.of(kernel, launch, None, (), reason)
    for path, data in zip(files, contents, strict=False):
        write_new(path, data, options.results.force)
    if options.count:
        return counting
    hashes = [hashlib.sha256(data).hexdigest()[:16] for data in contents]
    return EmulatedKernel.of(kernel, launch, done, hashes, str(done.error or ""))


def _counted(given: Input, case: Case, gpu: str, how: ExecutionSettings) -> tuple[CountedKernel, tuple[bytes, ...]]:
    """Count one kernel. PTX without machine code is assembled first. gpu: name of the GPU for which the floor of time
    is computed. Also return the contents of the kernel's buffers."""
    from tritonhook.report.results.counters import CountedKernel, held_at_once, rates_of

    cubin = given.cubin
    if cubin is None:
        assert given.ptx is not None
        cubin = toolchain_of(find_ptxas()).assemble_or_raise(given.ptx).cubin
    rates_of(cubin.arch, gpu)  # an unknown name is refused before the work
    found, ran = counted(case, cubin, how)
    held = held_at_once(case.launch, cubin, case.kernel)
    return CountedKernel.of(case.launch.summary, found, held, gpu), ran.contents


def _reason(error: BaseException, one: LaunchedKernel | Skipped) -> str:
    """Explain why a kernel was not executed. Raises the error again if the user named this kernel and can fix the
    cause."""
    from tritonhook.emulate.errors import Unfinished

    if isinstance(error, (MemoryError, RecursionError)):
        return f"not enough memory ({type(error).__name__})"
    if isinstance(error, NotUnderstood):
        return f"NOT UNDERSTOOD: {error}"
    if not one.record and not isinstance(error, Unfinished):
        raise error
    return str(error)


@contextmanager
def _limit(limit_s: float, more_s: float = 0) -> Iterator[None]:
    """Raise Unfinished after `limit_s` + `more_s` seconds. Has no effect outside of the main thread."""
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
    """List the files for a kernel's buffers; none without --contents. Raises UsageError, before any work, if they
    cannot be written. name: prefix of their names. count: number of buffers."""
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
