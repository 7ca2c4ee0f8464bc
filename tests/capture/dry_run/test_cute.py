"""`tritonhook run --arch` of a CuTe DSL program: compiled for the architecture, and not launched."""

from __future__ import annotations

import struct

import pytest
from dry_runs import run_dry
from repository import ROOT, SUPPORT

from tritonhook.capture.launches.record import Descriptor, Packed, Pointer
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.image import Cubin
from tritonhook.emulate.run import Run, run_ptx
from tritonhook.verify.cpu import run_cubin

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


@pytest.mark.parametrize("arch", [pytest.param("sm_90a", marks=pytest.mark.nightly), "sm_120a"])
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
    assert sorted(buffer.size for buffer in twice.buffers) == [4096, 8192]
    assert twice.parameters[1].data == struct.pack("<QIIQ", 0, 0, 0, 2).hex(), "nothing that is not read"
    assert (once.grid, [buffer.size for buffer in once.buffers]) == ((2, 1, 1), [8192]), "tensors of one memory"
    values = np.arange(1024, dtype=np.float32)
    source = next(number for number, buffer in enumerate(twice.buffers) if buffer.size == 4096)
    contents = [values.tobytes() if number == source else bytes(8192) for number in range(2)]
    stored = run_ptx(capture.ptx, Run(twice, range(8)), contents).contents[1 - source]
    wanted = np.where(values < 1000, values * 2.5, 0)
    assert (np.frombuffer(stored, np.float32)[::2] == wanted).all()
    cubin = Cubin.from_bytes(capture.cubin)
    assert run_cubin(cubin, capture.kernel, Run(twice, range(8)), contents).contents[1 - source] == stored


def test_tensors_that_overlap_share_a_buffer_and_pointers_are_found_by_their_address(tmp_path, monkeypatch) -> None:
    """`b` has a stride that is not 1, as when it was compiled: the DSL would not write that of another."""
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    run_dry(tmp_path, LAUNCHES + POINTER.format("memory.data_ptr() + 64") + "\ncompiled(tensor(memory[:1024]), "
            "tensor(memory[8::2]), 1000, 2.5)\n")  # fmt: skip
    _, launches = recorded_of_all(tmp_path)
    offsets = sorted(sorted(at for one in launch.parameters for at in places(one)) for launch in launches)
    assert offsets == [[0, 32], [64, 4096]]
    assert [[buffer.size for buffer in launch.buffers] for launch in launches] == [[8192]] * 2


def test_a_pointer_to_memory_that_no_tensor_has_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    script = "import ctypes\nroom = (ctypes.c_char * 65536)()\n" + POINTER.format("ctypes.addressof(room) & ~63")
    run_dry(tmp_path, LAUNCHES + script)
    captures, launches = recorded_of_all(tmp_path)
    assert not launches
    assert any("argument 0 points to memory of no known tensor" in note for note in captures.notes), captures.notes


POINTER = """
at = make_ptr(cutlass.Float32, {}, cute.AddressSpace.gmem, assumed_align=16)
@cute.jit
def of_pointer(a: cute.Pointer, b: cute.Tensor):
    scaled(cute.make_tensor(a, cute.make_layout(256)), b, 256, 2.5)
of_pointer(at, tensor(memory[1024:]))
"""


def recorded_of_all(tmp_path):
    found = CaptureFolder.open(tmp_path / "out")
    return found, [one.launch for record in found.records for one in found.launches(record)]


def places(parameter):
    """How far behind the begin of its buffer each pointer of an argument lies."""
    if isinstance(parameter, Packed):
        return [offset for _, _, offset in parameter.pointers]
    return [parameter.offset] if isinstance(parameter, (Pointer, Descriptor)) else []


FFI = f"""
import sys
sys.path.insert(0, {str(ROOT / "examples")!r})
import torch
import cute_gemm_chain as example
a, b, c = (torch.zeros(4, size, 64, device="cuda", dtype=torch.bfloat16) for size in (128, 64, 64))
for _ in range(2):
    example.chain(a, b, c)
"""


def test_launches_through_tvm_ffi_are_recorded_with_their_descriptors(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    run_dry(tmp_path, FFI)
    found, (launch,) = recorded_of_all(tmp_path)
    assert [one.count for record in found.records for one in found.launches(record)] == [2]
    a, b, c, y = (one for one in launch.parameters if isinstance(one, Descriptor))
    assert (a.tiling.shape, a.tiling.strides, a.tiling.box) == ((64, 128, 4), (128, 16384), (64, 64, 1))
    assert [launch.buffers[one.buffer].size for one in (a, b, c, y)] == [65536, 32768, 32768, 65536]
    assert launch.grid == (8, 1, 1), "2 tiles of rows in 4 matrices"


BY_ADDRESS = """
import ctypes
compiled.export_to_c("{folder}", "scaled", "scaled")
loaded = cute.runtime.load_module("{folder}/scaled.o")
loaded.scaled(a, b, 1000, 2.5)
executor = compiled.to(None)
arguments, kept = executor.generate_execution_args(a, b, 1000, 2.5)
error = ctypes.c_int32(-1)
executor.capi_func((ctypes.c_void_p * 5)(*arguments, ctypes.addressof(error)))
assert error.value == 0
"""


def test_host_code_that_the_program_enters_by_itself_is_seen(tmp_path, monkeypatch) -> None:
    """An exported object, and the entry by its address, as sm120_attn calls it."""
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    run_dry(tmp_path, LAUNCHES + BY_ADDRESS.format(folder=tmp_path))
    found, (launch,) = recorded_of_all(tmp_path)
    assert [one.count for record in found.records for one in found.launches(record)] == [2]
    assert (launch.grid, launch.cluster, len(launch.buffers)) == ((8, 1, 1), (2, 1, 1), 2)


EMULATED = (
    FFI
    + """
torch.manual_seed(0)
a, b, c = (torch.randn(2, rows, 64, device="cuda").bfloat16() for rows in (128, 64, 64))
for batch in (1, 2):
    y = example.chain(a[:batch], b[:batch], c[:batch])
    wanted = a[:batch].double() @ b[:batch].double() @ c[:batch].double()
    assert (y.double() - wanted).norm() < 5e-3 * wanted.norm()
print("all right")
"""
)


def test_launches_are_executed_on_the_cpu(tmp_path, monkeypatch) -> None:
    """TMA, mbarriers and wgmma of warps that come one by one; its machine code stores what its PTX stores."""
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):  # the DSL's cache on disk, which has no PTX, is left out
        assert "all right" in run_dry(tmp_path, EMULATED, "--emulate").stdout
    found, launches = recorded_of_all(tmp_path)
    (launch, *_), draw = launches, np.random.default_rng(0)
    contents = [draw.integers(0x3E00, 0x4000, one.size // 2, np.uint16).tobytes() for one in launch.buffers]
    capture = found.capture(found.records[0])
    stored = run_ptx(capture.ptx, Run(launch, (0, 7)), contents).contents
    assert stored[-1] != contents[-1], "what is computed is stored"
    assert run_cubin(Cubin.from_bytes(capture.cubin), capture.kernel, Run(launch, (0, 7)), contents).contents == stored


CLOCK = """
import cutlass, cutlass.cute as cute, torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def timed_kernel(a: cute.Tensor):
    a[0] = cute.arch.globaltimer()

@cute.jit
def timed(a: cute.Tensor):
    timed_kernel(a).launch(grid=[1, 1, 1], block=[1, 1, 1])

timed(from_dlpack(torch.zeros(1, dtype=torch.int64, device="cuda")))
"""


def test_what_is_not_understood_ends_the_program(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    done = run_dry(tmp_path, CLOCK, "--emulate", status=1)
    assert "cannot be emulated: line" in done.stderr and "globaltimer" in done.stderr
    assert "cudaErrorLaunchFailure" in done.stdout + done.stderr


REFUSED = """
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr
import cutlass, sys
@cute.kernel
def nothing():
    pass
for grid, block, smem, cluster in (
    ((1, 65_535, 1), (1024, 1, 1), 227 * 1024, (1, 1, 1)),
    ((1, 65_536, 1), (32, 1, 1), 0, (1, 1, 1)),
    ((1, 1, 1), (2048, 1, 1), 0, (1, 1, 1)),
    ((1, 1, 1), (32, 1, 1), 228 * 1024, (1, 1, 1)),
    ((32, 1, 1), (32, 1, 1), 0, (32, 1, 1)),
    ((3, 1, 1), (32, 1, 1), 0, (2, 1, 1)),
):
    @cute.jit
    def run():
        nothing().launch(grid=grid, block=block, smem=smem, cluster=cluster)
    try:
        run()
        print("launched")
    except Exception as error:
        print("refused")
"""


def test_a_launch_that_the_gpu_refuses_fails(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "cache"))
    printed = run_dry(tmp_path, REFUSED).stdout.splitlines()  # the DSL adds lines of its own
    assert [line for line in printed if line in ("launched", "refused")] == ["launched", *["refused"] * 5]
    found = "\n".join(CaptureFolder.open(tmp_path / "out").notes)
    for what in ("grid y of 65,536", "block x of 2,048", "bytes of shared memory", "cluster of 32", "not a multiple"):
        assert what in found
