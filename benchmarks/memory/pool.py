"""What the local-memory pool and other driver-side memory do on one GPU, against what memory/prediction.py predicts.

Experiments E1 to E15 of docs/explanation/gpu-memory.md. Each runs in a process of its own with a time limit, so that no
pool of an earlier one is left. Those with known frames need Triton's ptxas alone; E12 to E14 need torch and Triton.

    python benchmarks/memory/pool.py --out benchmarks/results/memory_h100.json
    python benchmarks/memory/pool.py --only E1,E14
    python benchmarks/memory/pool.py --fake       # without a GPU: on the model in tests/support/fake_gpu.py

Summary: worst_prediction_error_ratio (known frames), sampler_slowdown_ratio (one-second loop, 10 ms).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for common.py
from common import RESULTS, environment, write_json

from tritonhook.device.cuda_driver import MALLOC_HEAP_SIZE, PRINTF_FIFO_SIZE, STACK_SIZE, CudaError, Driver
from tritonhook.device.nvml import Nvml
from tritonhook.errors import DeviceError
from tritonhook.memory.calibration import assemble_frame, frame_arguments
from tritonhook.memory.gpu_specs import Gpu
from tritonhook.memory.prediction import MIB, net_growth, predict, stack_needs
from tritonhook.memwatch import watch
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import Assembled, assemble
from tritonhook.ptxas.discovery import find_ptxas

PTXAS = "12.8.93"  # Triton 3.6.0 brings it
FRAMES = (512, 2048, 4096, 8192, 14512, 14608, 16384, 32768, 65536)
CHILD_LIMIT_S = 60
GOALS = {"worst_prediction_error_ratio": 0.01, "sampler_slowdown_ratio": 1.01}

PRINTER = """.version 8.0
.target {target}
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 valist);
.global .align 1 .b8 message[2] = {{10, 0}};
.visible .entry printer(.param .u32 printer_param_0)
{{
 .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
 ld.param.u32 %r1, [printer_param_0];
 setp.ne.u32 %p1, %r1, 77;
 @%p1 bra DONE;
 mov.u64 %rd1, message; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, 0;
 {{ .param .b64 a; st.param.b64 [a], %rd1; .param .b64 b; st.param.b64 [b], %rd2; .param .b32 r;
   call.uni (r), vprintf, (a, b); ld.param.b32 %r2, [r]; }}
DONE: ret;
}}
"""
ALLOCATOR = """.version 8.0
.target {target}
.address_size 64
.extern .func (.param .b64 result) malloc (.param .b64 size);
.visible .entry allocator(.param .u32 allocator_param_0)
{{
 .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
 ld.param.u32 %r1, [allocator_param_0];
 setp.ne.u32 %p1, %r1, 77;
 @%p1 bra DONE;
 mov.u64 %rd1, 64;
 {{ .param .b64 a; st.param.b64 [a], %rd1; .param .b64 r; call.uni (r), malloc, (a); ld.param.b64 %rd2, [r]; }}
 st.global.u32 [%rd2], %r1;
DONE: ret;
}}
"""
GLOBALS = """.version 8.0
.target {target}
.address_size 64
.visible .global .align 16 .b8 data{number}[{size}];
.visible .entry toucher{number}(.param .u32 toucher_param_0)
{{
 .reg .b32 %r<4>; .reg .b64 %rd<4>;
 ld.param.u32 %r1, [toucher_param_0];
 mov.u64 %rd1, data{number};
 st.global.u32 [%rd1], %r1;
 ret;
}}
"""


class Bench:
    """One child's view of the GPU: its driver, NVML if there is one, and a fresh context."""

    def __init__(self, fake: bool) -> None:
        if fake:
            from fake_gpu import FakeGpu, FakeNvml, fake_driver

            gpu = FakeGpu()
            self.driver, self.nvml = fake_driver(gpu), Nvml(FakeNvml(gpu))
        else:
            self.driver = Driver()
            try:
                self.nvml = Nvml()
            except DeviceError as error:
                print(f"no NVML: {error}", file=sys.stderr)
                self.nvml = None
        self.fake = fake
        self.ptxas = find_ptxas(PTXAS)
        self.driver.init()
        self.device = self.driver.device(0)
        self.arch = self.driver.arch(self.device)
        sms, threads = (
            self.driver.multiprocessors(self.device),
            self.driver.threads_per_multiprocessor(self.device),
        )
        self.gpu = Gpu(self.driver.name(self.device), sms, threads, self.arch, "the driver")
        self.uuid = None
        try:
            if self.nvml is not None:
                self.uuid = self.nvml.find(self.driver.uuid(self.device))
                self.nvml.memory(self.uuid)
        except DeviceError as error:
            print(f"no NVML: {error}", file=sys.stderr)
            self.nvml = self.uuid = None

    def context(self) -> int:
        return self.driver.create_context(self.device)

    def look(self) -> dict[str, int | None]:
        """Free memory by the context, used memory by NVML, the stack limit."""
        self.driver.synchronize()
        used = None
        if self.nvml is not None and self.uuid is not None:
            used = self.nvml.memory(self.uuid).used
        return {"free": self.driver.memory()[0], "nvml_used": used, "limit": self.driver.limit()}

    def image(self, text: str, **values: Any) -> bytes:
        target = f"sm_{self.arch}{'a' if self.arch >= 90 else ''}"
        made = assemble(self.ptxas, Ptx(text.format(target=target, **values)), ())
        assert isinstance(made, Assembled), made.summary
        return made.cubin.data

    def frame(self, frame: int) -> tuple[int, int, int]:
        """Load a kernel of that frame: the functions `frame` and `noop`, and what is predicted."""
        made = assemble_frame(self.ptxas, self.arch, frame)
        needs = [need for need in stack_needs(made.cubin) if need.kernel == "frame"]
        growth = predict(needs, self.gpu).growth
        assert growth is not None
        module = self.driver.load(made.cubin.data)
        return self.driver.function(module, "frame"), self.driver.function(module, "noop"), growth.low

    def launch_frame(self, function: int, grid: int = 1) -> None:
        self.driver.launch(function, frame_arguments(), grid)

    def noop(self) -> None:
        """The first launch of the context, of a kernel without a stack."""
        self.driver.launch(self.frame(16)[1])


def grown(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """MiB that went, by both sources, and the limit before and after."""
    nvml = None if before["nvml_used"] is None else (after["nvml_used"] - before["nvml_used"]) / MIB
    return {
        "mib": (before["free"] - after["free"]) / MIB,
        "nvml_mib": nvml,
        "limit": [before["limit"], after["limit"]],
    }


# --- experiments with known frames: each returns JSON values -------------------------------------


def e1(b: Bench, frame: int) -> dict[str, Any]:
    """No-op kernel, then one of the frame: growth against the prediction."""
    b.context()
    b.noop()
    start = b.look()
    function, _, predicted = b.frame(frame)
    loaded = b.look()
    b.launch_frame(function)
    launched = b.look()
    step = grown(loaded, launched)
    return {
        "frame": frame,
        "predicted_mib": predicted / MIB,
        "load": grown(start, loaded),
        **step,
        "error_ratio": abs(step["mib"] - predicted / MIB) / (predicted / MIB) if predicted else None,
    }


def e2(b: Bench, first_noop: bool) -> dict[str, Any]:
    """Is there a pool at the start? A 64-byte frame as first launch."""
    b.context()
    start = b.look()
    if first_noop:
        b.noop()
    noop = b.look()
    function, _, _ = b.frame(64)
    loaded = b.look()
    b.launch_frame(function)
    return {
        "first_noop": first_noop,
        "limit_at_start": start["limit"],
        "noop": grown(start, noop),
        "load": grown(noop, loaded),
        "frame_64": grown(loaded, b.look()),
    }


def e3(b: Bench) -> dict[str, Any]:
    """High-water mark: 8,192, then 4,096, then 16,384."""
    b.context()
    b.noop()
    steps = []
    for frame in (8192, 4096, 16384):
        function, _, _ = b.frame(frame)
        before = b.look()
        b.launch_frame(function)
        after = b.look()
        predicted = net_growth(frame, b.gpu, before["limit"]) / MIB
        steps.append({"frame": frame, "predicted_mib": predicted, **grown(before, after)})
    return {"steps": steps}


def e4(b: Bench) -> dict[str, Any]:
    """The limit set by hand, up and down, without a kernel."""
    b.context()
    b.noop()
    steps = []
    for value in (16384, 1024, 4096, 1024):
        before = b.look()
        b.driver.set_limit(STACK_SIZE, value)
        after = b.look()
        predicted = (value - before["limit"]) * b.gpu.resident_threads / MIB
        steps.append({"set": value, "predicted_mib": predicted, **grown(before, after)})
    return {"steps": steps}


def e5(b: Bench, grid: int) -> dict[str, Any]:
    """Load against launch, and the grid's size."""
    b.context()
    b.noop()
    start = b.look()
    function, _, predicted = b.frame(8192)
    loaded = b.look()
    b.launch_frame(function, grid)
    launched = b.look()
    b.launch_frame(function, grid)
    return {
        "grid": grid,
        "predicted_mib": predicted / MIB,
        "load": grown(start, loaded),
        "launch": grown(loaded, launched),
        "second_launch": grown(launched, b.look()),
    }


def e6(b: Bench) -> dict[str, Any]:
    """What gives the pool back: unloading the module does not, destroying the context does."""
    before_context = None if b.nvml is None or b.uuid is None else b.nvml.memory(b.uuid).used
    context = b.context()
    b.noop()
    start = b.look()
    made = assemble_frame(b.ptxas, b.arch, 8192)
    module = b.driver.load(made.cubin.data)
    b.launch_frame(b.driver.function(module, "frame"))
    launched = b.look()
    b.driver.unload(module)
    unloaded = b.look()
    b.driver.destroy_context(context)
    after_context = None if b.nvml is None or b.uuid is None else b.nvml.memory(b.uuid).used
    left = None if before_context is None or after_context is None else (after_context - before_context) / MIB
    return {"launch": grown(start, launched), "unload": grown(launched, unloaded), "nvml_left_after_context_mib": left}


def e7(b: Bench, factor: float) -> dict[str, Any]:
    """The edge: leave `factor` times the predicted growth free, then launch."""
    b.context()
    b.noop()
    function, _, predicted = b.frame(14608)
    wanted = int(predicted * factor) // (2 * MIB) * 2 * MIB
    filling = b.driver.memory()[0] - wanted
    b.driver.allocate(filling // (2 * MIB) * 2 * MIB)
    before = b.look()
    code = 0
    try:
        b.launch_frame(function)
        b.driver.synchronize()
    except CudaError as error:
        code = error.code
    return {
        "factor": factor,
        "free_before_mib": before["free"] / MIB,
        "predicted_mib": predicted / MIB,
        "result": code,
        **grown(before, b.look()),
    }


def e8(b: Bench) -> dict[str, Any]:
    """A second process on the same GPU: both pools count, and the device sees the sum."""
    b.context()
    b.noop()
    start = b.look()
    other = child("e8_other", {}, b.fake)
    during = other.get("nvml_used_at_end")
    function, _, predicted = b.frame(8192)
    loaded = b.look()
    b.launch_frame(function)
    launched = b.look()
    listed = None
    if b.nvml is not None and b.uuid is not None:
        listed = b.nvml.processes(b.uuid).get(os.getpid())
    return {
        "own": grown(loaded, launched),
        "predicted_mib": predicted / MIB,
        "other_process": other,
        "nvml_while_both_mib": None if during is None or start["nvml_used"] is None
        else (during - start["nvml_used"]) / MIB,
        "own_line_in_process_list_mib": None if listed is None else listed / MIB,
    }  # fmt: skip


def e8_other(b: Bench) -> dict[str, Any]:
    b.context()
    b.noop()
    function, _, predicted = b.frame(4096)
    before = b.look()
    b.launch_frame(function)
    after = b.look()
    return {"predicted_mib": predicted / MIB, **grown(before, after), "nvml_used_at_end": after["nvml_used"]}


def e9(b: Bench, size_mib: int) -> dict[str, Any]:
    """printf's buffer: when it is reserved, and that its limit is fixed afterwards."""
    return _buffer(b, PRINTF_FIFO_SIZE, PRINTER, "printer", size_mib)


def e10(b: Bench, size_mib: int) -> dict[str, Any]:
    """The device heap, likewise."""
    return _buffer(b, MALLOC_HEAP_SIZE, ALLOCATOR, "allocator", size_mib)


def _buffer(b: Bench, limit: int, text: str, name: str, size_mib: int) -> dict[str, Any]:
    b.context()
    b.noop()
    default = b.driver.limit(limit)
    start = b.look()
    b.driver.set_limit(limit, size_mib * MIB)
    after_set = b.look()
    module = b.driver.load(b.image(text))
    loaded = b.look()
    function = b.driver.function(module, name)
    got = b.look()
    b.driver.launch(function, (ctypes.c_uint32(1),))
    launched = b.look()
    try:
        b.driver.set_limit(limit, 2 * size_mib * MIB)
        late = 0
    except CudaError as error:
        late = error.code
    return {
        "size_mib": size_mib,
        "default_bytes": default,
        "set": grown(start, after_set),
        "load": grown(after_set, loaded),
        "get_function": grown(loaded, got),
        "launch": grown(got, launched),
        "set_afterwards": late,
    }


def e11(b: Bench) -> dict[str, Any]:
    """Loading modules: large globals, and many small ones."""
    b.context()
    b.noop()
    steps = []
    for number, size in enumerate((64, 256)):
        image = b.image(GLOBALS, number=number, size=size * MIB)
        before = b.look()
        module = b.driver.load(image)
        loaded = b.look()
        b.driver.function(module, f"toucher{number}")
        steps.append({"global_mib": size, "load": grown(before, loaded), "get_function": grown(loaded, b.look())})
    image = b.image(GLOBALS, number=9, size=16)
    before = b.look()
    for _ in range(100):
        b.driver.function(b.driver.load(image), "toucher9")
    return {"steps": steps, "hundred_tiny_modules": grown(before, b.look())}


# --- experiments with torch and Triton -----------------------------------------------------------


def e12(b: Bench) -> dict[str, Any]:
    """TMA loads on a GPU without the syscall: original and rewritten, watched, outputs compared."""
    import torch
    import triton
    from tma_kernels import CASES, run_on_gpu

    import tritonhook

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    torch.zeros(1, device="cuda")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = str(Path(folder, "cache"))
        for name in ("copy 2d 128x128", "matmul w8 s2", "attention D64"):
            outputs, code, growths, limits = [], [], [], []
            for rewrites in ([], ["tma-cta"]):
                with tritonhook.session(Path(folder, "out"), rewrites=rewrites) as session, watch() as seen:
                    outputs.append(run_on_gpu(CASES[name]))
                    torch.cuda.synchronize()
                (capture,) = session.captures
                cubin = tritonhook.Cubin.from_bytes(capture.cubin)
                code.append(cubin.text(capture.kernel))
                timeline = seen.timelines[0]
                growths += [mark.growth_bytes for mark in timeline.launches]
                limits += [mark.after.stack_limit_bytes for mark in timeline.launches if mark.after]
                notes = [note for note in session.notes if ".shared::cta" in note]
            results.append(
                {
                    "kernel": name,
                    "bit_equal": all(bool(torch.equal(x, y)) for x, y in zip(*outputs, strict=True)),
                    "same_code": code[0] == code[1],
                    "growth_mib": [None if g is None else g / MIB for g in growths],
                    "limits": limits,
                    "rewritten": notes,
                }
            )
    return {"kernels": results}


def e13(b: Bench) -> dict[str, Any]:
    """Graphs of many nodes, and the cuBLAS workspace: inside or outside of torch's reserve."""
    import torch

    x = torch.zeros(1024, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    steps = []
    graphs = []
    for nodes in (1, 1000, 10_000):
        before = _torch_look(torch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                x.add_(1)
        graph.replay()
        torch.cuda.synchronize()
        graphs.append(graph)
        steps.append({"nodes": nodes, **_torch_grown(before, _torch_look(torch))})
    a = torch.ones(1024, 1024, device="cuda", dtype=torch.float16)
    before = _torch_look(torch)
    a @ a
    torch.cuda.synchronize()
    return {"graphs": steps, "cublas": _torch_grown(before, _torch_look(torch))}


def _torch_look(torch: Any) -> tuple[int, int]:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()


def _torch_grown(before: tuple[int, int], after: tuple[int, int]) -> dict[str, float]:
    return {"mib": (before[0] - after[0]) / MIB, "torch_reserved_mib": (after[1] - before[1]) / MIB}


def e14(b: Bench) -> dict[str, Any]:
    """What the sampler costs a one-second kernel loop, and how soon a 100 MiB step is seen."""
    import torch
    import triton  # noqa: F401  (so that the watch has its hooks)

    def measured(elements: int, periods: dict[int, int]) -> tuple[int, dict[str, list[list[float]]]]:
        """Seconds of plain, watched and plain loops, by sampling period; each loop takes about a second."""
        x = torch.zeros(elements, device="cuda")

        def loop(launches: int) -> float:
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(launches):
                x.add_(1)
            torch.cuda.synchronize()
            return time.perf_counter() - start

        loop(500)
        launches = int(1000 / loop(1000))
        rows: dict[str, list[list[float]]] = {}
        for period, rounds in periods.items():
            for _ in range(rounds):
                plain = loop(launches)
                with watch(period):
                    watched = loop(launches)
                rows.setdefault(str(period), []).append([plain, watched, loop(launches)])
        return launches, rows

    def slowdown(rows: dict[str, list[list[float]]]) -> dict[str, float]:
        return {
            period: statistics.median(watched / ((a + c) / 2) for a, watched, c in rounds)
            for period, rounds in rows.items()
        }

    launches, rows = measured(1 << 26, {10: 6, 5: 3, 1: 3})  # 256 MiB: the GPU is the slower of the two
    small_launches, small_rows = measured(1 << 12, {10: 6})  # 16 KiB: the host is
    torch.cuda.empty_cache()  # else the step below is served from what the loops left
    call_us = None
    if b.nvml is not None and b.uuid is not None:
        times = []
        for _ in range(200):
            start = time.perf_counter()
            b.nvml.memory(b.uuid)
            times.append((time.perf_counter() - start) * 1e6)
        call_us = statistics.median(times)
    return {
        "launches": launches,
        "samples_s": rows,
        "slowdown_ratio": slowdown(rows),
        "host_bound": {"launches": small_launches, "samples_s": small_rows, "slowdown_ratio": slowdown(small_rows)},
        "nvml_call_us": call_us,
        "steps": [_step_seen(b, torch, period) for period in (10, 10, 10, 5, 1)],
    }


def _step_seen(b: Bench, torch: Any, period_ms: float) -> dict[str, Any]:
    """Allocate 100 MiB during a watch: how long after it the first sample shows it."""
    with watch(period_ms) as seen:
        time.sleep(0.1)
        block = torch.cuda.caching_allocator_alloc(100 * MIB)
        done_ns = time.monotonic_ns() - seen._started_ns
        time.sleep(0.1)
    torch.cuda.caching_allocator_delete(block)
    torch.cuda.empty_cache()
    samples = seen.timelines[0].samples
    first = samples[0].used_bytes if samples else 0
    late = next((s.t_ns - done_ns for s in samples if s.used_bytes - first >= 90 * MIB), None)
    return {"period_ms": period_ms, "seen_after_ms": None if late is None else late / 1e6}


EXPERIMENTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "E1": [("e1", {"frame": frame}) for frame in FRAMES],
    "E2": [("e2", {"first_noop": flag}) for flag in (False, True)],
    "E3": [("e3", {})],
    "E4": [("e4", {})],
    "E5": [("e5", {"grid": grid}) for grid in (1, 10_000)],
    "E6": [("e6", {})],
    "E7": [("e7", {"factor": factor}) for factor in (0.5, 0.98, 1.05)],
    "E8": [("e8", {})],
    "E9": [("e9", {"size_mib": size}) for size in (1, 64, 256, 1024)],
    "E10": [("e10", {"size_mib": size}) for size in (8, 512, 2048)],
    "E11": [("e11", {})],
    "E12": [("e12", {})],
    "E13": [("e13", {})],
    "E14": [("e14", {})],
}
NEEDS_TORCH = ("E12", "E13", "E14")
FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    f.__name__: f for f in (e1, e2, e3, e4, e5, e6, e7, e8, e8_other, e9, e10, e11, e12, e13, e14)
}


def child(name: str, arguments: dict[str, Any], fake: bool) -> dict[str, Any]:
    """Run one experiment in a fresh process; what went wrong is part of the result."""
    command = [sys.executable, __file__, "--child", name, json.dumps(arguments), *(["--fake"] if fake else [])]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {**arguments, "error": f"no answer within {CHILD_LIMIT_S} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {**arguments, "error": f"exit {done.returncode}: {done.stderr.strip()[-600:]}"}
    return {**json.loads(lines[-1]), "wall_s": time.monotonic() - started}


def device_facts(b: Bench) -> dict[str, Any]:
    facts = {"name": b.gpu.name, "sms": b.gpu.sms, "threads_per_sm": b.gpu.threads_per_sm, "arch": b.arch}
    return facts | {
        "cuda": b.driver.version(),
        "driver": b.nvml.driver_version() if b.nvml else None,
        "nvml": b.nvml is not None,
    }


def summarise(samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The goals' figures, None where an experiment did not run."""
    rows = [row for row in samples.get("E1", []) if row.get("predicted_mib")]
    errors = [row["error_ratio"] for row in rows if "error" not in row]
    steps = [s for e in ("E3", "E4") for row in samples.get(e, []) for s in row.get("steps", []) if s["predicted_mib"]]
    errors += [abs(s["mib"] - s["predicted_mib"]) / abs(s["predicted_mib"]) for s in steps if s["predicted_mib"] > 0]
    watched = next((row for row in samples.get("E14", []) if "error" not in row), {})
    apart = [abs(row["mib"] - row["nvml_mib"]) for row in rows if row.get("nvml_mib") is not None]
    failed = {e: row["error"] for e, found in samples.items() for row in found if "error" in row}
    seen = [s["seen_after_ms"] for s in watched.get("steps", []) if s["period_ms"] == 10]
    return {
        "worst_prediction_error_ratio": max(errors) if rows and len(errors) >= len(rows) else None,
        "known_frame_points": len(errors),
        "sampler_slowdown_ratio": watched.get("slowdown_ratio", {}).get("10"),
        "step_seen_after_ms": None if not seen or None in seen else max(seen),
        "nvml_call_us": watched.get("nvml_call_us"),
        "nvml_differs_from_memgetinfo_mib": max(apart) if apart else None,
        "tma_rewrite_bit_equal": _all(samples, "bit_equal"),
        "tma_rewrite_same_code": _all(samples, "same_code"),
        "failed": failed,
    }


def _all(samples: dict[str, list[dict[str, Any]]], name: str) -> bool | None:
    found = [kernel[name] for row in samples.get("E12", []) for kernel in row.get("kernels", [])]
    return all(found) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(RESULTS / "memory_h100.json"))
    parser.add_argument("--only", help="a comma-separated choice, e.g. E1,E14")
    parser.add_argument("--fake", action="store_true", help="against the model of a GPU in the tests; writes nothing")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, values = arguments.child
        print(json.dumps(FUNCTIONS[name](Bench(arguments.fake), **json.loads(values))))
        return
    chosen = arguments.only.split(",") if arguments.only else list(EXPERIMENTS)
    samples: dict[str, list[dict[str, Any]]] = {}
    for experiment in chosen:
        if arguments.fake and experiment in NEEDS_TORCH:
            continue
        samples[experiment] = [child(name, values, arguments.fake) for name, values in EXPERIMENTS[experiment]]
        for row in samples[experiment]:
            print(experiment, json.dumps(row), flush=True)
    summary = summarise(samples)
    document = {
        "format": 1,
        "environment": environment("torch", "triton", "nvidia-ml-py")
        | {"device": device_facts(Bench(arguments.fake)), "ptxas": PTXAS},
        "goals": GOALS,
        "summary": summary,
        "samples": samples,
    }
    if not arguments.fake:
        write_json(Path(arguments.out), document)
        print(f"wrote {arguments.out}")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
