"""Thread pools for calls that run programs. After Ctrl-C or another signal the programs are killed, so that the exit
does not wait for them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_thread = threading.local()


class _Programs:
    """The programs that run in the threads of a pool and of its nested pools."""

    def __init__(self) -> None:
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.is_stopped = False

    def stop(self) -> None:
        """Kill all running programs, and each program that starts later."""
        with self.lock:
            self.is_stopped = True
            for program in self.running:
                program.kill()


@contextmanager
def ending_with_pool(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Register a program with the pool of this thread, if there is a pool, so that the pool can kill it. Raises
    KeyboardInterrupt if the pool has been stopped."""
    programs: _Programs | None = getattr(_thread, "programs", None)
    if programs is None:
        yield
        return
    with programs.lock:
        programs.running.add(program)
        if programs.is_stopped:
            program.kill()
    try:
        yield
    finally:
        with programs.lock:
            programs.running.discard(program)
    if programs.is_stopped:
        raise KeyboardInterrupt


@contextmanager
def tool_threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Make a pool of threads for calls that run programs; the end of the block waits for all calls. After an exception
    no further call begins. After KeyboardInterrupt (from Ctrl-C or another signal) running programs are killed."""
    around: _Programs | None = getattr(_thread, "programs", None)
    programs = _thread.programs = around or _Programs()
    pool = ThreadPoolExecutor(workers, initializer=setattr, initargs=(_thread, "programs", programs))
    try:
        try:
            yield pool
        except Exception:
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()
    except (KeyboardInterrupt, GeneratorExit):
        pool.shutdown(wait=False, cancel_futures=True)
        programs.stop()
        raise
    finally:
        pool.shutdown()
        _thread.programs = around
