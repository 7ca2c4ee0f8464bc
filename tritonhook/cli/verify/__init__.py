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

import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tritonhook._util.versions import is_version
from tritonhook.capture.model import Capture
from tritonhook.capture.selection import Skipped
from tritonhook.capture.store import by_module, read_capture
from tritonhook.cli._inputs import captures_at, no_kernels, read_bytes
from tritonhook.cli._programs import why_no_gpu
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.cli.verify.bits import compare_bits, is_compared
from tritonhook.cli.verify.targets import Options, VerifySubject, check_cpu, subjects_of
from tritonhook.cubin.elf import MAGIC
from tritonhook.errors import CaptureError, DeviceError, PtxError, TritonHookError, UsageError
from tritonhook.ptx.miscompiles import KnownModule, findings
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.command_line import level_of
from tritonhook.ptxas.pool import usable_processors
from tritonhook.ptxas.threads import tool_threads
from tritonhook.ptxas.tool import available_ptxas, find_ptxas
from tritonhook.verify.cpu import LIMIT_S as CPU_LIMIT_S
from tritonhook.verify.cpu import CpuExecutor, with_ptx
from tritonhook.verify.differential import Built, Case, Verified, case_of, inputs_for, skipped, verify
from tritonhook.verify.executor import LIMIT_S, TRIAL_LIMIT_S, Executor
from tritonhook.verify.model import Runner, Verdict
from tritonhook.verify.reproduce import reproduce

__all__ = ["Options", "run"]

_BAD = (Verdict.CRASH, Verdict.HANG, Verdict.DIFFERENT)
_AHEAD = 4  # kernels that are assembled while another one runs
_MOST_CHARACTERS = 100  # in the name of a kernel's folder


def run(options: Options) -> int:
    if options.known:
        return _give_known(options.results, options.target, options.ptxas)
    if min(options.runs, options.ctas, options.orders) < 1:
        raise UsageError("--runs, --ctas and --orders must be positive")
    if is_compared(options):
        return compare_bits(options)
    options = replace(options, cpu=options.cpu or why_no_gpu() is not None)
    if options.orders > 1 and not options.cpu:
        raise UsageError("--orders: a GPU chooses its orders itself; give --cpu")
    if options.cpu:
        check_cpu(options)
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


def _runner(options: Options, most_s: float | None = None) -> Executor | CpuExecutor:
    """Choose the runner of the kernels: GPU or emulator. most_s: seconds per launch."""
    if options.cpu:
        limit_s = options.limit or CPU_LIMIT_S
        return CpuExecutor(options.ctas, min(limit_s, 10 * most_s) if most_s else limit_s, options.orders)
    limit_s = options.limit or LIMIT_S
    return Executor(min(limit_s, most_s) if most_s else limit_s)


def _built(options: Options, subject: VerifySubject, folder: Path, pool: ThreadPoolExecutor) -> Built:
    """Assemble the builds of a kernel; with --cpu its PTX comes first."""
    built = subject.build(folder, pool)
    return with_ptx(built, subject.ptx, subject.kernel, folder) if options.cpu and subject.ptx is not None else built


def _verified(options: Options, folder: Path, executor: Runner) -> Iterator[Verified]:
    """Yield each kernel of the target, verified. While one runs on the GPU, the next ones are assembled."""
    waiting: deque[tuple[VerifySubject | Skipped, Future[Built] | None]] = deque()
    subjects = enumerate(subjects_of(options, folder))
    with (
        tool_threads(usable_processors()) as pool,
        tool_threads(_AHEAD) as ahead,
        working("verifying kernels") as advance,
    ):
        more = True
        while more or waiting:
            while more and len(waiting) <= _AHEAD:
                number, subject = next(subjects, (0, None))
                if subject is None:
                    more = False
                elif isinstance(subject, Skipped):
                    waiting.append((subject, None))
                else:
                    waiting.append((subject, ahead.submit(_built, options, subject, folder / f"builds-{number}", pool)))
            if waiting:
                yield _one(options, *waiting.popleft(), executor)
                advance(1)


def _one(
    options: Options, subject: VerifySubject | Skipped, future: Future[Built] | None, executor: Runner
) -> Verified:
    if isinstance(subject, Skipped) or future is None:
        assert isinstance(subject, Skipped)
        return skipped(subject.kernel, "", subject.reason)
    try:
        built = future.result()
        case = case_of(subject.kernel, subject.launch, subject.folder, subject.ptx, subject.latitude)
        verified = verify(case, built, executor, inputs_for(case, options.inputs), options.runs)
    except DeviceError:
        raise
    except TritonHookError as error:  # the others can still be verified
        executor.close()
        return skipped(subject.kernel, subject.launch.summary, str(error))
    if options.minimise is not None and verified.verdict is Verdict.DIFFERENT:
        note = _minimised(options, subject, case, verified, executor.device or "a GPU")
        verified = replace(verified, notes=(*verified.notes, note))
    return verified


def _minimised(options: Options, subject: VerifySubject, case: Case, verified: Verified, device: str) -> str:
    """Write a reproducer. Returns a line with its path, or with the reason why there is none."""
    assert options.minimise is not None
    if subject.ptx is None:
        return "not minimised: that needs PTX, and these are cubins; give the PTX and --args"
    try:
        with working(f"minimising {verified.kernel}") as advance, _runner(options, TRIAL_LIMIT_S) as trials:
            made = reproduce(
                case,
                subject.ptx,
                verified,
                subject.recipes,
                trials.run_until_lost,
                options.minimise / verified.kernel[:_MOST_CHARACTERS],
                gpu=device,
                tools=tuple(available_ptxas()),
                on_step=lambda name, trial: advance(1),
            )
    except DeviceError:
        raise
    except TritonHookError as error:
        return f"not minimised: {error}"
    return made.note


# --- known bugs of ptxas: nothing is run ------------------------------------------------------------


def _give_known(results: Results, targets: Sequence[str], ptxas: str | None) -> int:
    """List known bugs in the PTX of files, captures and capture folders.

    ptxas: a version, installed or not, or a path; None: each capture's own, and the newest installed for a file.
    Returns 1 if that ptxas is wrong somewhere, or may be; 2 if nothing could be read. Raises CaptureError for a folder
    without kernels.
    """
    from tritonhook.report.results.verification import Known

    version = ptxas if ptxas is None or is_version(ptxas) else find_ptxas(ptxas).version
    modules = [module for target in targets for module in _modules(target, version)]
    give(results, Known.of(" ".join(targets), modules))
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
        yield _file(path, ptxas)


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


def _file(path: Path, ptxas: str | None) -> KnownModule:
    data = read_bytes(path)
    if data[:4] == MAGIC:
        raise UsageError(f"{path}: machine code has no PTX; give PTX, or a capture")
    ptx = Ptx.from_bytes(data, str(path))
    version = ptxas or find_ptxas(None).version
    return KnownModule(str(path), ptx.target, version, findings(ptx.text, version))
