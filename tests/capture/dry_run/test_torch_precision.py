"""torch's own sums in a dry run with real values, beside float64: as near as a GPU's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from dry_runs import run_dry

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from tritonhook.capture.dry_run.torch_precision import autocast_of_the_gpu, rounded_once  # noqa: E402

ROUNDED = 1.8e-3  # error of bfloat16 numbers that were rounded once, in the L2 norm, relative
Function = Callable[[Any, Callable[..., Any]], Any]


FUNCTIONS: dict[str, tuple[Function, float]] = {
    "layer_norm": (lambda x, normal: F.layer_norm(x, (256,), normal(256), normal(256)), ROUNDED),
    "batch_norm": (lambda x, normal: F.batch_norm(x, None, None, normal(64), training=True), ROUNDED),
    "conv": (lambda x, normal: F.conv1d(x, normal(8, 64, 3), normal(8)), ROUNDED),
    "linear": (lambda x, normal: F.linear(x, normal(16, 256), normal(16)), ROUNDED),
    "embedding": (lambda x, normal: F.embedding(torch.arange(4000) % 8, x[0]), ROUNDED),
    "mse": (lambda x, normal: F.mse_loss(x, normal(*x.shape)).reshape(1), ROUNDED),
    "cross_entropy": (lambda x, normal: F.cross_entropy(x[0], torch.arange(64), reduction="none"), 2.1e-3),
    "sum": (lambda x, normal: x.sum((0, 1)), ROUNDED),
}


def _results(function: Function, dtype: Any) -> list[Any]:
    """Run forward and backward; return the result and the gradients of what `normal` makes."""
    torch.manual_seed(0)
    leaves = []

    def normal(*shape: int) -> Any:
        leaves.append(torch.randn(*shape).bfloat16().to(dtype).requires_grad_())
        return leaves[-1]

    result = function(normal(8, 64, 256), normal)
    result.backward(torch.randn(result.shape).bfloat16().to(dtype))
    assert result.dtype == dtype and all(one.grad.dtype == dtype for one in leaves)
    return [result.detach(), *(one.grad for one in leaves)]


def _errors(function: Function) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = _results(function, torch.float64)
        made = _results(function, torch.bfloat16)
    return [((one.double() - other).norm() / other.norm()).item() for one, other in zip(made, exact, strict=True)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_of_bfloat16_are_rounded_once(name: str) -> None:
    function, most = FUNCTIONS[name]
    with rounded_once():
        errors = _errors(function)
    assert max(errors) < most, errors


def test_the_cpu_alone_rounds_more_often() -> None:
    assert max(_errors(FUNCTIONS["layer_norm"][0])) > 2 * ROUNDED


def test_outputs_written_in_place_are_the_program_s() -> None:
    x = torch.randn(32, 64, dtype=torch.bfloat16)
    with rounded_once():
        out = torch.empty(64, dtype=torch.bfloat16)
        assert torch.sum(x, 0, out=out) is out and (out.double() - x.double().sum(0)).abs().max() < 0.1
        added = torch.zeros(32, 32, dtype=torch.bfloat16)
        assert added.addmm_(x, x.mT) is added and (added.double() - x.double() @ x.double().mT).abs().max() < 1
        mean = torch.zeros(64, dtype=torch.bfloat16)
        F.batch_norm(x + 3, mean, torch.ones(64, dtype=torch.bfloat16), training=True)
        assert (mean - 0.3).abs().max() < 0.1
        mixed = torch.native_layer_norm(x, (64,), None, None, 1e-5)
        assert [one.dtype for one in mixed] == [torch.bfloat16, torch.float32, torch.float32]  # as on a GPU
        assert x.sum(0, dtype=torch.float32).dtype == torch.float32
        with torch.inference_mode():
            assert F.layer_norm(x, (64,)).dtype == torch.bfloat16
        compiled = torch.compile(lambda x: x.sum(1) + 1, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x), x.sum(1) + 1)


def test_a_program_gets_them_in_every_thread(tmp_path: Any, triton_cache: Any) -> None:
    script = """
import threading, torch
def errors():
    torch.manual_seed(0)
    x, grad = (torch.randn(4096, 64, device="cuda").bfloat16() for _ in "xg")
    made = []
    for dtype in (torch.bfloat16, torch.float64):
        norm = torch.nn.LayerNorm(64, device="cuda", dtype=dtype)
        norm(x.to(dtype)).backward(grad.to(dtype))
        made.append(norm.weight.grad.double())
    print("near" if (made[0] - made[1]).norm() / made[1].norm() < 1.8e-3 else "far", made[0].device)
errors()
thread = threading.Thread(target=errors)
thread.start()
thread.join()
"""
    done = run_dry(tmp_path, script, "--emulate")
    assert done.stdout.split() == ["near", "cuda:0"] * 2 and "ignored" not in done.stderr, done.stderr
    assert run_dry(tmp_path, script).stdout.split() == ["far", "cuda:0"] * 2


def test_autocast_widens_what_cudas_does_and_no_longer_than_asked() -> None:
    x = torch.ones(4, 8, dtype=torch.float16)
    made: dict[str, Callable[[], Any]] = {
        "layer_norm": lambda: F.layer_norm(x, (8,)),
        "exp": x.exp,
        "pow": lambda: x.pow(2),
        "softmax": lambda: x.softmax(-1),
        "sum": x.sum,
    }
    kept: dict[str, Callable[[], Any]] = {"add": lambda: x + x, "matmul": lambda: x @ x.mT}
    with autocast_of_the_gpu():
        with torch.autocast("cpu", dtype=torch.float16):
            assert {name: one().dtype for name, one in made.items()} == dict.fromkeys(made, torch.float32)
            assert {name: one().dtype for name, one in kept.items()} == dict.fromkeys(kept, torch.float16)
        assert F.layer_norm(x, (8,)).dtype is torch.float16
    with torch.autocast("cpu", dtype=torch.float16):
        assert F.layer_norm(x, (8,)).dtype is torch.float16
