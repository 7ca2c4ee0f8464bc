"""Threads that compile, launch, fork, and begin and end sessions, all at once, for many rounds.

`make stress` runs 1,000 rounds on the oldest and the newest Triton; the test suite runs a few.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hangs import HANG_S

pytest.importorskip("triton", minversion="3.6")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton_kernels import Tensor, fresh
from triton_sessions import entries

import tritonhook

pytestmark = [
    pytest.mark.usefixtures("triton_cache", "slots_are_given_back"),
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
]

ROUNDS = int(os.environ.get("TRITONHOOK_STRESS_ROUNDS", "6"))
PREFIXES = ("", "cutlass_", "other_")


@triton.jit
def kern(x, N: tl.constexpr):
    tl.store(x, N)


def compile_kern(number: int) -> Any:
    source = ASTSource(fn=kern, signature={"x": "*fp32", "N": "constexpr"}, constexprs={"N": number})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))


@pytest.fixture
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Round:
    """One kernel, which nobody has compiled before, and threads around it. wrong: what went wrong, in words."""

    def __init__(self, out: Path, number: int, driver: Any) -> None:
        self.out, self.number, self.driver = out, number, driver
        self.launched = fresh(kern)
        self.wrong: list[str] = []
        self._over = threading.Event()

    def run(self) -> list[str]:
        forks = self.number % 4 == 0
        with ThreadPoolExecutor(3) as pool:
            others = [pool.submit(self._enable_and_disable, prefix) for prefix in PREFIXES[1:]]
            if forks:
                self._fork()
            else:  # a child of a fork would inherit these, without the thread that ends them
                others.append(pool.submit(self._begin_sessions))
            self._compile_and_launch()
            self._over.set()
            self.wrong += [f"{type(error).__name__} in a session" for one in others if (error := one.exception())]
        while tritonhook.disable() is not None:
            pass
        if set(tritonhook.status().values()) != {"free"}:
            self.wrong.append("a session is left")
        self._check_keys()
        return self.wrong

    def _enable_and_disable(self, prefix: str) -> None:
        while not self._over.is_set():
            tritonhook.enable(self.out / prefix, rename=prefix)
            time.sleep(random.random() / 1000)
            tritonhook.disable()
            time.sleep(random.random() / 1000)

    def _begin_sessions(self) -> None:
        while not self._over.is_set():
            with tritonhook.session(self.out / "session", rename="cutlass_"):
                time.sleep(random.random() / 1000)

    def _compile_and_launch(self) -> None:
        try:
            names = compile_kern(self.number).asm["ptx"], self.launched[(1,)](Tensor(), N=self.number)
            assert all(names)
        except Exception as error:
            self.wrong.append(f"{type(error).__name__} in a compile")

    def _fork(self) -> None:
        """Fork while the others begin and end sessions; the child must do so too, and find the right kernels."""
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(HANG_S)
            os._exit(0 if self._is_right_in_child() else 3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            self.wrong.append("a child hangs" if status == -signal.SIGALRM else "a child is wrong")

    def _is_right_in_child(self) -> bool:
        tritonhook.enable(self.out / "child")
        tritonhook.disable()
        return self._name("") == "kern" and self._name("cutlass_") == "cutlass_kern"

    def _name(self, prefix: str, warm: int = -1) -> str:
        """The name of a kernel from the disk cache: a child of a fork must not use the compiler's own threads."""
        if not prefix:
            return str(compile_kern(warm).name)
        with tritonhook.session(self.out / "warm", rename=prefix):
            return str(compile_kern(warm).name)

    def _check_keys(self) -> None:
        """Each key leads to its own kernel, on disk and in memory."""
        for prefix in PREFIXES:
            session = tritonhook.session(self.out / "check", rename=prefix) if prefix else None
            if session is not None:
                session.__enter__()
            try:
                if entries(compile_kern(self.number)) != (f"{prefix}kern",):
                    self.wrong.append(f"another kernel under the key of {prefix}kern, on disk")
                self.launched[(1,)](Tensor(), N=self.number)
                if self.driver.launched[-1] != f"{prefix}kern":
                    self.wrong.append(f"another kernel under the key of {prefix}kern, in memory")
            except AssertionError:
                self.wrong.append(f"PTX and cubin of {prefix}kern have different names")
            finally:
                if session is not None:
                    session.__exit__(None, None, None)


@pytest.mark.usefixtures("switching_often")
def test_rounds_of_threads_that_compile_fork_and_begin_sessions(out, driver):
    wrong = rounds_that_are_wrong(out, driver, ROUNDS)
    assert not wrong, f"of {ROUNDS} rounds: {dict(wrong)}"


def rounds_that_are_wrong(out: Path, driver: Any, rounds: int, enough: Callable[[Any], bool] = lambda _: False) -> Any:
    """In how many rounds each thing went wrong."""
    compile_kern(-1)
    with tritonhook.session(out / "warm", rename="cutlass_"):
        compile_kern(-1)
    wrong: Counter[str] = Counter()
    for number in range(rounds):
        wrong.update(set(Round(out, number, driver).run()))
        if enough(wrong):
            break
    return wrong
