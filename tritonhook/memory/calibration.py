"""Calibration: by how many bytes this GPU's local-memory pool grows per byte of stack, from kernels of known frame.

Measure in a process of its own: `measure_here` makes a context, whose pool never shrinks by itself. The result is kept
for `prediction.predict`.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritonhook._util.files import write_whole
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError
from tritonhook.memory.prediction import Calibration
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import Assembled, AssembleError, assemble
from tritonhook.ptxas.tool import Tool

FRAMES = (2048, 4096, 8192, 16384)  # bytes per thread; at 2,048 threads and 132 SMs the last takes 4 GiB
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
        raise DeviceError(f"ptxas {ptxas.version} gave the {frame:,}-byte frame {stack} bytes; use another --ptxas")
    return made


@dataclass(frozen=True, slots=True)
class Point:
    """One launch: the kernel's frame in bytes per thread, the stack limit before and after, and the pool's growth."""

    frame: int
    limit_before: int
    limit_after: int
    growth_bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredPool:
    """The measurement on one GPU. threads: the most that it can hold, from the driver."""

    gpu: str
    driver: str
    threads: int
    points: tuple[Point, ...]

    @property
    def calibration(self) -> Calibration:
        """The slope of growth over stack, fitted through the origin, and how far the worst point lies off it."""
        steps = [(p.limit_after - p.limit_before, p.growth_bytes) for p in self.points]
        squares = sum(x * x for x, _ in steps)
        if squares == 0:
            raise DeviceError(f"{self.gpu}: no launch changed the stack limit; the driver may hide it")
        slope = sum(x * y for x, y in steps) / squares
        worst = max(abs(y - slope * x) for x, y in steps)
        return Calibration(self.gpu, self.driver, slope, round(worst), len(steps))


def measure_here(driver: Driver, ptxas: Tool, ordinal: int = 0, frames: Sequence[int] = FRAMES) -> MeasuredPool:
    """Make a context on a device and launch the frames, smallest first. Raises DeviceError."""
    driver.init()
    device = driver.device(ordinal)
    arch = driver.arch(device)
    images = [assemble_frame(ptxas, arch, frame).cubin.data for frame in frames]
    driver.create_context(device)
    points = []
    driver.launch(driver.function(driver.load(images[0]), "noop"))
    driver.synchronize()
    for frame, image in zip(frames, images, strict=True):
        function = driver.function(driver.load(image), "frame")
        limit, free = driver.limit(), driver.memory()[0]
        driver.launch(function, frame_arguments())
        driver.synchronize()
        points.append(Point(frame, limit, driver.limit(), free - driver.memory()[0]))
    threads = driver.multiprocessors(device) * driver.threads_per_multiprocessor(device)
    return MeasuredPool(driver.name(device), driver.version(), threads, tuple(points))


def frame_arguments() -> tuple[Any, ...]:
    return ctypes.c_uint64(0), ctypes.c_uint32(5)


# --- keeping it ----------------------------------------------------------------------------------


def calibration_file() -> Path:
    """$TRITONHOOK_CALIBRATION, else a file in the user's data folder."""
    import platformdirs

    given = os.environ.get("TRITONHOOK_CALIBRATION")
    return Path(given) if given else Path(platformdirs.user_data_dir("tritonhook"), "calibration.json")


def stored() -> dict[str, Calibration]:
    """The calibrations by GPU, as the driver spells its name; none if there is no file. Raises DeviceError if the file
    is damaged."""
    from tritonhook._util.schema import read_json
    from tritonhook.memory.schema import Calibrations

    path = calibration_file()
    try:
        entries = read_json(path.read_bytes(), Calibrations).calibrations
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DeviceError(f"{path}: no calibration can be read ({error}); remove it and calibrate again") from None
    return {entry.gpu: entry for entry in entries}


def store(calibration: Calibration) -> Path:
    """Keep a calibration, in place of an older one of the same GPU. Returns the file. Raises DeviceError."""
    path = calibration_file()
    known = stored() | {calibration.gpu: calibration}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"format": 1, "calibrations": [asdict(c) for c in known.values()]}
        write_whole(path, json.dumps(document, indent=1))
    except OSError as error:
        raise DeviceError(f"{path}: cannot keep the calibration: {error.strerror}") from None
    return path
