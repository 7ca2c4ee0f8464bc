"""Launches of other libraries, to time: torch.compile, FlashAttention 4, and CUTLASS's Ampere attention example.

    tritonhook ab ab_library_targets:flash4_sm120_d128 --strip

Names say which: flash4_d128, flash4_d64_causal, flash4_sm120_d128 (its path for sm_120, assembled for this GPU),
cute_ampere_d64_causal (needs CUTLASS_AMPERE_EXAMPLE, the path of CUTLASS's flash_attention_v2.py). All attentions have
4 batches, 16 heads, 4096 rows, bf16, and the same q, k and v as ab_targets:attention, so that outputs can be compared.
Each function makes what it launches anew, as `ab` needs of launches that keep compiled code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import torch
from ab_targets import Launch, _random

BATCH, HEADS, LENGTH = 4, 16, 4096
_SM120 = {"FLASH_ATTENTION_ARCH": "sm_120", "CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_NUM_SMS": "132"}


def _qkv(depth: int) -> tuple[torch.Tensor, ...]:
    """[batch, heads, rows, depth]"""
    return tuple(_random(BATCH, HEADS, LENGTH, depth, dtype=torch.bfloat16) for _ in range(3))


def compiled_layer_norm() -> Launch:
    x = _random(8192, 4096, dtype=torch.bfloat16)
    weight, bias = (_random(4096, dtype=torch.bfloat16) for _ in range(2))

    def layer_norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (4096,), weight, bias)

    compiled = torch.compile(layer_norm, dynamic=False)
    return lambda: compiled(x)


def compiled_softmax() -> Launch:
    """Rows too long for one pass: Inductor writes a loop."""
    x = _random(1024, 1 << 15)
    compiled = torch.compile(lambda x: torch.softmax(x * 1.5, -1), dynamic=False)
    return lambda: compiled(x)


def flash4(depth: int, causal: bool = False, sm120: bool = False) -> Launch:
    """FlashAttention 4. sm120 must be the same for all of a process: it is read at import."""
    if sm120:
        os.environ.update(_SM120)
    from flash_attn.cute import interface

    interface._flash_attn_fwd.compile_cache.clear()
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in _qkv(depth))  # [batch, rows, heads, depth]

    def launch() -> torch.Tensor:
        result = interface.flash_attn_func(q, k, v, causal=causal)
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    return launch


def cute_ampere(depth: int, causal: bool = False) -> Launch:
    """CUTLASS's example of attention for sm_80, 128 x 64 tiles, from where CUTLASS_AMPERE_EXAMPLE says."""
    import importlib.util

    import cuda.bindings.driver as cuda
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    spec = importlib.util.spec_from_file_location("flash_attention_v2", os.environ["CUTLASS_AMPERE_EXAMPLE"])
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in _qkv(depth))
    out = torch.empty_like(q)
    tensors = [
        from_dlpack(tensor, assumed_align=16)
        .mark_layout_dynamic(leading_dim=3)
        .mark_compact_shape_dynamic(mode=3, stride_order=tensor.dim_order(), divisibility=8)
        for tensor in (q, k, v, out)
    ]
    kernel = example.FlashAttentionForwardAmpere(depth, 128, 64, 128, causal)
    scale = depth**-0.5
    compiled = cute.compile(kernel, *tensors, scale, cuda.CUstream(torch.cuda.current_stream().cuda_stream))

    def launch() -> torch.Tensor:
        compiled(*tensors, scale, cuda.CUstream(torch.cuda.current_stream().cuda_stream))
        return out.transpose(1, 2)

    return launch


def __getattr__(name: str) -> Callable[[], Launch]:
    if match := re.fullmatch(r"flash4(_sm120)?_d(64|128)(_causal)?", name):
        return lambda: flash4(int(match[2]), bool(match[3]), bool(match[1]))
    if match := re.fullmatch(r"cute_ampere_d(64|128)(_causal)?", name):
        return lambda: cute_ampere(int(match[1]), bool(match[2]))
    raise AttributeError(name)
