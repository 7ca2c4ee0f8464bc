"""Rewritten kernels have their own keys in every cache of Triton: on disk, in memory, and of compiles in flight."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hangs import HANG_S

pytest.importorskip("triton", minversion="3.6")

import triton_kernels
from triton.runtime._async_compile import AsyncCompileMode
from triton_kernels import add_kernel, compile_kernel, fresh, launch
from triton_sessions import entries

import tritonhook

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


PLAN = [
    ({}, "add_kernel"),
    ({"rename": "cutlass_"}, "cutlass_add_kernel"),
    ({"strip": "add"}, "kernel"),
    ({}, "add_kernel"),
    ({"rename": "cutlass_"}, "cutlass_add_kernel"),
    (None, "add_kernel"),  # without a session
]


def compiled_names(out: Path, plan: Any = PLAN) -> list[str]:
    names = []
    for number, (arguments, _) in enumerate(plan):
        if arguments is None:
            names.append(entries(compile_kernel())[0])
        else:
            with tritonhook.session(out / str(number), **arguments):
                names.append(entries(compile_kernel())[0])
    return names


def launched_names(out: Path, driver: Any) -> list[str]:
    kernel = fresh(add_kernel)
    for number, (arguments, _) in enumerate(PLAN):
        if arguments is None:
            launch(kernel)
        else:
            with tritonhook.session(out / str(number), **arguments):
                launch(kernel)
                launch(kernel)
                driver.launched.pop()
    return driver.launched


def async_names(out: Path) -> list[str]:
    """Compiles of one kernel in a pool, under changing sessions, all in one AsyncCompileMode."""
    functions = [fresh(add_kernel) for _ in PLAN]
    tensor = triton_kernels.Tensor()
    futures = []
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        for number, (function, (arguments, _)) in enumerate(zip(functions, PLAN, strict=True)):
            if arguments is None:
                futures.append(function.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,)))
            else:
                with tritonhook.session(out / str(number), **arguments):
                    futures.append(function.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,)))
    return [entries(future.result() if hasattr(future, "result") else future)[0] for future in futures]


EXPECTED = [name for _, name in PLAN]


def test_compile_in_one_process_gets_the_right_kernel(out):
    assert compiled_names(out) == EXPECTED


def test_launches_in_one_process_run_the_right_kernel(out, driver):
    assert launched_names(out, driver) == EXPECTED
    # and kernels from the in-memory cache were not loaded again
    assert sorted(driver.loaded) == sorted(set(EXPECTED))


@pytest.mark.usefixtures("parsing_by_turns")
def test_async_compiles_get_the_right_kernel(out, driver):
    assert async_names(out) == EXPECTED


@pytest.mark.usefixtures("parsing_by_turns")
def test_async_compiles_launch_the_right_kernel_afterwards(out, driver):
    kernel, tensor = fresh(add_kernel), triton_kernels.Tensor()
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,))
        with tritonhook.session(out, rename="cutlass_"):
            launch(kernel)
        launch(kernel)
    with tritonhook.session(out, rename="cutlass_"):
        launch(kernel)
    assert driver.launched == ["cutlass_add_kernel", "add_kernel", "cutlass_add_kernel"]


@pytest.mark.usefixtures("parsing_by_turns")
def test_a_compile_that_waits_in_the_pool_ends_under_the_settings_it_was_asked_under(out, driver):
    # given a compile that waits because the pool is busy; a session waits for it before it ends
    kernel, tensor, free, free_again = fresh(add_kernel), triton_kernels.Tensor(), Event(), Event()
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(free.wait, HANG_S)
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,))
        with tritonhook.session(out, rename="cutlass_"):
            free.set()
    launch(kernel)
    with tritonhook.session(out, rename="cutlass_"), ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(free_again.wait, HANG_S)
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=256, grid=(1,))
        free_again.set()
    launch(kernel, block=256)
    assert driver.launched == ["add_kernel", "add_kernel"]


PROCESS = """
arguments = json.loads(os.environ["ARGUMENTS"])
names = []
with fake_driver.active() as driver:
    if arguments is not None:
        tritonhook.enable("captures", **arguments)
    names.append(kernels.compile_kernel().name)
    kernels.launch(kernels.add_kernel)
print(json.dumps([*names, *driver.launched]))
"""


def test_processes_that_share_a_cache_get_the_right_kernel(run_python):
    found = run_python.forked(PROCESS, [{"ARGUMENTS": json.dumps(arguments)} for arguments, _ in PLAN[1:]])
    assert found == [[name, name] for _, name in PLAN[1:]]


def test_a_compile_whose_key_was_made_before_the_session_is_not_rewritten(out, monkeypatch):
    # given a compile that is between its cache key and its stages when the session begins
    from triton.backends.nvidia import compiler as backend

    add_stages = backend.CUDABackend.add_stages
    begun = []

    def begin_first(self, *arguments):
        if not begun:
            begun.append(tritonhook.enable(out, rename="cutlass_"))
        return add_stages(self, *arguments)

    monkeypatch.setattr(backend.CUDABackend, "add_stages", begin_first)
    assert entries(compile_kernel()) == ("add_kernel",)
    # then later compiles are rewritten, and the plain kernel's cache holds the plain kernel
    assert entries(compile_kernel()) == ("cutlass_add_kernel",)
    tritonhook.disable()
    assert entries(compile_kernel()) == ("add_kernel",)
