"""`tritonhook run --arch` of programs that use torch: what they are told, tensors, autograd, autotuning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from dry_runs import run_dry
from ended import python_ended
from repository import SUPPORT

from tritonhook.capture.store import CaptureFolder

pytest.importorskip("torch")
pytest.importorskip("triton", minversion="3.6")

KERNELS = """
import torch, triton, triton.language as tl

@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)

@triton.autotune([triton.Config(dict(BLOCK=block)) for block in (64, 128)], key=["n"])
@triton.jit
def square(x, grad, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, 2 * tl.load(x + at, mask=inside) * tl.load(grad + at, mask=inside), mask=inside)

class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda and x.device == torch.device("cuda", 0)
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        with torch.cuda.device(x.device):
            scale[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), 2.0, BLOCK=64)
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert x.is_cuda and grad.is_cuda and grad.device.type == "cuda"
        out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
        square[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, grad.contiguous(), out, x.numel())
        return out
"""


@pytest.fixture
def go(tmp_path: Path, triton_cache: Path) -> Callable[..., str]:
    """`tritonhook run --arch` of a script, to tmp_path/out; returns what it printed."""

    return lambda script, *options, **how: run_dry(tmp_path, script, *options, **how).stdout


@pytest.mark.usefixtures("cold_start")  # elsewhere torch is loaded before the dry run begins
def test_kernels_forward_and_backward_with_a_linear_layer(go, tmp_path) -> None:
    go(
        KERNELS
        + """
layer = torch.nn.Linear(32, 64).cuda()
x = torch.randn(16, 32, device="cuda", requires_grad=True)
out = Squared.apply(layer(x.to("cuda:0")))
out.sum().backward()
assert x.grad.is_cuda and x.grad.shape == x.shape and layer.weight.grad is not None
torch.autograd.backward(Squared.apply(layer(x)).sum())
(grad,) = torch.autograd.grad(Squared.apply(layer(x)).sum(), x)
assert grad.is_cuda
"""
    )
    folder = CaptureFolder.open(tmp_path / "out")
    launches = {
        folder.capture(record).kernel: [(one.launch.grid[0], one.count) for one in folder.launches(record)]
        for record in folder.records
    }
    # An autotuned kernel's first launch comes after the one of its configuration's trial.
    assert launches == {"scale": [(16, 3)], "square": [(16, 4)]}
    (recorded,) = folder.launches(folder.records[0])
    assert [(p.dtype, p.shape) for p in recorded.launch.parameters[:2]] == [("float32", (16, 64))] * 2
    assert folder.notes == ("square: 1 of 2 configurations compiled; --autotune all compiles all",)


OPERATORS = """
torch.library.define("dry::one", "(Tensor x) -> Tensor")
@torch.library.impl("dry::one", "cuda")
def one(x):
    print("one", x.is_cuda)
    return x + 1
@torch.library.register_fake("dry::one")
def fake(x):
    raise AssertionError("not the fake one")
@torch.library.custom_op("dry::two", mutates_args=())
def two(x: torch.Tensor) -> torch.Tensor:
    print("two", x.is_cuda)
    return x + 2
library = torch.library.Library("dry", "IMPL", "CUDA")
torch.library.define("dry::three", "(Tensor x) -> Tensor")
library.impl("three", lambda x: print("three", x.is_cuda) or x + 3)
torch.library.define("dry::four", "(Tensor x) -> Tensor")
both = torch.library.Library("dry", "IMPL")
for key in ("CPU", "CUDA"):  # torch 2.11 refuses by default to replace a kernel
    both.impl("four", lambda x: x + 4, key, allow_override=False)
x = torch.zeros(2, device="cuda")
assert torch.ops.dry.four(torch.ops.dry.three(two(torch.ops.dry.one(x)))).is_cuda
"""
THREE = "one True\ntwo True\nthree True\n"

# Programs of which only what they print is looked at, which one process forks. Each has its text, and what it prints.
PROGRAMS = {
    # Recomputed activations, graphs, saved and loaded weights, a scaled loss, an optimiser.
    "training": (
        """
import copy, io
from torch.utils.checkpoint import checkpoint
layer = torch.nn.Linear(4, 4).to("cuda")
x = torch.randn(3, 4, device="cuda", requires_grad=True)
seen = []
def forward(x):
    seen.append(x.is_cuda)
    return layer(layer(x).relu())
for reentrant in (True, False):
    checkpoint(forward, x, use_reentrant=reentrant).sum().backward()
assert seen == [True] * 4
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    layer(x)
graph.replay()
file = io.BytesIO()
torch.save(layer.state_dict(), file)
for place in (None, "cuda", torch.device("cuda:0")):
    file.seek(0)
    layer.load_state_dict(torch.load(file, map_location=place))
layer = copy.deepcopy(layer)
optimizer, scaler = torch.optim.AdamW(layer.parameters()), torch.amp.GradScaler("cuda")
scaler.scale(layer(x).sum()).backward()
scaler.step(optimizer)
scaler.update()
torch.cuda.make_graphed_callables(layer, (x,))(x)
x.record_stream(torch.cuda.Stream())
with torch.cuda.use_mem_pool(None):
    torch.nn.LSTM(4, 4).cuda()(x[None])
torch.cuda.cudart().cudaProfilerStart()
torch.cuda.profiler.start()
assert isinstance(layer.weight.data, torch.cuda.FloatTensor) and torch.cuda.FloatTensor(3).is_cuda
""",
        "",
    ),
    "what torch says of the GPU": (
        """
p = torch.cuda.get_device_properties(0)
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device())
print(p.name, p.multi_processor_count)
print(torch.cuda.get_device_capability(), torch.cuda.memory_allocated(), torch.cuda.memory_stats()["any"])
stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
with torch.cuda.stream(stream):
    stream.wait_stream(torch.cuda.current_stream())
end.record()
torch.cuda.synchronize()
print(start.elapsed_time(end), torch.cuda.is_current_stream_capturing())
torch.manual_seed(1); torch.cuda.manual_seed(1)
a = torch.rand(4, device="cuda"); state = torch.cuda.get_rng_state(); b = torch.rand(4, device="cuda")
torch.cuda.set_rng_state(state)
assert torch.equal(torch.rand(4, device="cuda"), b) and not torch.equal(a, b)
""",
        "True 1 0\nNVIDIA GeForce RTX 5090 170\n(12, 0) 0 0\ninf False\n",
    ),
    "tensors seem to be on the GPU however they get there": (
        """
import threading
made = [torch.zeros(2, device="cuda"), torch.zeros(2, device=torch.device("cuda:0")), torch.zeros(2).cuda()]
made += [torch.zeros(2).to("cuda", torch.float16), torch.zeros(2).to(device="cuda"), torch.zeros(2).to(0)]
made += [made[0].new_empty(3, device="cuda"), torch.tensor([1], device=0), torch.zeros(2).pin_memory().cuda()]
made += [torch.randn(3, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3))]
with torch.device("cuda"):
    made.append(torch.ones(2))
torch.set_default_device("cuda")
made.append(torch.ones(2))
thread = threading.Thread(target=lambda: made.append(torch.ones(2, device="cuda")))
thread.start(); thread.join()
assert len(made) == 13, 'the thread had an error'
assert all(one.is_cuda and one.device.type == "cuda" and one.get_device() == 0 for one in made)
assert torch.zeros(2, device="meta").device.type == "meta"
assert isinstance(torch.default_generator, torch.Generator)
assert all((torch.empty(1000, device="cuda") == 0).all() for _ in range(20))
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled("cuda")
    print((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
assert not torch.is_autocast_enabled("cuda")
""",
        "torch.bfloat16\n",
    ),
    "the GPU's generator has a seed and an offset": (
        """
generator = torch.cuda.default_generators[0]
state = generator.get_state()
seed, offset = state.view(torch.int64)
offset += 4
generator.set_state(state)
print(generator.get_state().view(torch.int64).tolist() == [seed, offset])
""",
        "True\n",
    ),
    "operators registered for CUDA": (OPERATORS, THREE),
    "NCCL": (
        """
import torch.distributed as dist
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(4, device="cuda")
dist.all_reduce(x, group=dist.new_group(backend="nccl"))
print(dist.get_backend(), x.sum().item())
""",
        "gloo 4.0\n",
    ),
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    texts = {name: text for name, (text, _) in PROGRAMS.items()}
    script = (
        f"import json, sys, torch, torch._dynamo\nsys.path.insert(0, {str(SUPPORT)!r})\nfrom forked import said_by\n"
    )
    script += f"print(json.dumps(said_by({texts!r}, torch=torch)))"
    return json.loads(run_dry(tmp_path_factory.mktemp("said"), script, arch="sm_120a").stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_as_on_a_gpu(said: dict[str, str], name: str) -> None:
    assert said[name] == PROGRAMS[name][1]


def test_all_is_given_back(triton_cache) -> None:
    import torch
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner

    from tritonhook.capture.dry_run import process
    from tritonhook.capture.dry_run.gpu import DryRun

    def now() -> list[object]:
        owners = torch.cuda, torch.cuda.nvtx, torch, torch.autograd, torch.amp.autocast_mode.autocast, Autotuner
        return [dict(vars(owner)) for owner in owners] + [driver._default]

    import torch.cuda.nvtx

    before = now()
    with process.begin_triton(DryRun(90)), process.begin_torch(DryRun(90)):
        assert torch.zeros(1, device="cuda").is_cuda
    assert now() == before
    assert not torch.zeros(1).is_cuda


# --- without memory, operators of libraries, processes -------------------------------------------


def test_tensors_without_memory(go, tmp_path) -> None:
    """80 GB in each tensor, and the launches of small ones; operators for CUDA."""
    printed = go(
        KERNELS
        + OPERATORS
        + """
x = torch.empty(20_000_000_000, device="cuda", requires_grad=True)
Squared.apply(x).sum().backward()
assert x.grad.is_cuda and x.grad.shape == x.shape
short = torch.randint(0, 10, (100,), device="cuda")
assert (short < 10).all() and not (short > 3).any()
assert torch.compile(fullgraph=True)(torch.compile(lambda x: x + 1))(short).is_cuda
print(short.sum().item(), short[:2].tolist(), short.cpu().device, torch.nonzero(short).shape, torch.zeros(2).device)
""",
        "--memory",
        "none",
    )
    assert printed == f"{THREE}0 [0, 0] cpu torch.Size([0, 1]) cpu\n"
    folder = CaptureFolder.open(tmp_path / "out")
    names = {folder.capture(record).kernel for record in folder.records}
    assert names == {"scale", "square"}
    assert any("the program read values of tensors" in note for note in folder.notes)
    assert not any("failed assertion" in note for note in folder.notes)
    assert any("torch.compile compiled nothing" in note for note in folder.notes)
    (one,) = folder.launches(next(r for r in folder.records if folder.capture(r).kernel == "scale"))
    assert len(one.launch.buffers) == 2, "two allocations of one size are not one"


def test_readings_of_values_are_counted_and_a_failed_assertion_is_not_judged(tmp_path, triton_cache) -> None:
    script = KERNELS + "x = torch.zeros(3, device='cuda')\nfor _ in range(5):\n    x.sum().item()\nassert x.any()\n"
    done = run_dry(tmp_path, script, status=1)
    (note,) = CaptureFolder.open(tmp_path / "out").notes
    assert "item 5" in note and "failed assertion" in note, done.stderr


def test_inductor_s_kernels_are_compiled_forward_and_backward(go, tmp_path) -> None:
    go(
        """
import torch
layer = torch.nn.LayerNorm(64, device="cuda")
@torch.compile
def f(x):
    return torch.nn.functional.gelu(layer(x)) * 2
x = torch.randn(32, 64, device="cuda", requires_grad=True)
f(x).sum().backward()
assert x.grad.shape == x.shape and x.grad.is_cuda
@torch.compile(mode="max-autotune-no-cudagraphs")
def product(x):
    return (x @ x).relu()
assert product(torch.zeros(128, 128, dtype=torch.float16, device="cuda")).is_cuda
@torch.compile(fullgraph=True)
def scaled(x):
    out = torch.empty_like(x)
    scale[(1,)](x, out, x.numel(), 2.0, BLOCK=64)
    return out + 1
scaled(torch.zeros(64, device="cuda"))
""".replace("import torch", KERNELS, 1)
    )
    folder = CaptureFolder.open(tmp_path / "out")
    captures = [folder.capture(record) for record in folder.records]
    assert {capture.arch for capture in captures} == {"sm_90a"}
    assert any("gelu" in capture.kernel and "backward" not in capture.kernel for capture in captures)
    assert any("backward" in capture.kernel for capture in captures)
    assert any("_tem_fused_mm" in capture.kernel for capture in captures), "the first template"
    assert any(capture.kernel == "scale" for capture in captures), "a kernel that the program itself has"
    assert any(folder.launches(record) for record in folder.records)


@pytest.mark.nightly
def test_flex_attention_is_compiled_forward_and_backward(go, tmp_path) -> None:
    go("""
import torch
from torch.nn.attention.flex_attention import flex_attention
q = torch.zeros(1, 1, 128, 16, dtype=torch.float16, device="cuda", requires_grad=True)
torch.compile(flex_attention, mode="reduce-overhead")(q, q, q).sum().backward()
""")
    names = {one.kernel for one in CaptureFolder.open(tmp_path / "out").sightings}
    assert any("flex_attention_backward" in name for name in names)
    assert any("flex_attention" in name and "backward" not in name for name in names)


def test_tests_may_load_dynamo_before_the_dry_run_begins(tmp_path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import torch

def test_compiled():
    x = torch.arange(40.0, device="cuda")
    assert torch.equal(torch.compile(lambda x: x * 2 + 1)(x), x * 2 + 1)
"""
    )
    begin = "import sys, torch._dynamo.device_interface, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    words = ("-p", "no:cacheprovider", "--kernel-arch", "sm_90a", "--kernel-emulate", "test_it.py")
    done = python_ended("-c", begin, *words, folder=tmp_path, without=("TRITON", "TORCH", "PYTEST"), fresh=True)
    assert "1 passed" in done.stdout, done.stdout
