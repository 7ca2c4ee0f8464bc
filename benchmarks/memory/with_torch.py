"""Experiments E12 and E14 of pool.py, with torch and Triton. Each returns JSON values."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory.gpu_bench import Bench
from tritonhook.memory.prediction import MIB
from tritonhook.memwatch import watch


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
