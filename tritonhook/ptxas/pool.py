"""Assemble many modules with several versions of ptxas, each run in its own process with limits, on this machine or on
a concurrent.futures executor.

A crash, a time-out, exceeded memory and a rejected module are outcomes, not exceptions.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import CubinError, ToolError, TritonHookError
from tritonhook.ptxas.limits import (
    INPUT_PATH,
    OUTPUT_PATH,
    Ended,
    Limits,
    Running,
    run_limited,
    start_limited,
    wait_for,
)
from tritonhook.ptxas.result_cache import FORMAT, Outcome, OutcomeKind, ResultCache
from tritonhook.ptxas.tool import Tool, available_ptxas, binary_sha256
from tritonhook.ptxas.toolchain import complete_options, first_error, fixed_layout_prefix, parse_spills, signal_name

__all__ = ["Job", "Limits", "Outcome", "OutcomeKind", "ResultCache", "Run", "assemble_job", "dask_executor", "sweep"]

Run = Callable[[Iterable["Job"]], Iterator[tuple["Job", Outcome]]]  # `sweep`, with executor and cache already bound
DASK_TIMEOUT_S = 10.0  # time limit for the scheduler's answer


@dataclass(frozen=True, slots=True)
class Job:
    """One run of ptxas.

    arguments: options of ptxas; if they contain no target, the module's `.target` is used.
    keep_cubin: whether the outcome contains the cubin.
    draw: 0 is a run with ptxas's memory at fixed addresses, if the system allows that. Each other number is a further
    run with memory at random addresses, since ptxas is not deterministic (see compare.names.Draws).
    """

    ptx: str
    ptxas: Tool
    arguments: tuple[str, ...] = ()
    keep_cubin: bool = False
    draw: int = 0

    @property
    def key(self) -> str:
        """A hash of the module, the ptxas binary, the options and `draw`. Raises ToolError if the binary is missing."""
        parts = [str(FORMAT), _sha256(self.ptx), binary_sha256(self.ptxas.path), str(self.draw), *self.arguments]
        return _sha256("\0".join(parts))


# --- one job -------------------------------------------------------------------------------------


def assemble_job(job: Job, limits: Limits | None = None, ptxas_sha256: str | None = None) -> Outcome:
    """Run one job in this process. Raises ToolError if this machine does not have the job's ptxas.

    ptxas_sha256: the hash that the binary must have. If the binary at the job's path has a different hash, as on
    another machine, all installed ptxas of this version are hashed to find it.
    """
    limits = limits or Limits()
    ptxas = job.ptxas if ptxas_sha256 is None else _local_tool(job.ptxas, ptxas_sha256)
    return _outcome(job, ptxas, run_limited(_command(job, ptxas), job.ptx.encode(), limits), limits)


def _command(job: Job, ptxas: Tool) -> list[str]:
    prefix = fixed_layout_prefix() if job.draw == 0 else ()
    return [*prefix, str(ptxas.path), *complete_options(job.arguments, job.ptx), INPUT_PATH, "-o", OUTPUT_PATH]


def _outcome(job: Job, ptxas: Tool, ended: Ended, limits: Limits) -> Outcome:
    if ended.returncode in _CANNOT_RUN:
        raise ToolError(f"{ptxas.path}: cannot run: {first_error(ended.log)}")
    image = None
    if ended.returncode == 0 and ended.output:
        try:
            image = summarise_image(ended.output, parse_spills(ended.log))
        except CubinError as error:
            raise ToolError(f"{ptxas.path}: the output of this ptxas {ptxas.version} is not a cubin: {error}") from None
    kind, ended_by = _kind(ended)
    return Outcome(
        kind=kind,
        message="" if image is not None else first_error(ended.log),
        returncode=ended.returncode,
        signal=ended_by,
        cpu_s=round(ended.cpu_s, 6),
        wall_s=round(ended.wall_s, 6),
        limits=limits,
        image=image,
        cubin=ended.output if job.keep_cubin and image is not None else None,
    )


def _local_tool(tool: Tool, sha256: str) -> Tool:
    if _has_hash(tool.path, sha256):
        return tool
    tried: list[str] = []
    for other in available_ptxas(tried):
        if other.version == tool.version and _has_hash(other.path, sha256):
            return other
    raise ToolError(
        f"{socket.gethostname()}: no ptxas {tool.version} with the hash {sha256[:12]}... here, neither at {tool.path} "
        f"nor installed elsewhere; run `tritonhook ptxas add {tool.version}` on every machine that works for the sweep"
    )


def _has_hash(path: Path, sha256: str) -> bool:
    with suppress(ToolError):
        return binary_sha256(path) == sha256
    return False


# How ptxas 11.8 to 13.5 reports that it does not support the module's `.version` or target.
_UNSUPPORTED = re.compile(
    r"Unsupported \.version|is not defined for option '-*gpu-name'|PTX \.version \S+ does not support \.target|"
    r"\.target is higher than default SM version|cannot be compiled to future architecture"
)
_NO_MEMORY = re.compile(r"[Mm]emory allocation failure|bad_alloc|[Oo]ut of memory|[Cc]annot allocate memory")
_CANNOT_RUN = (126, 127)  # exit codes of a shell or the dynamic loader if the program cannot be started


def _kind(ended: Ended) -> tuple[OutcomeKind, str | None]:
    ended_by = signal_name(ended.returncode)
    if ended.timed_out:
        return OutcomeKind.TIMEOUT, ended_by
    if ended.returncode == 0 and ended.output:
        return OutcomeKind.ASSEMBLED, None
    if _NO_MEMORY.search(ended.log):
        return OutcomeKind.MEMORY, ended_by
    if ended_by:
        return OutcomeKind.CRASHED, ended_by
    return (OutcomeKind.UNSUPPORTED if _UNSUPPORTED.search(first_error(ended.log)) else OutcomeKind.REJECTED), None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- many jobs -----------------------------------------------------------------------------------


def usual_workers() -> int:
    """Choose how many ptxas run at a time: the number of processors plus ten, or fewer if the limit of open files is
    low (each run needs four open files).

    The extra runs keep the processors busy while Python works. In a sweep of small kernels on two processors, these
    were idle for 8 % of the time with one extra run, and for 5 % with ten.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(usable_processors() + 10, (files - 64) // 4))


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, int]]:
    """Connect to a Dask scheduler. Yields an executor, and the number of jobs to submit at a time.

    The workers need tritonhook and the same ptxas versions (`tritonhook ptxas add`), at any path.
    Raises ToolError if the scheduler does not answer or has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ToolError("Dask is not installed; `pip install 'tritonhook[dask]'`") from None
    try:
        client = Client(address, timeout=DASK_TIMEOUT_S)
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"{address}: no Dask scheduler answers there: {error}") from None
    with client:
        slots = sum(client.nthreads().values())
        if not slots:
            raise ToolError(f"{address}: the Dask scheduler has no workers; start `dask worker {address}`")
        with client.get_executor(pure=False) as executor:
            yield executor, 3 * slots


def usable_processors() -> int:
    return len(os.sched_getaffinity(0))


def sweep(
    jobs: Iterable[Job],
    executor: Executor | int | None = None,
    cache: ResultCache | None = None,
    on_outcome: Callable[[Job, Outcome, bool], None] | None = None,
    limits: Limits | None = None,
    in_flight: int | None = None,
) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs, and yield each job with its outcome as soon as it has ended. Jobs with equal keys run once.

    executor: an executor of concurrent.futures or of dask_executor; it stays open. Or a number: this thread starts so
    many runs of ptxas at a time, which is fastest on one machine. None: the number of usual_workers().
    cache: searched before a job runs. Each outcome is stored there at once, so that none is lost if the sweep ends
    early.
    on_outcome: called with the job, its outcome, and whether the outcome came from the cache.
    in_flight: number of jobs that the executor gets at a time.
    If an executor's worker dies, the remaining jobs run in this process.
    Raises ToolError if a ptxas is missing or its binary has changed.
    """
    limits = limits or Limits()
    if isinstance(executor, Executor):
        runner: _Here | _Elsewhere = _Elsewhere(executor, limits, in_flight)
    else:
        runner = _Here(executor or usual_workers(), limits)
    yield from _Sweep(runner, cache, on_outcome, limits).run(iter(jobs))


class _WorkerDied(Exception):
    """The executor failed. error: its exception, which is not one of tritonhook's."""

    def __init__(self, key: str, error: BaseException) -> None:
        super().__init__(str(error))
        self.key, self.error = key, error


@dataclass(slots=True)
class _Here:
    """Runs several ptxas at a time from this thread."""

    at_once: int
    limits: Limits
    queue: deque[tuple[str, Job]] = field(default_factory=deque)
    running: dict[int, tuple[str, Job, Running]] = field(default_factory=dict)
    ended: deque[tuple[str, Job, Ended]] = field(default_factory=deque)

    @property
    def is_full(self) -> bool:
        self._start()
        return bool(self.queue)

    @property
    def is_idle(self) -> bool:
        return not (self.queue or self.running or self.ended)

    @property
    def has_result(self) -> bool:
        return bool(self.ended)

    def submit(self, key: str, job: Job) -> None:
        self.queue.append((key, job))

    def next(self) -> tuple[str, Outcome]:
        """Wait until a job has ended, and return its key and outcome. A waiting job starts before the result is
        read."""
        self._start()
        if not self.ended:
            for item in wait_for([running for _, _, running in self.running.values()]):
                key, job, running = self.running.pop(item.pid)
                self.ended.append((key, job, running.finish()))
            self._start()
        key, job, ended = self.ended.popleft()
        return key, _outcome(job, job.ptxas, ended, self.limits)

    def _start(self) -> None:
        while self.queue and len(self.running) < self.at_once:
            key, job = self.queue.popleft()
            running = start_limited(_command(job, job.ptxas), job.ptx.encode(), self.limits)
            self.running[running.pid] = (key, job, running)

    def cancel(self) -> Iterator[tuple[str, Outcome]]:
        """Kill all running jobs; yield the outcomes of jobs that have ended."""
        self.queue.clear()
        for _, _, running in self.running.values():
            running.abandon()
        self.running.clear()
        while self.ended:
            key, job, ended = self.ended.popleft()
            with suppress(ToolError):
                yield key, _outcome(job, job.ptxas, ended, self.limits)


class _Elsewhere:
    """Gives jobs to an executor of concurrent.futures."""

    def __init__(self, executor: Executor, limits: Limits, in_flight: int | None) -> None:
        self.executor = executor
        self.limits = limits
        workers = getattr(executor, "_max_workers", None)
        self.in_flight = in_flight or 3 * (workers if isinstance(workers, int) else usual_workers())
        self.done: SimpleQueue[tuple[str, Future[Outcome]]] = SimpleQueue()
        self.pending: dict[str, Future[Outcome]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.pending) >= self.in_flight

    @property
    def is_idle(self) -> bool:
        return not self.pending

    @property
    def has_result(self) -> bool:
        return not self.done.empty()

    def submit(self, key: str, job: Job) -> None:
        try:
            future = self.executor.submit(assemble_job, job, self.limits, binary_sha256(job.ptxas.path))
        except BrokenExecutor as error:
            raise _WorkerDied(key, error) from None
        self.pending[key] = future
        future.add_done_callback(lambda done: self.done.put((key, done)))

    def next(self) -> tuple[str, Outcome]:
        key, future = self.done.get()
        del self.pending[key]
        try:
            return key, future.result()
        except TritonHookError:
            raise
        except Exception as error:
            raise _WorkerDied(key, error) from None

    def cancel(self) -> Iterator[tuple[str, Outcome]]:
        for future in self.pending.values():
            future.cancel()
        for key, future in self.pending.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                yield key, future.result()
        self.pending.clear()


@dataclass(slots=True)
class _Sweep:
    """The state of one sweep. waiting: for the key of each running job, the jobs that wait for its outcome. known: if
    there is no cache, the outcomes by key, for equal jobs that come later."""

    runner: _Here | _Elsewhere
    cache: ResultCache | None
    on_outcome: Callable[[Job, Outcome, bool], None] | None
    limits: Limits
    waiting: dict[str, list[Job]] = field(default_factory=dict)
    known: dict[str, Outcome] = field(default_factory=dict)

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Outcome]]:
        try:
            for job in jobs:
                key = job.key
                if key in self.waiting:
                    self.waiting[key].append(job)
                elif (outcome := self._look_up(key, job)) is not None:
                    yield self._tell(job, outcome, True)
                else:
                    self.waiting[key] = [job]
                    self._submit(key)
                while self.runner.is_full or self.runner.has_result:
                    yield from self._next()
            while not self.runner.is_idle:
                yield from self._next()
        finally:
            for key, outcome in self.runner.cancel():
                self._keep(key, outcome)

    def _look_up(self, key: str, job: Job) -> Outcome | None:
        outcome = self.known.get(key) if self.cache is None else self.cache.get(key, job.keep_cubin)
        if outcome is None or _lacks_cubin(job, outcome):
            return None
        # A failure by tighter limits than this sweep's does not count: the job runs again.
        too_short = outcome.kind is OutcomeKind.TIMEOUT and outcome.limits.seconds < self.limits.seconds
        too_small = outcome.kind is OutcomeKind.MEMORY and outcome.limits.memory_bytes < self.limits.memory_bytes
        return None if too_short or too_small else outcome

    def _submit(self, key: str) -> None:
        jobs = self.waiting[key]
        job = replace(jobs[0], keep_cubin=any(job.keep_cubin for job in jobs))
        try:
            self.runner.submit(key, job)
        except _WorkerDied as death:
            self._go_on_here(death)

    def _next(self) -> Iterator[tuple[Job, Outcome]]:
        """Wait for one run to end; yield its jobs with the outcome."""
        try:
            key, outcome = self.runner.next()
        except _WorkerDied as death:
            self._go_on_here(death)
            return
        self._keep(key, outcome)
        jobs = self.waiting.pop(key)
        late = [job for job in jobs if _lacks_cubin(job, outcome)]  # this run did not keep the cubin
        if late:
            self.waiting[key] = late
            self._submit(key)
        for job in jobs:
            if job not in late:
                yield self._tell(job, outcome, False)

    def _go_on_here(self, death: _WorkerDied) -> None:
        """Run the remaining jobs from this process: ptxas always runs in a process of its own, so no worker is
        needed."""
        reason = f"{type(death.error).__name__}: {death.error}"
        warnings.warn(f"the sweep's workers died ({reason}); the sweep continues in this process", stacklevel=2)
        for _ in self.runner.cancel():
            pass  # these jobs are submitted again below
        self.runner = _Here(usual_workers(), self.limits)
        for key in self.waiting:
            self._submit(key)

    def _keep(self, key: str, outcome: Outcome) -> None:
        if self.cache is None:
            self.known[key] = outcome
        elif outcome.lasting:
            self.cache.put(key, outcome)

    def _tell(self, job: Job, outcome: Outcome, cached: bool) -> tuple[Job, Outcome]:
        if self.on_outcome is not None:
            self.on_outcome(job, outcome, cached)
        return job, outcome


def _lacks_cubin(job: Job, outcome: Outcome) -> bool:
    return job.keep_cubin and outcome.image is not None and outcome.cubin is None
