"""Kernels of a few lines of PTX that run on the GPU here: k(x, y), where each thread stores one element of y."""

from __future__ import annotations

import pytest

from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import find_toolchain

# %rd4 is the address of the thread's element of x, and %rd5 that of its element of y, where %f2 goes.
_PTX = """.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
.reg .b64 %rd<6>;
.reg .b32 %r<6>;
.reg .f32 %f<6>;
.reg .pred %p<3>;
ld.param.u64 %rd1, [k_param_0];
ld.param.u64 %rd2, [k_param_1];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mad.lo.u32 %r1, %r2, %r3, %r1;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
{body}
st.global.f32 [%rd5], %f2;
ret;
}}
"""


def _driver() -> Driver:
    driver = Driver()
    driver.init()
    return driver


def _has_gpu() -> bool:
    try:
        return _driver().device_count() > 0
    except DeviceError:
        return False


NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not _has_gpu(), reason="requires an NVIDIA GPU")]


def cubin(body: str, *options: str) -> bytes:
    """The kernel with this body for the GPU here, assembled with these options."""
    driver = _driver()
    target = f"--gpu-name=sm_{driver.arch(driver.device(0))}"
    return find_toolchain().assemble_or_raise(Ptx(_PTX.format(body=body)), (target, *options)).cubin.data


def launch(blocks: int, threads: int) -> Launch:
    size = 4 * threads * blocks
    parameters = tuple(Pointer(str(number), number, dtype="float32") for number in range(2))
    buffers = (Buffer(size, "float32"), Buffer(size, "float32"))
    return Launch("k", (blocks, 1, 1), (threads, 1, 1), parameters, buffers)
