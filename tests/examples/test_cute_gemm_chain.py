"""The chain of GEMMs: how it is planned, what is refused, its machine code for sm_90a; on a GPU, its results."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import product
from typing import Any

import pytest
from repository import ROOT

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")
pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi: `make test-cute` installs it")

sys.path.append(str(ROOT / "examples"))
import cute_gemm_chain as example  # noqa: E402

import tritonhook  # noqa: E402

SHAPES = ((64, 64, 64), (128, 64, 64), (64, 128, 128), (128, 128, 128), (256, 64, 64), (256, 128, 128))  # M, N, K

# --- host ---


@pytest.mark.parametrize("gemms", [1, 2, 3])
def test_every_size_has_a_plan_that_fits_the_sm(gemms: int) -> None:
    for depth, width in product(range(8, 257, 8), repeat=2):
        plan = example.plan((depth, *[width] * (gemms - 1)), width)
        assert plan.b_slots >= 4
        assert plan.ctas_per_sm * (plan.smem_bytes + 1024) <= 228 * 1024
        assert plan.tile_n - 64 < width <= plan.tile_n
        assert len(plan.chunks) == math.ceil(depth / 64) + (gemms - 1) * math.ceil(width / 64)


def matrices(*sizes: int, batch: int = 2, m: int = 16) -> list[Any]:
    rows = (m, *sizes)
    return [torch.zeros(batch, k, n, dtype=torch.bfloat16) for k, n in zip(rows, sizes, strict=False)]


def test_tensors_that_are_not_on_a_gpu_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="chain: A is on cpu; the kernel runs on a GPU"):
        example.chain(*matrices(16, 16))


def test_what_the_kernel_can_multiply_is_not_refused() -> None:
    assert example.why_not(matrices(16)[0], matrices(16, 256, 8, 120)[1:]) is None


def test_wider_products_get_a_launch_each() -> None:
    a, *factors = matrices(16, 136, 16)
    assert example.prepare(a, factors).launch is None


def test_shapes_are_known_without_a_gpu() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a, *factors = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((5, 16, 8), (5, 8, 24), (5, 24, 40)))
        y = torch.ops.gemm_chain.chain(a, factors)
    assert (y.shape, y.dtype) == ((5, 16, 40), torch.bfloat16)


# --- machine code ---

COMPILED = [((64, 64, 64), 64)]
if "NIGHTLY" in os.environ:
    COMPILED += [((256, 128, 64), 120), ((200,), 248), ((128, 128, 128), 128), ((40,), 64), ((128,), 128)]
PROGRAM = """
import sys
import cute_gemm_chain as example, tritonhook
with tritonhook.session(sys.argv[1]):
    for depths, width in eval(sys.argv[2]):
        example.compile_plan(example.plan(depths, width))
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a program of its own compiles: the architecture is fixed when the DSL is imported."""
    folder = tmp_path_factory.mktemp("chain")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"CUTE_DSL_ARCH": "sm_90a", "PYTHONPATH": paths}
    command = [sys.executable, "-c", PROGRAM, str(folder), repr(COMPILED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    opened = tritonhook.CaptureFolder.open(folder)
    found = [opened.capture(record) for record in opened.records]
    return {capture.kernel.partition("_kernel")[0]: capture for capture in found}


@pytest.mark.parametrize(("depths", "width"), COMPILED, ids=str)
def test_wgmma_run_together_without_spills(captured: dict[str, Any], depths: tuple[int, ...], width: int) -> None:
    """Serialised wgmma have an ARRIVE each. All GEMMs of a chain but the first have A in registers."""
    from sm120_attn.verify.inspect import read_code
    from tritonhook.cubin.image import Cubin

    plan = example.plan(depths, width)
    capture = captured[plan.name]
    assert capture.arch == "sm_90a"
    code = read_code(capture.cubin)
    opcodes = [instruction.opcode.split(".") for instruction in code.instructions]
    wgmma = [instruction for instruction in code.instructions if instruction.opcode.startswith("HGMMA")]
    assert len(wgmma) == sum(math.ceil(depth / 16) for depth in depths)
    assert sum(opcode[:2] == ["WARPGROUP", "ARRIVE"] for opcode in opcodes) == len(plan.chunks)
    from_registers = [one for one in wgmma if one.operands.split(",")[1].strip().startswith("R")]
    assert len(from_registers) == sum(math.ceil(depth / 16) for depth in depths[1:])
    (resources,) = Cubin.from_bytes(capture.cubin).resources.values()
    assert (resources.stack or 0, resources.local_stores, resources.local_loads) == (0, 0, 0)


# --- results ---

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="requires an H100 or H200"
    ),
]


def gpu(test: Any) -> Any:
    for mark in on_gpu:
        test = mark(test)
    return test


def draw(batch: int, m: int, *sizes: int) -> list[Any]:
    rows = (m, *sizes)
    shapes = zip(rows, sizes, strict=False)
    return [torch.randn(batch, k, n, device="cuda", dtype=torch.bfloat16) for k, n in shapes]


def error(y: Any, tensors: list[Any]) -> float:
    exact = tensors[0].double()
    for factor in tensors[1:]:
        exact = exact @ factor.double()
    return float((y.double() - exact).norm() / exact.norm())


def with_bmm(a: Any, *factors: Any) -> Any:
    for factor in factors:
        a = torch.bmm(a, factor)
    return a


def check(tensors: list[Any]) -> None:
    """As near to float64 as torch.bmm; a wrong element, tile or rounding is far more."""
    y, theirs = example.chain(*tensors), with_bmm(*tensors)
    assert y.shape == theirs.shape
    assert error(y, tensors) <= 1.05 * error(theirs, tensors) + 1e-5
    torch.testing.assert_close(y, theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))


@gpu
@pytest.mark.parametrize("batch", [1, 7, 600])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_of_the_benchmark(shape: tuple[int, int, int], batch: int) -> None:
    m, n, k = shape
    check(draw(batch, m, k, n, n, n))


@gpu
@pytest.mark.parametrize("seed", range(16))
def test_random_shapes(seed: int) -> None:
    import random

    choose = random.Random(seed)
    gemms, widest = choose.choice([(1, 256), (2, 128), (3, 128), (3, 256)])
    sizes = [choose.randrange(8, widest + 1, 8) for _ in range(gemms)]
    check(draw(choose.choice([1, 3, 133, 4096]), choose.randrange(8, 257, 8), choose.randrange(8, 257, 8), *sizes))


@gpu
def test_infinity_stays_in_its_row_and_columns() -> None:
    a, b = draw(2, 72, 40, 24)
    a[1, 3, 5] = math.inf
    c = torch.ones(2, 24, 24, device="cuda", dtype=torch.bfloat16)
    b[1, 5] = b[1, 5].abs() + 1
    y = example.chain(a, b, c)
    assert torch.isinf(y[1, 3]).all() and torch.isfinite(y).sum() == y.numel() - 24


@gpu
def test_in_a_graph_and_under_torch_compile_as_alone() -> None:
    tensors = draw(33, 64, 64, 64, 64, 64)
    alone = example.chain(*tensors)
    compiled = torch.compile(lambda *t: example.chain(*t) + 1, fullgraph=True)(*tensors)
    torch.testing.assert_close(compiled, alone + 1, rtol=0, atol=0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = example.chain(*tensors)
    y.fill_(math.nan)
    graph.replay()
    assert torch.equal(y, alone)


@gpu
def test_other_strides_of_a_known_shape_are_refused() -> None:
    a, b = draw(2, 64, 64, 64)
    example.chain(a, b)
    with pytest.raises(ValueError, match="B is|stride|contiguous"):
        example.chain(a, b.mT)
