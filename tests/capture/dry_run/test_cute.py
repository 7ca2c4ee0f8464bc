"""`tritonhook run --arch` of a CuTe DSL program: compiled for the architecture, and not launched."""

from __future__ import annotations

import struct

import pytest
from dry_runs import run_dry
from repository import SUPPORT

from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.run import Run, run_cubin, run_ptx

pytest.importorskip("cutlass")
pytest.importorskip("torch")
np = pytest.importorskip("numpy")

SCRIPT = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
import cute_kernels as kernels
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
a, b = (from_dlpack(torch.zeros(128, device="cuda")) for _ in range(2))
compiled = cute.compile(kernels.add, a, b)
compiled(a, b)
kernels.both(a, b)
print("went on")
"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_120a"])
def test_kernels_are_compiled_for_the_architecture_and_not_launched(arch, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    assert run_dry(tmp_path, SCRIPT, arch=arch).stdout == "went on\n"
    folder = CaptureFolder.open(tmp_path / "out")
    captures = [folder.capture(record) for record in folder.records]
    assert {(capture.arch, capture.dry_run, capture.front_end) for capture in captures} == {(arch, True, "cute")}
    assert len(captures) == 3
    launched = [one.launch for record in folder.records for one in folder.launches(record)]
    assert [(one.grid, one.block, len(one.buffers)) for one in launched] == [((1, 1, 1), (128, 1, 1), 2)] * 3
    assert all("ld.global" in capture.ptx.text for capture in captures), "tensors are the GPU's"


LAUNCHES = """
import cutlass, cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack, make_ptr

@cute.kernel
def scaled_kernel(a: cute.Tensor, b: cute.Tensor, n: cutlass.Int32, by: cutlass.Float32):
    (thread, _, _), (block, _, _) = cute.arch.thread_idx(), cute.arch.block_idx()
    if block * 128 + thread < n:
        b[block * 128 + thread] = a[block * 128 + thread] * by

@cute.jit
def scaled(a: cute.Tensor, b: cute.Tensor, n: cutlass.Int32, by: cutlass.Float32):
    scaled_kernel(a, b, n, by).launch(grid=[(n + 127) // 128, 1, 1], block=[128, 1, 1], cluster=[2, 1, 1])

def tensor(x):
    return from_dlpack(x).mark_layout_dynamic()

memory = torch.zeros(2048, device="cuda")
a, b = tensor(torch.zeros(1024, device="cuda")), tensor(memory[::2])
compiled = cute.compile(scaled, a, b, 1000, 2.5)
"""


def recorded(tmp_path):
    found = CaptureFolder.open(tmp_path / "out")
    (record,) = found.records
    return found.capture(record), [one.launch for one in found.launches(record)]


def test_a_launch_is_recorded_as_the_host_code_makes_it(tmp_path, monkeypatch) -> None:
    """Shapes, strides and numbers go into arguments of several parts. The PTX is executed with them."""
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    run_dry(tmp_path, LAUNCHES + "compiled(a, b, 1000, 2.5)\ncompiled(tensor(memory[:1024]), b, 200, 3.0)\n")
    capture, launches = recorded(tmp_path)
    twice, once = sorted(launches, key=lambda launch: -launch.grid[0])
    assert (twice.grid, twice.block, twice.cluster) == ((8, 1, 1), (128, 1, 1), (2, 1, 1))
    assert sorted(buffer.size for buffer in twice.buffers) == [4096, 8188]
    assert twice.parameters[1].data == struct.pack("<QIIQ", 0, 1024, 0, 2).hex(), "nothing between the parts"
    assert (once.grid, [buffer.size for buffer in once.buffers]) == ((2, 1, 1), [8188]), "tensors of one memory"
    values = np.arange(1024, dtype=np.float32)
    source = next(number for number, buffer in enumerate(twice.buffers) if buffer.size == 4096)
    contents = [values.tobytes() if number == source else bytes(8188) for number in range(2)]
    stored = run_ptx(capture.ptx, Run(twice, range(8)), contents).contents[1 - source]
    wanted = np.where(values < 1000, values * 2.5, 0)
    assert (np.frombuffer(stored, np.float32)[::2] == wanted).all()
    cubin = Cubin.from_bytes(capture.cubin)
    assert run_cubin(cubin, capture.kernel, Run(twice, range(8)), contents).contents[1 - source] == stored


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("compiled(tensor(memory[:1024]), tensor(memory[8:1032]), 1000, 2.5)", "two of its tensors overlap"),
        (
         "at = make_ptr(cutlass.Float32, 4096, cute.AddressSpace.gmem, assumed_align=16)\n"
         "@cute.jit\n"
         "def of_pointer(a: cute.Pointer, b: cute.Tensor):\n"
         "    scaled(cute.make_tensor(a, cute.make_layout(128)), b, 128, 2.5)\n"
         "of_pointer(at, b)", "argument 0 is a _Pointer, neither a tensor nor a number"),
    ],
)  # fmt: skip
def test_a_launch_that_cannot_be_recorded_says_why(call, why, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    run_dry(tmp_path, LAUNCHES + call)
    folder = CaptureFolder.open(tmp_path / "out")
    assert not [one for record in folder.records for one in folder.launches(record)]
    assert any("was not recorded" in note and why in note for note in folder.notes), folder.notes
