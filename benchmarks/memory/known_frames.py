"""Experiments E1 to E11 of pool.py: kernels of known frames, buffers, modules. Each returns JSON values."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from benchmarks.memory.gpu_bench import Bench, assemble_frame, child, grown
from tritonhook.device.cuda_driver import MALLOC_HEAP_SIZE, PRINTF_FIFO_SIZE, STACK_SIZE, CudaError
from tritonhook.memory.prediction import MIB, net_growth

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


def e1(b: Bench, frame: int) -> dict[str, Any]:
    """No-op kernel, then one of the frame: growth against the prediction."""
    b.start()
    _, predicted, load, launch = b.first_launch(frame)
    error = abs(launch["mib"] - predicted) / predicted if predicted else None
    return {"frame": frame, "predicted_mib": predicted, "load": load, **launch, "error_ratio": error}


def e2(b: Bench, first_noop: bool) -> dict[str, Any]:
    """Find out whether there is a pool at the start: the first launch has a frame of 64 bytes."""
    b.context()
    start = b.look()
    if first_noop:
        b.noop()
    noop = grown(start, b.look())
    _, _, load, launch = b.first_launch(64)
    found = {"first_noop": first_noop, "limit_at_start": start["limit"], "noop": noop}
    return found | {"load": load, "frame_64": launch}


def e3(b: Bench) -> dict[str, Any]:
    """High-water mark: 8,192, then 4,096, then 16,384."""
    b.start()
    steps = []
    for frame in (8192, 4096, 16384):
        *_, launch = b.first_launch(frame)
        steps.append({"frame": frame, "predicted_mib": net_growth(frame, b.gpu, launch["limit"][0]) / MIB, **launch})
    return {"steps": steps}


def e4(b: Bench) -> dict[str, Any]:
    """The limit set by hand, up and down, without a kernel."""
    b.start()
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
    b.start()
    function, predicted, load, launch = b.first_launch(8192, grid)
    launched = b.look()
    b.launch_frame(function, grid)
    found = {"grid": grid, "predicted_mib": predicted, "load": load, "launch": launch}
    return found | {"second_launch": grown(launched, b.look())}


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
    b.start()
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
    b.start()
    start = b.look()
    other = child("e8_other", {}, b.fake)
    during = other.get("nvml_used_at_end")
    _, predicted, _, launch = b.first_launch(8192)
    listed = None
    if b.nvml is not None and b.uuid is not None:
        listed = b.nvml.processes(b.uuid).get(os.getpid())
    return {
        "own": launch,
        "predicted_mib": predicted,
        "other_process": other,
        "nvml_while_both_mib": None if during is None or start["nvml_used"] is None
        else (during - start["nvml_used"]) / MIB,
        "own_line_in_process_list_mib": None if listed is None else listed / MIB,
    }  # fmt: skip


def e8_other(b: Bench) -> dict[str, Any]:
    b.start()
    _, predicted, _, launch = b.first_launch(4096)
    return {"predicted_mib": predicted, **launch, "nvml_used_at_end": b.look()["nvml_used"]}


def e9(b: Bench, size_mib: int) -> dict[str, Any]:
    """printf's buffer: when it is reserved, and that its limit is fixed afterwards."""
    return _buffer(b, PRINTF_FIFO_SIZE, PRINTER, "printer", size_mib)


def e10(b: Bench, size_mib: int) -> dict[str, Any]:
    """The device heap, likewise."""
    return _buffer(b, MALLOC_HEAP_SIZE, ALLOCATOR, "allocator", size_mib)


def _buffer(b: Bench, limit: int, text: str, name: str, size_mib: int) -> dict[str, Any]:
    b.start()
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
    b.start()
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
