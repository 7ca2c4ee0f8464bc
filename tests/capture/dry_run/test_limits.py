"""What a GPU refuses to launch: the reasons, and what a program of a dry run gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dry_runs import run_dry
from ended import python_ended

from tritonhook.capture.launches.limits import why_no_grid, why_no_tensor_map, why_not
from tritonhook.capture.launches.record import Descriptor, Launch, Tiling
from tritonhook.capture.store import CaptureFolder

SCRIPT = """
import triton, triton.language as tl
from triton.runtime.errors import OutOfResources
@triton.jit
def fill(y, B: tl.constexpr):
    tl.store(y + tl.program_id(0) + tl.arange(0, B), 1.0)
@triton.jit
def product(x, y, B: tl.constexpr):
    row, column = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, 1024, B):
        total += tl.dot(tl.load(x + row * 1024 + k + column), tl.load(x + (k + row) * B + column))
    tl.store(y + row * B + column, total)
class Data:
    def __init__(self, dtype):
        self.dtype = dtype
    def data_ptr(self):
        return 0
x, y = Data("fp16"), Data("fp32")
for grid in ((1, 65_535), (2**31 - 1,), (1, 65_536), (1, 1, 65_536), (2**31,)):
    try:
        fill[grid](y, 16)
        print("launched")
    except RuntimeError as error:
        print(error)
for stages in (2, 3):
    try:
        product[(1,)](x, y, 128, num_stages=stages, num_warps=8)
        print("launched")
    except OutOfResources as error:
        print(error.name, error.limit)
"""


@pytest.mark.parametrize(
    ("grid", "ctas", "why"),
    [
        ((2**31 - 1, 65_535, 65_535), 1, None),
        ((2**31, 1, 1), 1, "grid x of 2,147,483,648: a GPU allows 2,147,483,647"),
        ((2**31, 1, 1), 2, "grid x of 2,147,483,648: a GPU allows 2,147,483,647"),
        ((1, 65_536, 1), 1, "grid y of 65,536: a GPU allows 65,535"),
        ((1, 1, 70_000), 1, "grid z of 70,000: a GPU allows 65,535"),
        ((1, 1, 1), 16, None),
        ((1, 1, 1), 32, "a cluster of 32 blocks: a GPU allows 16"),
    ],
)
def test_reasons(grid: tuple[int, int, int], ctas: int, why: str | None) -> None:
    assert why_no_grid(grid, ctas) == why


@pytest.mark.parametrize(("arch", "is_large"), [("sm_90a", True), ("sm_120a", False)])
def test_a_program_gets_the_errors_of_the_gpu(tmp_path: Path, triton_cache: Path, arch: str, is_large: bool) -> None:
    pytest.importorskip("triton", minversion="3.6")
    refused = "Triton Error [CUDA]: invalid argument (fill: grid {} of {}: a GPU allows {})".format
    grids = [refused("y", "65,536", "65,535"), refused("z", "65,536", "65,535")]
    grids.append(refused("x", "2,147,483,648", "2,147,483,647"))
    printed = run_dry(tmp_path, SCRIPT, arch=arch).stdout.splitlines()
    assert printed[:5] == ["launched", "launched", *grids]
    assert printed[5:] == ["launched", "launched" if is_large else "shared memory 101376"]


def test_launches_go_on_where_the_user_asks_for_it(tmp_path: Path, triton_cache: Path) -> None:
    pytest.importorskip("triton", minversion="3.6")
    done = run_dry(tmp_path, SCRIPT, "--launch-anyway", arch="sm_120a")
    assert done.stdout == "launched\n" * 7
    notes = "\n".join(CaptureFolder.open(tmp_path / "out").notes)
    assert "grid y of 65,536" in notes
    assert "of shared memory, the GPU has 101,376" in notes


MAPS = """
import triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.jit
def load(d, y, B: tl.constexpr):
    tl.store(y + tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :], d.load([0, 0]))
class Float32(str):
    itemsize = 4
class Data:
    dtype = Float32("float32")
    def __init__(self, address=4096):
        self.address = address
    def data_ptr(self):
        return self.address
for field, value in (("padding", "zero"), ("base", Data(4100)), ("strides", [255, 1])):
    made = TensorDescriptor(Data(), [256, 256], [256, 1], [32, 32])
    setattr(made, field, value)
    try:
        load[(1,)](made, Data(), B=32)
        print("launched")
    except RuntimeError as error:
        print(str(error).partition(" (")[0])
"""


def test_a_tensor_map_that_the_driver_does_not_make(tmp_path: Path, triton_cache: Path) -> None:
    pytest.importorskip("triton", minversion="3.6")
    refused = "Triton Error [CUDA]: Failed to create tensor map descriptor: invalid argument"
    assert run_dry(tmp_path, MAPS).stdout.splitlines() == ["launched", refused, refused]


GOOD = Tiling(6, (256, 256), (512,), (64, 64), (1, 1), 0, 3, 2)


@pytest.mark.parametrize(
    ("change", "address", "is_made"),
    [  # what driver 580 answered on an H100
        *(({}, address, address % 16 == 0) for address in (0, 1, 8, 16)),
        *(({"strides": (stride,)}, 0, stride in (496, 16, 0)) for stride in (500, 504, 496, 16, 0)),
        ({"strides": (1 << 40,)}, 0, False),
        ({"strides": ((1 << 40) - 16,)}, 0, True),
        *(({"box": (64, rows)}, 0, rows == 256) for rows in (256, 257, 0)),
        ({"box": (128, 64)}, 0, False),
        *(({"box": (width, 64), "swizzle": 0}, 0, width == 128) for width in (128, 4, 12)),
        *(({"box": (width, 64), "swizzle": 1}, 0, width == 16) for width in (16, 32)),
        ({"box": (64, 64), "swizzle": 2}, 0, False),
        *(({"shape": (256, size)}, 0, size == 1 << 32) for size in (0, 1 << 32, (1 << 32) + 1)),
        *(({"steps": (1, step)}, 0, step == 8) for step in (0, 8, 9)),
    ],
)
def test_which_tensor_maps_are_made(change: dict[str, Any], address: int, is_made: bool) -> None:
    assert (why_no_tensor_map(address, replace(GOOD, **change)) is None) == is_made


def test_a_session_compiles_for_an_architecture_and_launches_nothing(tmp_path: Path, triton_cache: Path) -> None:
    pytest.importorskip("triton", minversion="3.6")
    head = SCRIPT.partition("x, y = ")[0]
    use = (
        "import tritonhook\nwith tritonhook.session('here', arch='sm_90a') as session:\n"
        "    fill[(3,)](Data('fp32'), 16)\nprint([kernel.capture.arch for kernel in session.kernels])\n"
        "from triton.runtime import driver\nprint(driver._active)\n"
    )
    (tmp_path / "script.py").write_text(head + use)
    done = python_ended("script.py", folder=tmp_path, without=["TRITONHOOK"])
    assert done.stdout.splitlines()[0] == "['sm_90a']"


@pytest.mark.parametrize(
    ("threads", "registers", "why"),
    [(1024, 64, None), (1024, 65, "65 registers in each of 1,024 threads"), (256, 255, None), (288, 255, "255 reg")],
)
def test_registers_of_a_block_have_a_limit(threads: int, registers: int, why: str | None) -> None:
    found = why_not(Launch("k", (1, 1, 1), (threads, 1, 1), ()), "sm_90a", 0, registers)
    assert (found is None) if why is None else (found or "").startswith(why)


@pytest.mark.parametrize(
    ("offset", "stride", "fits"), [(0, 512, True), (32, 512, True), (8, 512, False), (0, 520, False)]
)
def test_the_address_and_strides_of_a_tensor_map_are_multiples_of_16(offset: int, stride: int, fits: bool) -> None:
    tiling = Tiling(9, (256, 256), (stride,), (64, 64), (1, 1), 0, 3, 2, by_host=True)
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (Descriptor("x", 0, offset, tiling),))
    why = why_not(launch, "sm_90a")
    assert why is None if fits else "multiples of 16" in (why or "")
