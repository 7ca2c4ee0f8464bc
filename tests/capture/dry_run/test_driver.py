"""The driver of dry runs and what it replaces in Triton, in this process."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from repository import GOLDEN

pytest.importorskip("triton", minversion="3.6")

import triton.testing
from triton.compiler import CompiledKernel
from triton.runtime import driver as triton_driver
from triton.runtime.errors import OutOfResources

from tritonhook.capture.dry_run import driver as dry_driver
from tritonhook.capture.dry_run.autotuner import tuners
from tritonhook.capture.dry_run.driver import DryDriver, active, not_measured, room_for_all, without_cublas
from tritonhook.capture.dry_run.gpu import DryRun, Notes
from tritonhook.cubin.image import Cubin

MODULE = (GOLDEN / "sm_90a.module.cubin").read_bytes()


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The remarks of this process, of which there are none yet."""
    found = Notes()
    monkeypatch.setattr(dry_driver, "notes", found)
    return found


def test_the_driver_tells_of_the_gpu_of_the_dry_run() -> None:
    dry = DryRun.of("sm_121")
    given: Any = DryDriver(dry)
    target = given.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 121, 32)
    assert given.utils is given and given.is_active() is True
    assert given.get_device_capability() == (12, 1)
    assert (given.get_current_device(), given.get_current_stream()) == (0, 0)
    assert given.get_device_properties(0) == {
        "max_shared_mem": dry.gpu.shared_bytes,
        "max_num_regs": 65536,
        "multiprocessor_count": 48,
        "warpSize": 32,
        "sm_clock_rate": 1_000_000,
        "mem_clock_rate": 1_000_000,
        "mem_bus_width": 5120,
    }
    assert given.map_python_to_cpp_type("i32") == "int32_t"
    assert given.cuOccupancyMaxActiveClusters() == 1 and given.is_stream_capturing(0) is False
    assert given.get_benchmarker() is not_measured


def test_a_kernel_is_loaded_with_what_its_cubin_says() -> None:
    driver = DryDriver(DryRun(90))
    cubin = Cubin.from_bytes(MODULE)
    for name in cubin.kernels:
        registers, stack = cubin.resources[name].registers, cubin.resources[name].stack
        assert registers is not None and stack is not None
        loaded = driver.load_binary(name, MODULE, 0, 0)
        assert loaded == (1, name, registers, stack // 4, dry_driver._most_threads(cubin.resources[name]))
    with pytest.raises(RuntimeError, match="'nothing'.*" + cubin.kernels[0]):
        driver.load_binary("nothing", MODULE, 0, 0)


@pytest.mark.parametrize(
    ("registers", "threads"),
    [
        (None, 1024),
        (16, 1024),
        (64, 1024),
        (65, 896),
        (8, 1024),
        (96, 672),
        (72, 896),
        (73, 800),
        (128, 512),
        (255, 256),
    ],
)
def test_a_block_has_the_threads_whose_registers_there_are(registers: int | None, threads: int) -> None:
    assert dry_driver._most_threads(SimpleNamespace(registers=registers)) == threads  # type: ignore[arg-type]


def test_a_launch_calls_the_hooks_of_others_around_it(monkeypatch) -> None:
    driver, calls = DryDriver(DryRun(90)), list[Any]()
    monkeypatch.setattr(driver, "launch", calls.append)
    launch = driver.launcher_cls(None, None)
    enter, leave = (lambda lazy: calls.append(("enter", lazy))), (lambda lazy: calls.append(("leave", lazy)))
    launch(1, 2, 3, 0, "k", "packed", "lazy", enter, leave, "x", "y")
    launch(1, 2, 3, 0, "k", "packed", "lazy", None, None)
    assert calls == [("enter", "lazy"), "k", ("leave", "lazy"), "k"]


def test_nothing_is_measured(notes) -> None:
    calls: list[int] = []
    call = lambda: calls.append(1)  # noqa: E731
    with dry_driver.without_measuring():
        for bench in (triton.testing.do_bench, triton.testing.do_bench_cudagraph):
            assert bench(call) == bench(call, 25, return_mode="median") == math.inf
            assert bench(call, quantiles=[0.2, 0.5]) == [math.inf] * 2
            assert bench(call, return_mode="all") == [math.inf]
    assert len(calls) == 8
    assert not hasattr(triton.testing.do_bench, "func")


def test_cublas_does_nothing_and_is_noted(notes) -> None:
    from triton._C.libtriton import nvidia

    own = nvidia.cublas.CublasLt
    with without_cublas():
        assert list(notes) == []
        assert nvidia.cublas.CublasLt("workspace").matmul(1, a=2) is None
    assert "cuBLAS" in "".join(notes) and nvidia.cublas.CublasLt is own


@pytest.mark.parametrize("there", [None, "another"])
def test_the_active_driver_is_given_back(monkeypatch, there) -> None:
    monkeypatch.setattr(triton_driver, "_active", there)
    monkeypatch.setattr(triton_driver, "_default", there)
    ours = DryDriver(DryRun(90))
    with pytest.raises(KeyError), active(ours):
        assert triton_driver._active is triton_driver._default is ours
        raise KeyError
    assert (triton_driver._active, triton_driver._default) == (there or ours, there)


@pytest.mark.parametrize("trying", [False, True])
def test_a_kernel_that_the_gpu_has_no_room_for_is_noted_and_goes_on(monkeypatch, notes, trying) -> None:
    """Where an autotuner tries it, Triton's error comes through, at each launch."""
    name = Cubin.from_bytes(MODULE).kernels[0]
    metadata = SimpleNamespace(shared=4096)
    kernel: Any = SimpleNamespace(name=name, kernel=MODULE, metadata=metadata, src="source", _run="before")

    def no_room(kernel: Any) -> None:
        raise OutOfResources(400_000, 232_448, "shared memory")

    monkeypatch.setattr(CompiledKernel, "_init_handles", no_room)
    monkeypatch.setattr(tuners, "trying", trying)
    asked: list[Any] = []
    ours = DryDriver(DryRun(90))
    monkeypatch.setattr(ours, "launcher_cls", lambda *given: asked.append(given) or "a launcher")
    monkeypatch.setattr(ours, "load_binary", lambda *given: asked.append(given) or (1, "f", 24, 2, 1024))
    with active(ours), room_for_all(launch_anyway=True):
        if trying:
            with pytest.raises(OutOfResources):
                CompiledKernel._init_handles(kernel)
            assert (kernel._run, asked, list(notes)) == (None, [], [])
            return
        CompiledKernel._init_handles(kernel)
    assert CompiledKernel._init_handles is no_room
    assert list(notes) == [f"{name}: needs 400,000 of shared memory, the GPU has 232,448"]
    assert asked == [("source", metadata), (name, MODULE, 4096, 0)]
    made = kernel._run, kernel.module, kernel.function, kernel.n_regs, kernel.n_spills, kernel.n_max_threads
    assert made == ("a launcher", 1, "f", 24, 2, 1024)
