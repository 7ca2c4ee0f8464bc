"""`tritonhook run --arch` of programs whose tensors have no memory of their own, and of what else they ask a GPU for.

Each program runs in a process of its own, which one process forks after the imports that take seconds; it asserts what
a GPU would give.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dry_runs import run_dry

from tritonhook.capture.store import CaptureFolder

pytest.importorskip("torch")
pytest.importorskip("triton", minversion="3.6")

IMPORTS = """
import copy, io, pickle, warnings
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
warnings.simplefilter("ignore")
def fails(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("no error")
"""
KERNEL = """
import triton, triton.language as tl
@triton.jit
def fill(x, n):
    at = tl.arange(0, 4)
    tl.store(x + at, 1.0, mask=at < n)
"""
# What a program does, and its text. Those of BOTH run with --memory none too.
BOTH = {
    "a model on meta, made real": """
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
given = {name: torch.ones(value.shape, device="cuda") for name, value in model.state_dict().items()}
assert all(one.is_cuda for one in copy.deepcopy(model).to_empty(device="cuda").parameters())
model.load_state_dict(given, assign=True)
model(torch.ones(1, 2, device="cuda")).sum().backward()
assert all(one.grad.is_cuda for one in model.parameters())
assert torch.nn.utils.skip_init(torch.nn.Linear, 3, 5, device="cuda").weight.is_cuda
""",
    "fake": """
with FakeTensorMode() as mode:
    layer, x = torch.nn.Linear(100_000, 100_000, device="cuda"), torch.empty(2, 100_000, device="cuda")
    assert x.is_cuda and x.device == torch.empty_like(x).device == torch.device("cuda", 0)
    layer(x).sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape
assert mode.from_tensor(torch.ones(2, device="cuda")).device.type == "cuda"
""",
    "exported and traced": """
from torch.fx.experimental.proxy_tensor import make_fx
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.empty_like(x).zero_() + torch.zeros(2, device="cuda") + torch.empty(2, device=x.device).fill_(1)
x = torch.ones(2, device="cuda")
assert torch.export.export(Model(), (x,)).module()(x).is_cuda
for mode in ("real", "fake", "symbolic"):
    assert make_fx(Model(), tracing_mode=mode)(x)(x).is_cuda
""",
    "functions of tensors": """
from torch.func import functional_call, functionalize, grad, hessian, vmap
x = torch.ones(3, device="cuda")
assert vmap(lambda one: one.new_empty(3) + torch.empty_like(one))(x).shape == (3, 3)
assert grad(lambda one: (torch.empty_like(one) + one).sum())(x).is_cuda
assert hessian(lambda one: (one ** 3).sum())(x).shape == (3, 3)
assert functionalize(lambda one: torch.empty_like(one).copy_(one))(x).is_cuda
layer = torch.nn.Linear(3, 3, device="cuda")
assert functional_call(layer, dict(layer.named_parameters()), (x,)).is_cuda
""",
    "saved, pickled and copied": """
file, x = io.BytesIO(), torch.ones(3, device="cuda", requires_grad=True)
torch.save({"x": x, "layer": torch.nn.Linear(2, 2, device="cuda").state_dict()}, file)
for place in (None, "cuda", "cpu", lambda storage, _: storage):
    file.seek(0)
    loaded = torch.load(file, map_location=place)
    assert loaded["x"].shape == (3,) and loaded["layer"]["weight"].shape == (2, 2)
for one in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
    assert one.is_cuda and one.requires_grad
assert x.detach().share_memory_().is_shared()
""",
    "an array of CUDA": """
x = torch.zeros(3, 2, device="cuda")
given = x.__cuda_array_interface__
assert (given["shape"], given["typestr"], given["strides"]) == ((3, 2), "<f4", None)
assert given["data"][0] == x.data_ptr() and x.T.__cuda_array_interface__["strides"] == (4, 8)
class Array:
    __cuda_array_interface__ = given
assert torch.as_tensor(Array(), device="cuda").shape == (3, 2)
assert "requires grad" in fails(RuntimeError, lambda: x.requires_grad_().__cuda_array_interface__)
""",
    "types": """
x = torch.ones(2, device="cuda")
assert x.type() == "torch.cuda.FloatTensor" and x.half().type() == "torch.cuda.HalfTensor"
half = torch.ones(2).type("torch.cuda.HalfTensor")
assert half.is_cuda and half.dtype == torch.float16 and half.type(torch.float64).dtype == torch.float64
""",
    "random numbers": """
one, two = torch.Generator("cuda").manual_seed(1), torch.Generator("cuda")
assert one.device == torch.device("cuda", 0) and isinstance(one, torch.Generator) and one.initial_seed() == 1
torch.randn(2, device="cuda", generator=one)
two.set_state(one.get_state())
assert one.get_state().numel() == 16 and torch.equal(one.get_state(), two.get_state())
ours = [torch.randn(2, device="cuda", generator=each).cpu() for each in (one, two)]
assert torch.equal(*ours) and not torch.equal(one.get_state(), torch.Generator("cuda").get_state())
default = torch.cuda.default_generators[0]
assert torch.randn(2, device="cuda", generator=default).is_cuda and torch.Generator().device.type == "cpu"
default.manual_seed(3); state = torch.cuda.get_rng_state(); a = torch.rand(2); torch.cuda.set_rng_state(state)
assert torch.equal(torch.rand(2), a) and torch.cuda.initial_seed() == 3 and default.get_offset() > 0
with torch.random.fork_rng(devices=["cuda:0"]):
    torch.manual_seed(7)
""",
    "optimisers": """
layer = torch.nn.Linear(2, 2, device="cuda")
for how in ("fused", "foreach", "capturable"):
    optimizer = torch.optim.AdamW(layer.parameters(), **{how: True})
    layer(torch.ones(1, 2, device="cuda")).sum().backward()
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0, foreach=True)
    optimizer.step()
""",
    "what torch.cuda is asked for": """
assert len(torch.cuda.nccl.version()) == 3 and torch.cuda.memory.mem_get_info()[0] > 0
assert torch.cuda.memory._snapshot()["segments"] == [] and torch.cuda.memory_stats_as_nested_dict() == {}
assert torch.accelerator.memory_allocated() == 0 and torch.accelerator.get_memory_info()[1] > 0
with torch.cuda.use_mem_pool(torch.cuda.MemPool()), torch.cuda.device("cuda:0") as device:
    assert device.idx == torch.cuda.current_device() == 0
assert isinstance(torch.cuda.Stream(), torch.cuda.streams.Stream)
torch.cuda.check_error(0)
assert torch.cuda.get_device_properties(0).uuid is not None
assert "clock_rate" in fails(AttributeError, lambda: torch.cuda.get_device_properties(0).clock_rate)
assert "dry run has no GPU" in fails(AttributeError, lambda: torch._C._cuda_of_tomorrow)
assert "dry run has no GPU" in fails(AttributeError, lambda: torch.cuda.Event().ipc_handle())
""",
}
REAL = {
    "on meta": """
x = torch.empty(2, device="meta")
assert x.is_meta and not x.is_cuda and x.device == torch.device("meta") and (x + x).new_empty(3).is_meta
assert pickle.loads(pickle.dumps(x)).is_meta and copy.deepcopy(x).is_meta and torch.empty_like(x).is_meta
assert torch.empty_like(torch.ones(2, device="cuda"), device="meta").is_meta
assert "meta" in fails(NotImplementedError, lambda: x.to("cuda"))
torch.set_default_device("meta")
assert torch.empty(2).is_meta and torch.nn.Linear(2, 2).weight.is_meta
""",
    "buffers hold zeros, also within other tensors": """
from torch.func import functionalize, vmap
junk = [torch.full((1000,), 7.0) for _ in range(20)]
del junk
class Pair(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
    def __init__(self, inner):
        self.inner = inner
    def __tensor_flatten__(self):
        return ["inner"], None
    @staticmethod
    def __tensor_unflatten__(inner, *_):
        return Pair(inner["inner"])
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = lambda one: one.inner if isinstance(one, Pair) else one
        made = func(*map(inner, args), **(kwargs or {}))
        return Pair(made) if isinstance(made, torch.Tensor) else made
pair = Pair(torch.ones(1000, device="cuda"))
x = torch.ones(3, 1000, device="cuda")
for _ in range(20):
    assert (torch.empty(1000, device="cuda") == 0).all()
    assert (torch.empty_like(pair).inner == 0).all()
    assert (vmap(torch.empty_like)(x) == 0).all() and (functionalize(torch.empty_like)(x) == 0).all()
assert pair.is_cuda and type(pair + 1) is Pair and pair.to("cuda").device.type == "cuda"
""",
    "sparse, quantised, nested": """
sparse = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 1.0], (2, 2), device="cuda")
assert torch.empty_like(sparse).is_sparse and sparse.is_cuda and sparse.new_empty((3, 3)).is_sparse
assert torch.empty(2, 2, layout=torch.sparse_csr, device="cuda").is_cuda and sparse.to_sparse_csr().is_cuda
quantised = torch.quantize_per_tensor(torch.ones(4, device="cuda"), 0.1, 0, torch.qint8)
assert torch.empty_like(quantised).is_quantized and quantised.is_cuda
for layout in (torch.jagged, torch.strided):
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device="cuda", layout=layout)
    assert nested.is_cuda and torch.empty_like(nested).is_nested
packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device="cuda"), torch.tensor([3, 2]))
assert packed.data.is_cuda
""",
    "a copy on the CPU stays what it is": """
x = torch.zeros(2, device="cuda")
copies = [x.cpu(), x.to("cpu"), x.to(device="cpu"), x.to("cpu", torch.float32), x.detach().cpu().numpy()]
moved = x.to("cuda")
x += 1
assert all(one.tolist() == [0, 0] for one in copies) and moved.tolist() == [1, 1]
""",
    "pinned memory": """
x = torch.ones(2)
pinned = x.pin_memory()
x += 1
assert pinned.is_pinned() and not x.is_pinned() and pinned.tolist() == [1, 1]
assert torch.empty(2, pin_memory=True).is_pinned() and pinned.cuda(non_blocking=True).is_cuda
""",
    "DLPack": """
x = torch.ones(2, device="cuda")
assert torch.from_dlpack(x).data_ptr() == x.data_ptr() and x.__dlpack__(stream=1)
""",
    "the profiler": """
from torch.profiler import ProfilerActivity, profile
for activities in ([ProfilerActivity.CUDA], [ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    with profile(activities=activities) as profiler:
        torch.zeros(3, device="cuda") + 1
    assert "aten::add" in profiler.key_averages().table(sort_by="cuda_time_total")
with torch.autograd.profiler.emit_nvtx():
    torch.ones(2, device="cuda") + 1
""",
    "torch.compile with random numbers": """
@torch.compile
def f(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x) * x.detach().bernoulli(0.5)
x = torch.ones(64, device="cuda", requires_grad=True)
f(x).sum().backward()
assert x.grad.is_cuda
""",
    "a kernel": """
import kernel
for make in (lambda: torch.empty(4, device="meta"), lambda: FakeTensorMode().from_tensor(torch.ones(4, device="cuda"))):
    assert "without memory" in fails(ValueError, lambda: kernel.fill[(1,)](make(), 4))
kernel.fill[(1,)](torch.empty(4, device="cuda"), 4)
kernel.fill[(1,)](torch.empty(0, device="cuda"), 0)
""",
}
FORKED = """
import json, os, sys, traceback, torch, torch._dynamo
ended = {}
for name, text in json.loads(PROGRAMS).items():
    reads, writes = os.pipe()
    if (process := os.fork()) == 0:
        os.dup2(writes, 1)
        os.dup2(writes, 2)
        code = 1
        try:
            exec(compile(IMPORTS + text, name, "exec"), {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os.close(writes)
    with open(reads, errors="replace") as file:
        printed = file.read()
    ended[name] = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), printed
with open("ended.json", "w") as file:
    json.dump(ended, file)
"""
Ended = dict[str, tuple[int, str]]  # by program: its exit code, and what it printed


def run_all(folder: Path, programs: dict[str, str], *options: str) -> Ended:
    (folder / "kernel.py").write_text(KERNEL)
    script = FORKED.replace("PROGRAMS", repr(json.dumps(programs))).replace("IMPORTS", repr(IMPORTS))
    run_dry(folder, script, *options)
    return {name: tuple(how) for name, how in json.loads((folder / "ended.json").read_text()).items()}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run_all(tmp_path_factory.mktemp("real"), BOTH | REAL)


@pytest.fixture(scope="module")
def without_memory(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    more = {
        "DLPack": """
assert "leave --memory none out" in fails(BufferError, torch.ones(2, device="cuda").__dlpack__)
""",
    }
    return run_all(tmp_path_factory.mktemp("none"), BOTH | more, "--memory", "none")


@pytest.mark.parametrize("name", BOTH | REAL)
def test_a_program_runs_as_on_a_gpu(real: Ended, name: str) -> None:
    code, printed = real[name]
    assert code == 0, printed


@pytest.mark.parametrize("name", [*BOTH, "DLPack"])
def test_a_program_runs_without_memory(without_memory: Ended, name: str) -> None:
    code, printed = without_memory[name]
    assert code == 0, printed


def test_the_profiler_prints_no_errors_of_torch(real: Ended) -> None:
    assert "CUDA event" not in real["the profiler"][1]


def test_an_emulated_launch_refuses_a_tensor_without_memory(tmp_path: Path, triton_cache: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    script = IMPORTS + (
        "import kernel\n"
        'x = torch.empty(4, device="cuda")\n'
        "kernel.fill[(1,)](x, 3)\n"
        'print(x.tolist(), fails(Exception, lambda: kernel.fill[(1,)](torch.empty(4, device="meta"), 4)))\n'
    )
    printed = run_dry(tmp_path, script, "--emulate").stdout
    assert printed.startswith("[1.0, 1.0, 1.0, 0.0] ")
    assert "memory" in printed
    folder = CaptureFolder.open(tmp_path / "out")
    assert {folder.capture(record).kernel for record in folder.records} == {"fill"}
