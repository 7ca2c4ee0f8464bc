"""Watching memory with a model of a GPU: what each source says, and what is missing where one is not there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import CONTEXT, MIB, NAMES, UUID, FakeGpu, FakeNvml, Program, fake_driver
from hangs import HANG_S
from repository import ROOT

from tritonhook.children.environment import watch_environment
from tritonhook.device.nvml import Nvml
from tritonhook.errors import DeviceError, UsageError
from tritonhook.memory.watcher import Watch, _maybe_visible
from tritonhook.memwatch import read_run, watch

GPU = f"GPU-{UUID}"
POOL = (14_512 - 1024) * 132 * 2048


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


# --- the whole of it -----------------------------------------------------------------------------


def test_every_byte_has_its_cause_and_the_pool_its_kernel() -> None:
    program = Program()
    with program.watch() as seen:
        program.start()
        program.load("small", 10 * MIB)
        program.launch("small")
        program.load("attention")
        program.launch("attention", 14_512)
        program.launch("attention", 14_512)
        wait_for(lambda: any(s.used_bytes == program.gpu.used for d in seen._devices.all for s in d.samples))
    timeline = seen.timeline
    attribution = timeline.attribution()
    assert {part.name: part.bytes for part in attribution.parts} == {
        "context": CONTEXT,
        "modules": 90 * MIB,
        "local-memory pool": POOL,
        "other processes": 0,
    }
    assert (attribution.growth_bytes, attribution.source) == (CONTEXT + 90 * MIB + POOL, "NVML")
    assert (attribution.unexplained_bytes, attribution.is_explained) == (0, True)
    pool = attribution.part("local-memory pool")
    assert pool is not None and pool.detail == "attention, 14,512 bytes per thread"
    assert [mark.kernel for mark in timeline.launches] == ["small", "attention"]  # each function once
    assert timeline.launches[1].stack_growth_bytes == 14_512 - 1024
    assert timeline.peak is not None and timeline.peak.used_bytes == program.gpu.used
    assert timeline.outside_allocators_bytes == POOL
    assert (timeline.name, timeline.device, timeline.resident_threads) == ("Fake H100", GPU, 132 * 2048)
    assert (timeline.arch, timeline.total_bytes, timeline.period_ns) == (90, program.gpu.total, 1_000_000)
    assert timeline.duration_ns > 0 and all(0 <= one.t_ns <= timeline.duration_ns for one in timeline.samples)
    assert timeline.notes == ()


@pytest.mark.parametrize(("in_used", "in_total"), [(0, 0), (400, 400), (0, 400)])
def test_memory_that_the_driver_reserves_for_itself_is_no_growth(in_used, in_total) -> None:
    # version 2 of NVML's call is said to leave it out of "used", and has been seen to count it
    program = Program()
    library = FakeNvml(program.gpu)
    library.reserved_in_used, library.reserved_in_total = in_used * MIB, in_total * MIB
    with program.watch(library) as seen:
        program.start()
        program.load("k")
        program.launch("k", 4096)
    parts = {p.name: p.bytes for p in seen.timeline.attribution().parts}
    assert (parts["context"], parts["local-memory pool"]) == (CONTEXT, 792 * MIB)
    assert seen.timeline.attribution().unexplained_bytes == 0
    assert seen.timeline.end.used["NVML"] == seen.timeline.end.used["cuMemGetInfo"]


def buffer(program: Program) -> None:
    metadata = {"name": "printer", "function": 9, "stream": 0}
    program.hooks.launch_enter_hook(metadata)
    program.gpu.use("fifo", 64 * MIB)
    program.hooks.launch_exit_hook(metadata)


def other_library(program: Program) -> None:
    program.launch("first")
    program.gpu.grow_stack(4096)
    program.launch("second")


def grow(what: str, size: int) -> Callable[[Program], None]:
    return lambda program: setattr(program.gpu, what, getattr(program.gpu, what) + size)


@pytest.mark.parametrize(
    ("act", "growth", "unexplained"),
    [
        (lambda program: program.launch("deep", 4096), {"local-memory pool": 792 * MIB}, 0),
        (other_library, {"local-memory pool, other kernels": 792 * MIB}, 0),  # it is seen by the limit
        (buffer, {"buffers of first launches": 64 * MIB}, 0),
        (grow("others", 700 * MIB), {"other processes": 700 * MIB}, 0),
        (grow("own", 600 * MIB), {}, 600 * MIB),  # as by NCCL
    ],
    ids=["pool", "other kernels", "buffer", "other processes", "unexplained"],
)
def test_each_growth_of_a_context_that_was_there_has_its_cause(
    act: Callable[[Program], None], growth: dict[str, int], unexplained: int
) -> None:
    program = Program()
    program.start()
    with program.watch() as seen:
        act(program)
    attribution = seen.timeline.attribution()
    assert {part.name: part.bytes for part in attribution.parts if part.bytes} == growth
    assert (attribution.unexplained_bytes, attribution.is_explained) == (unexplained, not unexplained)


# --- what it costs, and whom it leaves alone -----------------------------------------------------


def test_nothing_runs_after_the_window() -> None:
    program = Program()
    library = FakeNvml(program.gpu)
    with program.watch(library) as seen:
        wait_for(lambda: library.asked.count("memory") > 5)
    asked = len(library.asked)
    assert not any(thread.name == "tritonhook-memwatch" for thread in threading.enumerate())
    assert all(getattr(program.hooks, name).calls == [] for name in NAMES)
    program.start()
    program.launch("late", 4096)
    time.sleep(0.01)
    assert len(library.asked) == asked
    assert all(timeline.marks == () for timeline in seen.timelines)


def test_a_launch_that_was_seen_asks_nothing_more() -> None:
    program = Program()
    program.start()
    with program.watch(None):
        program.launch("k", function=5)
        before = len(program.gpu.calls)
        for _ in range(100):
            program.launch("k", function=5)
        assert len(program.gpu.calls) == before


def test_during_graph_capture_the_driver_is_not_asked() -> None:
    program = Program()
    program.start()
    with program.watch(None) as seen:
        program.launch("warm")
        program.gpu.capturing = True
        program.gpu.calls.clear()
        program.launch("captured")
        asked = set(program.gpu.calls)
        program.gpu.capturing = False
    assert asked <= {"cuStreamIsCapturing", "cuCtxGetCurrent", "cuCtxGetDevice"}  # none of them touches the stream
    mark = seen.timeline.launches[-1]
    assert (mark.kernel, mark.before, mark.after) == ("captured", None, None)
    assert mark.note is not None and "graph capture" in mark.note


def test_cuda_is_never_initialised_and_no_context_made() -> None:
    program = Program()
    with program.watch():
        time.sleep(0.005)
    assert not {"cuInit", "cuCtxCreate_v2", "cuDevicePrimaryCtxRetain"} & set(program.gpu.calls)


def test_hooks_of_others_stay_and_a_hook_that_is_no_chain_is_called_too() -> None:
    program = Program()
    called: list[str] = []
    program.hooks.launch_enter_hook.add(lambda metadata: called.append("chain"))
    program.hooks.kernel_load_end_hook = lambda *arguments: called.append("plain")
    plain = program.hooks.kernel_load_end_hook
    program.hooks.kernel_load_start_hook = None
    program.start()
    with program.watch() as seen:
        program.hooks.kernel_load_start_hook(None, None, "k", {}, "h")
        program.hooks.kernel_load_end_hook(1, 2, "k", {}, "h")
        program.launch("k")
    assert called == ["plain", "chain"]
    assert program.hooks.kernel_load_end_hook is plain
    assert program.hooks.kernel_load_start_hook is None
    assert [mark.kind for mark in seen.timeline.marks] == ["load", "launch"]


def test_an_error_of_the_watch_never_reaches_the_launch() -> None:
    program = Program()
    program.start()
    with program.watch(None) as seen:
        program.launch("fine")

        def broken(*_: Any) -> int:
            raise OSError("the driver is gone")

        program.driver._cuda.cuMemGetInfo_v2 = broken
        program.launch("second", 4096)
        del program.driver._cuda.cuMemGetInfo_v2
    assert any("the driver is gone" in note for note in seen.notes)


# --- sources that are missing --------------------------------------------------------------------


def test_no_gpu_at_all_says_what_is_missing() -> None:
    with watch() as seen:
        pass
    assert seen.timelines == () or Path("/dev/nvidiactl").exists()
    if not Path("/dev/nvidiactl").exists():
        sentences = " | ".join(seen.notes)
        assert "no NVIDIA driver here" in sentences
        assert "no GPU was seen" in sentences
        with pytest.raises(DeviceError, match="0 GPUs were watched: .*no NVIDIA driver"):
            _ = seen.timeline


def test_without_nvml_the_driver_is_the_source() -> None:
    program = Program()
    program.start()
    seen = Watch(1, program.driver, None, program.hooks)
    with seen:
        program.launch("deep", 4096)
    attribution = seen.timeline.attribution()
    assert (attribution.source, attribution.growth_bytes) == ("cuMemGetInfo", 792 * MIB)
    assert seen.timeline.samples == ()
    assert seen.timeline.device == GPU


def test_nvml_that_reports_no_memory_as_on_gb10() -> None:
    program = Program(FakeGpu(sms=48, threads=1536, arch=121))
    program.gpu.supported = False
    with program.watch() as seen:
        program.start()
        program.launch("deep", 14_512)
    timeline = seen.timeline
    attribution = timeline.attribution()
    assert attribution.source == "NVML, this process"
    pool = (14_512 - 1024) * 48 * 1536
    assert attribution.part("local-memory pool").bytes == pool  # type: ignore[union-attr]
    assert timeline.samples == ()
    assert any("does not report this value" in note and "Fake H100" in note for note in timeline.notes)


def test_a_gpu_that_is_lost_ends_its_timeline_with_a_sentence() -> None:
    program = Program()
    program.start()
    with program.watch() as seen:
        wait_for(lambda: bool(seen._devices.all[0].samples))
        program.gpu.lost = True
        wait_for(lambda: not seen._devices.all[0].sampled)
    timeline = seen.timeline
    assert timeline.samples
    assert any("fallen off the bus" in note and "the timeline ends at" in note for note in timeline.notes)
    assert timeline.attribution().source == "cuMemGetInfo"  # which this model still answers


@pytest.mark.parametrize("period", [0, 0.5, -1, float("nan")])
def test_a_period_that_is_too_short(period) -> None:
    with pytest.raises(UsageError, match="give 1 or more"):
        watch(period)


# --- which GPU -----------------------------------------------------------------------------------

TWO = ("GPU-aaaa0000-0000-0000-0000-000000000000", GPU)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, TWO),
        ("1", TWO),  # NVML's order is not CUDA's: nobody is left out yet
        (GPU, (GPU,)),
        ("GPU-1111", (GPU,)),
        ("GPU-aaaa,GPU-1111", TWO),
        ("MIG-7-8-9", ("MIG-7-8-9",)),
        ("", ()),
        ("-1", ()),
    ],
)
def test_visible_devices(monkeypatch, visible, expected) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _maybe_visible(TWO) == expected


def test_of_several_gpus_the_one_in_use_is_found_by_its_uuid() -> None:
    program = Program()
    library = FakeNvml(program.gpu, TWO)
    with program.watch(library) as seen:
        wait_for(lambda: all(device.samples for device in seen._devices.all))
        assert {device.uuid for device in seen._devices.all} == set(TWO)  # before there is a context, both
        program.start()
        program.launch("k", 4096)
    assert [timeline.device for timeline in seen.timelines] == [GPU]
    assert [mark.kernel for mark in seen.timeline.launches] == ["k"]


# --- in other processes --------------------------------------------------------------------------


def test_a_child_leaves_its_timelines_and_a_damaged_file_is_noted(tmp_path) -> None:
    pytest.importorskip("triton", minversion="3.6")
    environment = watch_environment(tmp_path, 5, {**os.environ, "PYTHONPATH": str(ROOT)})
    subprocess.run([sys.executable, "-c", "import triton"], env=environment, check=True, timeout=HANG_S)
    subprocess.run([sys.executable, "-c", "import json"], env=environment, check=True, timeout=HANG_S)
    (tmp_path / "9-9.json").write_text("{")
    timelines, notes = read_run(tmp_path)
    assert any("9-9.json: cannot be read" in note for note in notes)
    assert timelines or any("no GPU was seen" in note for note in notes)
    assert len(list(tmp_path.glob("*.json"))) == 2  # the process without triton left nothing


# --- Triton's own hooks --------------------------------------------------------------------------


def test_tritons_launches_and_loads_are_seen(triton_cache) -> None:
    pytest.importorskip("triton", minversion="3.6")
    from fake_driver import active
    from triton import knobs
    from triton_kernels import add_kernel, fresh, launch, multiply_kernel

    hooks = [list(getattr(knobs.runtime, name).calls) for name in NAMES]
    gpu = FakeGpu()
    driver = fake_driver(gpu)
    driver.create_context(0)
    with active(arch=90), watch(driver=driver, nvml=Nvml(FakeNvml(gpu))) as seen:
        for kernel in (fresh(add_kernel), fresh(multiply_kernel)):
            for _ in range(3):
                launch(kernel)
    assert [(mark.kind, mark.kernel) for mark in seen.timeline.marks] == [
        ("load", "add_kernel"),
        ("launch", "add_kernel"),
        ("load", "multiply_kernel"),
        ("launch", "multiply_kernel"),
    ]
    assert all(mark.growth_bytes == 0 and mark.stack_growth_bytes == 0 for mark in seen.timeline.marks)
    assert seen.notes == []
    assert hooks == [list(getattr(knobs.runtime, name).calls) for name in NAMES]


def test_a_kernels_own_launch_metadata_is_not_computed_for_us(triton_cache) -> None:
    pytest.importorskip("triton", minversion="3.6")
    import triton
    from fake_driver import active
    from triton_kernels import add_kernel, launch

    computed: list[int] = []
    kernel = triton.jit(add_kernel.fn, launch_metadata=lambda *_: computed.append(1) or {})
    program = Program()
    program.start()
    with active(arch=90), watch(driver=program.driver, nvml=Nvml(FakeNvml(program.gpu))) as seen:
        launch(kernel)
    assert [mark.kernel for mark in seen.timeline.launches] == ["add_kernel"]
    assert computed == []
