"""The other attention kernels that `sm120_graph.py` times, as installed here. None of their code is in this repository.

Each peer is a function (q, k, v, causal) -> launch; making it compiles, the launch is timed. Tensors are
[batch, sequence, heads, head_dim]. Where a peer is not to be had, its function raises Missing.

    torch   scaled_dot_product_attention with the FLASH_ATTENTION backend
    fa4     FlashAttention 4's SM120 path: FLASH_ATTENTION_ARCH=sm_120 FLASH_ATTENTION_NUM_SMS=132 (132: of the
            H100 that stands in) CUTE_DSL_ARCH=sm_90a in the environment; package flash-attn-4
    frost   cudnn/ of cudnn-frontend's wheel (1.32.0), named by SM120_PEER_FROST; the packed fp32 arithmetic
            that sm_90a lacks is replaced by two scalar operations, which sm_120 makes of it as well

cudnn-frontend's own way to its kernel needs the cuDNN library; here it gets the cheapest that there is: the
launch of `sm120_attn.compile.abi` with all but addresses filled in before, and an output allocated per call. It looks
at no argument, so that it has less to do than our call.
"""

from __future__ import annotations

import math
import os
import sys
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.sm120.serving_peers import Launch, Missing


def torch_flash(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    from sm120_attn.verify import bench

    return bench.torch_flash(q, k, v, causal)


def fa4(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    if os.environ.get("FLASH_ATTENTION_ARCH") != "sm_120":
        raise Missing("FLASH_ATTENTION_ARCH=sm_120 is not set")
    try:
        from flash_attn.cute import flash_attn_func
    except ImportError as error:
        raise Missing(f"flash_attn.cute: {error}") from None
    return lambda: _first(flash_attn_func(q, k, v, causal=causal))


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def frost(q: Any, k: Any, v: Any, causal: bool) -> Launch:
    import torch

    from sm120_attn.compile import abi

    entry, layout, _ = _frost_kernel(q.shape[-1], causal)
    lengths = torch.zeros(1, dtype=torch.int32, device=q.device)
    scale_log2 = math.log2(math.e) / math.sqrt(q.shape[-1])
    values: list[Any] = []
    for slot, tensor in zip(layout.slots, (q, k, v, q, lengths, lengths), strict=False):
        values += abi.tensor_values(slot, tensor.data_ptr(), tensor.shape, tensor.stride())
    buffer = abi.ArgumentBuffer(layout)
    buffer.fill([*values, scale_log2, 0, 0, 0])
    places = layout.places

    def launch() -> Any:
        o = torch.empty_like(q)
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o)):
            buffer.words[places[name]] = tensor.data_ptr()
        buffer.words[places["stream"]] = torch._C._cuda_getCurrentRawStream(0)
        entry(buffer.address)
        if buffer.error.value:
            raise RuntimeError(f"CUDA error {buffer.error.value}")
        return o

    return launch


@cache
def _frost_kernel(head_dim: int, causal: bool) -> Any:
    import cutlass

    module = _frost_module()
    kernel = module.SM120FusedMultiHeadAttentionForward(
        in_dtype=cutlass.BFloat16,
        out_dtype=cutlass.BFloat16,
        is_causal=causal,
        sched_policy=module.PARAMS.sched_policy if not causal else _frost_lpt(),
        head_tile_qk=head_dim,
        head_tile_v=head_dim,
    )
    return _compile_frost(kernel, head_dim)


def _frost_lpt() -> int:
    from cudnn.frost.tile_dsl.scheduler import SCHED_LPT_L2

    return SCHED_LPT_L2


@cache
def _frost_module() -> Any:
    named = os.environ.get("SM120_PEER_FROST")
    if not named or not (Path(named) / "sdpa").is_dir():
        raise Missing("SM120_PEER_FROST does not name the folder cudnn/ of cudnn-frontend's wheel")
    # Its packages' __init__ files load the cuDNN library; the kernels do not need it.
    for package in ("cudnn", "cudnn.frost", "cudnn.sdpa", "cudnn.sdpa.fwd", "cudnn.sdpa.fwd.kernels"):
        module = types.ModuleType(package)
        module.__path__ = [str(Path(named).joinpath(*package.split(".")[1:]))]
        sys.modules[package] = module
    vars(sys.modules["cudnn"])["_pybind_module"] = types.ModuleType("cudnn._pybind_module")
    from cutlass.experimental import primitives

    def fma(a: Any, b: Any, c: Any, **_: Any) -> Any:
        return tuple(x * y + z for x, y, z in zip(a, b, c, strict=True))

    def mul(a: Any, b: Any, **_: Any) -> Any:
        return tuple(x * y for x, y in zip(a, b, strict=True)) if isinstance(a, tuple) else a * b

    kept = primitives.fma_packed_f32x2, primitives.mul_packed_f32x2
    primitives.fma_packed_f32x2, primitives.mul_packed_f32x2 = fma, mul
    try:
        import cudnn.sdpa.fwd.kernels.sm120.prefill_f16 as module
    finally:
        primitives.fma_packed_f32x2, primitives.mul_packed_f32x2 = kept
    return module


def _compile_frost(kernel: Any, head_dim: int) -> tuple[Any, Any, Any]:
    """Entry, layout and what keeps them alive, as sm120_attn.compile.cache has them for our kernels."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

    from sm120_attn.compile import abi

    @cute.jit
    def host(q, k, v, o, seq_q, seq_k, scale, max_sq, ctas, stream):
        kernel(q, k, v, o, None, None, seq_q, seq_k, scale, max_sq, None, None, None, ctas, stream, True)

    lengths = [make_fake_tensor(cutlass.Int32, (1,), stride=(1,), assumed_align=4) for _ in range(2)]
    scalars = (cutlass.Float32(1.0), cutlass.Int32(0), cutlass.Int32(0))
    arguments = (*(_fake(head_dim) for _ in range(4)), *lengths, *scalars, make_fake_stream())
    function = cute.compile(host, *arguments, options=_options())
    executor = function.to(None)
    slots = abi.slots_of(list(function.execution_args.signature.parameters), arguments)
    return executor.capi_func, abi.Layout(slots), (function, executor)


def _fake(head_dim: int) -> Any:
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_tensor

    shape = (*(cute.sym_int32() for _ in range(3)), head_dim)
    stride = (*(cute.sym_int64(divisibility=8) for _ in range(3)), 1)
    return make_fake_tensor(cutlass.BFloat16, shape, stride=stride, assumed_align=16)


def _options() -> str:
    return f"--gpu-arch {os.environ.get('CUTE_DSL_ARCH', 'sm_90a')}"


PEERS: dict[str, Callable[[Any, Any, Any, bool], Launch]] = {
    "torch": torch_flash,
    "fa4": fa4,
    "frost": frost,
}
