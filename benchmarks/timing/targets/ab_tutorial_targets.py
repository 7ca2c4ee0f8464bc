"""Triton's own tutorials, to time under two names. TRITON_TUTORIALS names the folder that has them: python/tutorials of
Triton's repository at the tag of the installed Triton.

    tritonhook ab ab_tutorial_targets:matmul

A tutorial also tests and benchmarks itself. Only the part before the first such statement is executed.
Those with an autotuner are launched with the configuration that it chose on an H100, recorded in
results/tutorial_configs.json by tutorial_configs.py; without a record it chooses anew. Sizes are those of the
tutorials' own benchmarks, or near.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
from ab_targets import _random

CHOSEN = Path(__file__).resolve().parents[2] / "results" / "tutorial_configs.json"
Launch = Callable[[], Any]
_DOES_SOMETHING = (ast.Expr, ast.For, ast.With, ast.Assert)


@dataclass(frozen=True, slots=True)
class Target:
    """file: of the tutorial. tuner: the name of its autotuned kernel. make: a launch, from the tutorial's module."""

    file: str
    tuner: str | None
    make: Callable[[ModuleType], Launch]


def tutorial(file: str) -> ModuleType:
    """The tutorial's functions. Raises FileNotFoundError or KeyError where TRITON_TUTORIALS does not have it."""
    path = Path(os.environ["TRITON_TUTORIALS"]) / f"{file}.py"
    name = f"tutorial_{file[:2]}"
    if name not in sys.modules:
        tree = ast.parse(path.read_text(), str(path))
        first = next((i for i, one in enumerate(tree.body) if i and isinstance(one, _DOES_SOMETHING)), None)
        tree.body = tree.body[:first]
        spec = importlib.util.spec_from_loader(name, loader=None)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        module.__file__ = str(path)
        exec(compile(tree, str(path), "exec"), module.__dict__)  # with its own lines: Triton reads the source again
        sys.modules[name] = module
    return sys.modules[name]


# --- launches ------------------------------------------------------------------------------------


def _softmax(module: ModuleType) -> Launch:
    x = _random(4096, 8192)
    return lambda: module.softmax(x)


def _matmul(dtype: torch.dtype = torch.float16, size: int = 4096) -> Callable[[ModuleType], Launch]:
    def make(module: ModuleType) -> Launch:
        a, b = (_random(size, size, dtype=dtype) for _ in range(2))
        other = b if dtype == torch.float16 else b.T  # fp8 on Hopper wants B transposed
        return lambda: module.matmul(a, other)

    return make


def _layer_norm(module: ModuleType) -> Launch:
    x = _random(4096, 8192, dtype=torch.float16)
    weight, bias = (_random(8192, dtype=torch.float16) for _ in range(2))
    return lambda: module.LayerNorm.forward(_Context(), x, (8192,), weight, bias, 1e-5)


def _layer_norm_backward(module: ModuleType) -> Launch:
    """Returns the gradient of x alone: those of weight and bias are summed in the order in which CTAs get a lock."""
    x, dy = (_random(4096, 8192, dtype=torch.float16) for _ in range(2))
    weight, bias = (_random(8192, dtype=torch.float16) for _ in range(2))
    mean = x.float().mean(1)
    context = _Context(BLOCK_SIZE=8192, num_warps=8, eps=1e-5)  # as forward leaves it
    context.save_for_backward(x, weight, bias, mean, (x.float().var(1, correction=0) + 1e-5).rsqrt())
    return lambda: module.LayerNorm.backward(context, dy)[0]


class _Context(SimpleNamespace):
    """What torch.autograd hands from forward to backward."""

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        self.saved_tensors = tensors


def _qkv(depth: int, dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    q, k, v = (_random(4, 32, 4096, depth) * 0.5 for _ in range(3))
    if dtype != torch.float16:
        v = v.transpose(2, 3).contiguous().transpose(2, 3)
    return [x.to(dtype) for x in (q, k, v)]


def _attention(depth: int, causal: bool, special: bool = False, dtype: torch.dtype = torch.float16) -> Any:
    def make(module: ModuleType) -> Launch:
        q, k, v = _qkv(depth, dtype)
        return lambda: module._attention.forward(_Context(), q, k, v, causal, 1.3, special)

    return make


def _attention_backward(depth: int) -> Callable[[ModuleType], Launch]:
    def make(module: ModuleType) -> Launch:
        q, k, v = _qkv(depth)
        o, do = (_random(*q.shape, dtype=torch.float16) for _ in range(2))
        context = _Context(sm_scale=0.5, HEAD_DIM=depth, causal=True)
        context.save_for_backward(q, k, v, o, torch.zeros(q.shape[:3], device=q.device) + 8)
        return lambda: module._attention.backward(context, do)[:3]

    return make


def _grouped(transposed: bool) -> Callable[[ModuleType], Launch]:
    """Four products of different sizes in one launch, B transposed for TMA."""

    def make(module: ModuleType) -> Launch:
        sizes = [1024 * n for n in (4, 3, 2, 1)]
        groups = [[_random(n, n, dtype=torch.float16) for n in sizes] for _ in range(3)]
        device = groups[0][0].device
        addresses = [torch.tensor([x.data_ptr() for x in group], device=device) for group in groups]
        shapes = torch.tensor([[n] * 3 for n in sizes], dtype=torch.int32, device=device)

        def launch() -> list[torch.Tensor]:
            if transposed:
                _scratch()
                kernel, more = module.grouped_matmul_tma_kernel, {"FP8": False, "NUM_SM": module.num_sms()}
            else:
                kernel, more = module.grouped_matmul_kernel, {}
            kernel[lambda meta: (meta["NUM_SM"],)](*addresses, shapes, shapes, len(sizes), **more)
            return groups[2]

        return launch

    return make


def _scratch() -> None:
    """Kernels that make TMA descriptors themselves need memory for them."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))


def _persistent(function: str, *special: bool, dtype: torch.dtype = torch.float16) -> Callable[[ModuleType], Launch]:
    """function: of the tutorial; special: whether warps specialise, where it takes that. B is transposed for TMA."""

    def make(module: ModuleType) -> Launch:
        a, b = (_random(8192, 2048, dtype=torch.float16).to(dtype) for _ in range(2))
        other = b if special else b.T
        return lambda: getattr(module, function)(a, other, *special)

    return make


_FP8 = torch.float8_e5m2
_02, _03, _05 = "02-fused-softmax", "03-matrix-multiplication", "05-layer-norm"
_06, _08, _09 = "06-fused-attention", "08-grouped-gemm", "09-persistent-matmul"
TARGETS = {
    "softmax": Target(_02, None, _softmax),
    "matmul": Target(_03, "matmul_kernel", _matmul()),
    "matmul_fp8": Target(_03, "matmul_kernel", _matmul(_FP8)),
    "layer_norm": Target(_05, None, _layer_norm),
    "layer_norm_backward": Target(_05, None, _layer_norm_backward),
    "attention_d64": Target(_06, "_attn_fwd", _attention(64, False)),
    "attention_d64_causal": Target(_06, "_attn_fwd", _attention(64, True)),
    "attention_d128": Target(_06, "_attn_fwd", _attention(128, False)),
    "attention_d128_causal": Target(_06, "_attn_fwd", _attention(128, True)),
    # Under Triton 3.6.0 not all of its launches give the same result when many are queued: `ab` may call it wrong.
    "attention_d128_specialised": Target(_06, "_attn_fwd", _attention(128, False, True)),
    "attention_d128_fp8": Target(_06, "_attn_fwd", _attention(128, False, dtype=_FP8)),
    "attention_d64_backward": Target(_06, None, _attention_backward(64)),
    "attention_d128_backward": Target(_06, None, _attention_backward(128)),
    "grouped_gemm": Target(_08, "grouped_matmul_kernel", _grouped(False)),
    "grouped_gemm_tma": Target(_08, "grouped_matmul_tma_kernel", _grouped(True)),
    "naive_matmul": Target(_09, "matmul_kernel", _persistent("matmul")),
    "persistent_matmul": Target(_09, "matmul_kernel_persistent", _persistent("matmul_persistent")),
    "tma_matmul": Target(_09, "matmul_kernel_tma", _persistent("matmul_tma", False)),
    "tma_persistent_matmul": Target(_09, "matmul_kernel_tma_persistent", _persistent("matmul_tma_persistent", False)),
    "tma_persistent_matmul_fp8": Target(
        _09,
        "matmul_kernel_tma_persistent",
        _persistent("matmul_tma_persistent", False, dtype=torch.float8_e4m3fn),
    ),
    "descriptor_matmul": Target(
        _09, "matmul_kernel_descriptor_persistent", _persistent("matmul_descriptor_persistent", False)
    ),
    "descriptor_matmul_specialised": Target(
        _09, "matmul_kernel_descriptor_persistent", _persistent("matmul_descriptor_persistent", True)
    ),
}


def __getattr__(name: str) -> Callable[[], Launch]:
    if name not in TARGETS:
        raise AttributeError(name)
    return lambda: launch_of(name)


# --- configurations ------------------------------------------------------------------------------


def launch_of(name: str, tuned: bool = True) -> Launch:
    """tuned: with the recorded configuration, if there is one; the tutorial's kernel keeps it in this process."""
    target = TARGETS[name]
    module = tutorial(target.file)
    launch = target.make(module)
    chosen = recorded().get(name) if tuned and target.tuner else None
    if chosen is not None:
        tuner = getattr(module, target.tuner or "")
        every = tuner.__dict__.setdefault("every_config", tuner.configs)
        fitting = [config for config in every if str(config) == chosen]
        if not fitting:
            raise ValueError(
                f"{name}: {target.file} has no configuration {chosen!r}; delete {CHOSEN.name} to tune anew"
            )
        tuner.configs = fitting
    return launch


def recorded() -> dict[str, str]:
    if not CHOSEN.exists():
        return {}
    return {row["target"]: row["chosen"] for row in json.loads(CHOSEN.read_text())["samples"] if "chosen" in row}
