"""First calls of torch's operators are marked, and a program computes the same under a watch."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from fake_gpu import MIB, FakeGpu, Program
from hangs import HANG_S

torch = pytest.importorskip("torch")


def on_gpu(gpu: FakeGpu, takes: dict[str, int], hooks: Program | None = None) -> type:
    """Make a kind of tensor that says it is on a GPU. takes: MiB that the first call of an operator takes, by name."""

    class OnGpu(torch.Tensor):
        @staticmethod
        def __new__(cls, *shape: int, strides: tuple[int, ...] | None = None) -> Any:
            own = {"dtype": torch.float32, "device": "cuda"}
            return torch.Tensor._make_wrapper_subclass(cls, shape, strides, **own)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            name = str(func.overloadpacket)
            if name == "aten.relu" and hooks is not None:  # an operator that launches a Triton kernel
                hooks.load("inside", 5 * MIB)
            gpu.use(name, takes.get(name, 0) * MIB)
            if name == "aten.neg":
                raise RuntimeError("an error of the operator")
            if name == "aten.exp":
                gpu.grow_stack(2048)
            return cls(*args[0].shape)

    return OnGpu


def test_first_calls_have_their_growth_and_the_rest_is_not_explained() -> None:
    program = Program()
    tensor = on_gpu(program.gpu, {"aten.mm": 33, "aten.sin": 8, "aten.relu": 2, "aten.neg": 1}, program)
    program.start()
    with program.watch() as seen:
        a = tensor(4, 4)
        for _ in range(3):
            a @ a
        a.sin()
        with pytest.raises(RuntimeError, match="an error of the operator"):
            a.neg()
        a.relu()
        a.exp()
        asked = len(program.gpu.calls)
        a @ a, a.sin()
        assert len(program.gpu.calls) == asked, "a call that was seen asks nothing"
        torch.ones(3).sin()  # not on a GPU
        program.gpu.own += 7 * MIB
    attribution = seen.timeline.attribution()
    assert {part.name: part.bytes for part in attribution.parts if part.bytes} == {
        "first calls of torch operators": (33 + 8 + 2 + 1) * MIB,
        "modules": 5 * MIB,
        "local-memory pool": 1024 * 132 * 2048,
    }
    assert attribution.part("first calls of torch operators").detail == "aten.mm, aten.sin, aten.relu, aten.neg"
    assert attribution.unexplained_bytes == 7 * MIB
    assert seen.timeline.between() == ((7 * MIB, "aten.exp", "the end"),)
    marks = [(mark.kind, mark.kernel) for mark in seen.timeline.marks]
    assert marks == [
        *(("operator", f"aten.{name}") for name in ("mm", "sin", "neg", "relu")),
        ("load", "inside"),
        ("operator", "aten.exp"),
    ]
    before = len(program.gpu.calls)
    tensor(5, 5).cos()
    assert len(program.gpu.calls) == before and torch._C._len_torch_dispatch_stack() == 0


def test_another_shape_or_order_is_a_first_call_and_captured_graphs_are_not_asked() -> None:
    program = Program()
    tensor = on_gpu(program.gpu, {})
    program.start()
    with program.watch(None) as seen:
        for shape in ((4, 4), (8, 8), (4, 4)):
            tensor(*shape).sin()
        tensor(4, 4, strides=(1, 4)).sin()
        program.gpu.capturing = True
        tensor(9, 9).sin()
        program.gpu.capturing = False
        tensor(9, 9).sin()
    assert len(seen.timeline.marks) == 4 and all(mark.note is None for mark in seen.timeline.marks)


def test_the_first_stream_has_its_growth(monkeypatch) -> None:
    program = Program()

    class Stream:
        def __new__(cls, device=None, priority=0):
            program.gpu.use("streams", 70 * MIB)
            return super().__new__(cls)

    own = vars(Stream)["__new__"]
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    program.start()
    with program.watch() as seen:
        assert all(isinstance(Stream(priority=priority), Stream) for priority in (0, 0, -1))
    grown = [(mark.kernel, mark.growth_bytes) for mark in seen.timeline.marks]
    assert grown == [("torch.cuda.Stream", 70 * MIB), ("torch.cuda.Stream", 0)]
    assert vars(Stream)["__new__"] is own


PROGRAM = """
import sys
import torch, torch._dynamo
@torch.compile(backend="aot_eager")
def f(x, w):
    y = torch.nn.functional.gelu(x @ w)
    torch._dynamo.graph_break()
    return (y.sin() + torch.flip(y, [0])).sum()
torch.manual_seed(0)
x, w = torch.randn(32, 32, requires_grad=True), torch.randn(32, 32)
out = f(x, w)
out.backward()
q = torch.randn(1, 1, 16, 16)
print(float(out), float(x.grad.sum()), float(torch.func.grad(lambda a: (a * a).sum())(w).sum()))
from torch.nn.attention.flex_attention import flex_attention
print(float(flex_attention(q, q, q).sum()), torch.vmap(torch.sin)(q).shape)
print(torch._dynamo.utils.counters["frames"], torch._dynamo.utils.counters["stats"])
print(torch.export.export(torch.nn.Linear(2, 2), (torch.randn(1, 2),)).graph)
with torch._subclasses.FakeTensorMode():
    print(torch.randn(2, device="cuda").sin().device)
"""
WATCHED = "import sys, tritonhook\nwith tritonhook.memwatch.watch() as w:\n    exec(sys.argv[1])\n"
DEPTH = "print(len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()), file=sys.stderr)"


def test_programs_compute_and_compile_the_same_under_a_watch() -> None:
    def run(*words: str) -> tuple[str, str]:
        command = [sys.executable, "-W", "ignore", "-c", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * HANG_S, check=True)
        return done.stdout, done.stderr.splitlines()[-1]

    (plain, none), (watched, one) = run(PROGRAM + DEPTH), run(WATCHED, PROGRAM + DEPTH)
    assert (none, one) == ("0", "1"), "the second is watched"
    assert plain == watched and len(plain.splitlines()) >= 5


def test_modes_of_the_program_that_lie_on_ours_stay() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    program = Program()
    program.start()
    mode = Mode()
    with program.watch():
        mode.__enter__()
    calls = len(program.gpu.calls)
    on_gpu(program.gpu, {})(2, 2).sin()
    assert len(program.gpu.calls) == calls
    mode.__exit__(None, None, None)
    torch._C._pop_torch_dispatch_stack(None)
    assert threading.active_count() >= 1 and torch._C._len_torch_dispatch_stack() == 0
