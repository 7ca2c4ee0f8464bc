"""A GPU as the experiments of pool.py use it: its driver, NVML, and kernels of known frame."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks.common import REPOSITORY
from tritonhook.device.cuda_driver import Driver
from tritonhook.device.nvml import Nvml
from tritonhook.errors import DeviceError
from tritonhook.memory.prediction import MIB, GpuSpecs, predict, stack_needs
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool, find_ptxas
from tritonhook.ptxas.toolchain import Assembled, AssembleError, assemble

PTXAS = "12.8.93"  # Triton 3.6.0 brings it
CHILD_LIMIT_S = 60


_PTX_VERSION = {120: "8.7", 121: "8.8"}  # the oldest that knows the target; older targets take 8.0

_FRAME = """.version {version}
.target {target}
.address_size 64
.visible .entry frame(.param .u64 frame_param_0, .param .u32 frame_param_1)
{{
 .local .align 16 .b8 depot[{frame}];
 .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
 ld.param.u64 %rd1, [frame_param_0];
 ld.param.u32 %r1, [frame_param_1];
 mov.u32 %r2, %tid.x;
 add.u32 %r3, %r1, %r2;
 rem.u32 %r3, %r3, {words};
 mul.wide.u32 %rd3, %r3, 4;
 mov.u64 %rd2, depot;
 add.s64 %rd4, %rd2, %rd3;
 st.local.u32 [%rd4], %r2;
 mul.lo.u32 %r4, %r1, 7;
 rem.u32 %r4, %r4, {words};
 mul.wide.u32 %rd5, %r4, 4;
 add.s64 %rd6, %rd2, %rd5;
 ld.local.u32 %r5, [%rd6];
 setp.eq.u32 %p1, %r1, 4294967295;
 @%p1 st.global.u32 [%rd1], %r5;
 ret;
}}
.visible .entry noop()
{{
 ret;
}}
"""


def frame_kernel(arch: int, frame: int) -> Ptx:
    """A module with the kernels `frame`, whose stack has exactly `frame` bytes (a multiple of 16), and `noop`.

    `frame` stores nothing unless its second argument is 2**32 - 1.
    """
    target = f"sm_{arch}{'a' if arch >= 90 else ''}"
    return Ptx(_FRAME.format(version=_PTX_VERSION.get(arch, "8.0"), target=target, frame=frame, words=frame // 4))


def assemble_frame(ptxas: Tool, arch: int, frame: int) -> Assembled:
    """Assemble `frame_kernel`. Raises AssembleError if ptxas fails, DeviceError if the kernel has another frame."""
    made = assemble(ptxas, frame_kernel(arch, frame), ())
    if not isinstance(made, Assembled):
        raise AssembleError(made)
    stack = made.cubin.resources["frame"].min_stack
    if stack != frame:
        raise DeviceError(f"ptxas {ptxas.version} gave the {frame:,}-byte frame {stack} bytes")
    return made


def frame_arguments() -> tuple[Any, ...]:
    return ctypes.c_uint64(0), ctypes.c_uint32(5)


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
        sms = self.driver.multiprocessors(self.device)
        threads = self.driver.threads_per_multiprocessor(self.device)
        self.gpu = GpuSpecs(self.driver.name(self.device), sms, threads, self.arch, "the driver")
        self.uuid = None
        try:
            if self.nvml is not None:
                self.uuid = self.nvml.find(self.driver.uuid(self.device))
                self.nvml.memory(self.uuid)
        except DeviceError as error:
            print(f"no NVML: {error}", file=sys.stderr)
            self.nvml = self.uuid = None

    def start(self) -> None:
        """Make the context; its first launch is of a kernel without a stack."""
        self.context()
        self.noop()

    def context(self) -> int:
        return self.driver.create_context(self.device)

    def look(self) -> dict[str, int | None]:
        """Free memory by the context, used memory by NVML, the stack limit."""
        self.driver.synchronize()
        used = None
        if self.nvml is not None and self.uuid is not None:
            used = self.nvml.memory(self.uuid).used
        return {"free": self.driver.memory()[0], "nvml_used": used, "limit": self.driver.stack_limit()}

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

    def first_launch(self, frame: int, grid: int = 1) -> tuple[int, float, dict[str, Any], dict[str, Any]]:
        """Load and launch a kernel of that frame: the function, predicted MiB, what the load and the launch took."""
        start = self.look()
        function, _, predicted = self.frame(frame)
        loaded = self.look()
        self.launch_frame(function, grid)
        return function, predicted / MIB, grown(start, loaded), grown(loaded, self.look())

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


def child(name: str, arguments: dict[str, Any], fake: bool) -> dict[str, Any]:
    """Run one experiment in a fresh process; an error becomes part of the result."""
    command = [sys.executable, "-m", "benchmarks", "pool", "--child", name, json.dumps(arguments), *["--fake"] * fake]
    started = time.monotonic()
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=CHILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {**arguments, "error": f"no answer within {CHILD_LIMIT_S} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {**arguments, "error": f"exit {done.returncode}: {done.stderr.strip()[-600:]}"}
    return {**json.loads(lines[-1]), "wall_s": time.monotonic() - started}
