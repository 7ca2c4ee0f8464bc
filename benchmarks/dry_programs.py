"""Programs of libraries of Triton kernels, for the benchmark dry_run: a group a process.

    tritonhook run --arch sm_90a -m benchmarks dry_programs GROUP

Each prints a line of JSON: how it ended, and how long it took. The groups of verify/programs.py are here too.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import re
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.verify import programs
from benchmarks.verify.programs import backward, randn

Programs = dict[str, Callable[[], Any]]
RESULT = None
GPU = "cuda"


def without_own_module(package: str) -> None:
    """Let the modules of a package be imported without its `__init__`."""
    found = importlib.util.find_spec(package)
    made = sys.modules.setdefault(package, types.ModuleType(package))
    made.__path__ = list(found.submodule_search_locations or ()) if found else []


def flag_gems() -> Programs:
    """Operators of torch that FlagGems has as kernels, by torch's own names."""
    os.environ.setdefault("GEMS_VENDOR", "nvidia")  # else it asks nvidia-smi
    import torch
    import torch.nn.functional as f
    from flag_gems import use_gems

    x, y = (randn(256, 1024) for _ in range(2))
    one = "abs acos angle asinh atan ceil cos cosh erf exp exp2 expm1 i0 isfinite isinf isnan log log10 "
    one += "logical_not neg reciprocal relu rsqrt sgn sigmoid sin sqrt square tan tanh amax amin argmax argmin "
    one += "aminmax floor isneginf log1p round signbit sinh "
    one += "count_nonzero max mean min prod std sum var var_mean median all any trace nan_to_num positive logit"
    two = (
        "add sub mul div eq ne lt le gt ge maximum minimum atan2 copysign hypot logical_and logical_or logaddexp fmin "
    )
    two += "pow remainder isclose"
    nn = "gelu silu elu celu hardsigmoid hardswish leaky_relu log_softmax softmax softplus selu relu6 tanhshrink "
    nn += "softshrink logsigmoid dropout"
    zeros, index = (lambda *shape: torch.zeros(shape, dtype=torch.long, device=GPU)), torch.arange(8, device=GPU)
    image = functools.partial(randn, 2, 16)
    calls = """torch.cumsum(x, -1); torch.cummax(x, -1); torch.cummin(x, -1); torch.sort(x); torch.topk(x, 8);
        torch.flip(x, (0,)); torch.tril(x); torch.triu(x); torch.where(x > 0, x, y); torch.cat((x, y));
        torch.stack((x, y)); x.repeat(2, 2); torch.gather(x, 1, zeros(256, 8)); torch.index_select(x, 0, index);
        x.masked_fill(x > 0, 0.0); torch.clamp(x, -1, 1); torch.bmm(x.view(4, 64, 1024), y.view(4, 1024, 64));
        torch.addmm(randn(256, 256), x, y.T); torch.mm(x, y.T); f.mse_loss(x, y); torch.mv(x, y[0]);
        torch.dot(x[0], y[0]); torch.kron(x[:4, :4], y[:4, :4]); torch.linspace(0, 1, 512, device=GPU);
        torch.arange(512, device=GPU); torch.rand(512, device=GPU); torch.randn(512, device=GPU);
        torch.full((512,), 2.0, device=GPU); f.rms_norm(x, (1024,), y[0]); f.group_norm(randn(4, 32, 64), 8);
        f.batch_norm(randn(4, 32, 64), y[0, :32], y[1, :32]); f.conv1d(image(128), randn(16, 16, 3));
        f.conv2d(image(32, 32), randn(16, 16, 3, 3)); f.embedding(zeros(8), x); f.cross_entropy(x, zeros(256));
        f.glu(x); f.pad(x, (1, 1)); f.max_pool2d(image(32, 32), 2); f.avg_pool2d(image(32, 32), 2);
        torch.addcdiv(x, x, y); torch.addcmul(x, x, y); torch.addmv(x[:, 0], x, y[0]);
        torch.addr(randn(256, 256), x[:, 0], y[:, 0]); torch.diag(x[0]); torch.diag_embed(x[:4]);
        torch.baddbmm(randn(4, 64, 64), x.view(4, 64, 1024), y.view(4, 1024, 64)); torch.eye(128, device=GPU);
        torch.index_add(x, 0, torch.arange(256, device=GPU), y); torch.index_put(x, (index,), y[0]);
        torch.lerp(x, y, 0.5); torch.logspace(0, 1, 512, device=GPU); f.margin_ranking_loss(x, y, x);
        torch.normal(0.0, 1.0, (512,), device=GPU); f.one_hot(zeros(512), 8); torch.polar(x.float(), y.float());
        f.prelu(x, y[0, :1]); torch.quantile(x.float(), 0.5, -1); torch.roll(x, 3, 1);
        torch.scatter(x, 1, zeros(256, 8), y[:, :8]); x.scatter_add_(1, zeros(256, 8), y[:, :8]);
        torch.select_scatter(x, y[0], 0, 3); f.soft_margin_loss(x, y); f.threshold(x, 0.1, 1.0);
        torch.tile(x, (2, 1)); torch.linalg.vector_norm(x, dim=-1); torch.vstack((x, y))"""
    known = locals() | {"GPU": GPU, "randn": randn}
    rows: dict[str, Callable[[], Any]] = {
        re.split(r"\W+", call)[-1].strip("_"): functools.partial(eval, text, known)
        for text in map(str.strip, calls.split(";"))
        for call in [text.partition("(")[0]]
    }
    rows |= {
        "layer_norm": lambda: backward(f.layer_norm(randn(256, 1024, grad=True), (1024,), y[0], y[1])),
        "attention": lambda: f.scaled_dot_product_attention(*(randn(1, 4, 256, 64) for _ in range(3))),
        "upsample_nearest2d": lambda: f.interpolate(image(32, 32), scale_factor=2),
        "bitwise": lambda: [getattr(i, f"__{name}__")(i) for i in (x.to(torch.int32),) for name in ("and", "or")],
        "reflection_pad": lambda: f.pad(x, (1, 1), "reflect"),
        "replication_pad": lambda: f.pad(x, (1, 1), "replicate"),
        "uniform": lambda: torch.empty(512, device=GPU).uniform_(),
        "upsample_bicubic2d": lambda: f.interpolate(image(32, 32), scale_factor=2, mode="bicubic"),
        "upsample_linear1d": lambda: f.interpolate(image(32), scale_factor=2, mode="linear"),
        "upsample_nearest1d": lambda: f.interpolate(image(32), scale_factor=2),
        "upsample_nearest3d": lambda: f.interpolate(randn(2, 4, 8, 8, 8), scale_factor=2),
        **{name: lambda name=name: getattr(torch, name)(x) for name in one.split()},
        **{name: lambda name=name: getattr(torch, name)(x, y) for name in two.split() if hasattr(torch, name)},
        **{name: lambda name=name: getattr(f, name)(x) for name in nn.split()},
    }

    def within(launch: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> None:
            with use_gems():
                launch()

        return run

    return {name: within(launch) for name, launch in rows.items()}


def flag_gems_values(asserted: bool) -> Programs:
    """Its programs that assert what their kernels store, or the others."""
    return {name: launch for name, launch in flag_gems().items() if (name in ("index_add", "quantile")) == asserted}


def conch() -> Programs:
    import torch
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
    from conch.ops.activation.silu_and_mul import silu_and_mul
    from conch.ops.embedding.rotary_embedding import rotary_embedding
    from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
    from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm
    from conch.ops.quantization.fp8 import scaled_fp8_quant
    from conch.ops.quantization.int8 import scaled_int8_quant
    from conch.ops.vision.nms import nms

    x, weight = (randn(*shape, dtype=torch.float32) for shape in ((128, 1024), (1024,)))
    scale = torch.ones(1, device=GPU)
    return {
        "gelu_tanh_and_mul": lambda: gelu_tanh_and_mul(x),
        "silu_and_mul": lambda: silu_and_mul(x),
        "rms_norm": lambda: rms_norm(x, weight, 1e-5),
        "fused_add_rms_norm": lambda: fused_add_rms_norm(x, x.clone(), weight, 1e-5),
        "gemma_rms_norm": lambda: gemma_rms_norm(x, weight, 1e-5),
        "gemma_rms_norm_residual": lambda: gemma_rms_norm(x, weight, 1e-5, x.clone()),
        "rotary_embedding": lambda: rotary_embedding(
            torch.arange(128, device=GPU), randn(128, 8 * 64), randn(128, 2 * 64), 64, randn(256, 64)
        ),
        "scaled_fp8_quant": lambda: scaled_fp8_quant(x, scale),
        "scaled_int8_quant": lambda: scaled_int8_quant(x, scale),
        "nms": lambda: nms(torch.rand(64, 4, device=GPU), torch.rand(64, device=GPU), 0.5),
    }


def mamba() -> Programs:
    import torch

    without_own_module("mamba_ssm")  # it imports a CUDA extension
    from mamba_ssm.ops.triton.layer_norm import layer_norm_fn, rms_norm_fn
    from mamba_ssm.ops.triton.layernorm_gated import layernorm_fn, rmsnorm_fn
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    def x(*shape: int) -> Any:
        return randn(*shape, dtype=torch.bfloat16, grad=True)

    def single(*shape: int) -> Any:
        return randn(*shape, dtype=torch.float32, grad=True)

    def scan(**options: Any) -> None:
        backward(
            mamba_chunk_scan_combined(
                x(2, 512, 4, 64), x(2, 512, 4), single(4), x(2, 512, 1, 64), x(2, 512, 1, 64), 256, **options
            )
        )

    return {
        "chunk_scan": scan,
        "chunk_scan_all": lambda: scan(D=single(4), z=x(2, 512, 4, 64), dt_bias=single(4), dt_softplus=True),
        "layer_norm": lambda: backward(layer_norm_fn(x(256, 1024), single(1024), single(1024), prenorm=False)),
        "layer_norm_residual": lambda: backward(
            layer_norm_fn(x(256, 1024), single(1024), single(1024), x(256, 1024), prenorm=True)
        ),
        "rms_norm": lambda: backward(rms_norm_fn(x(256, 1024), single(1024), None)),
        "layer_norm_gated": lambda: backward(layernorm_fn(x(256, 1024), single(1024), single(1024), x(256, 1024))),
        "rms_norm_gated": lambda: backward(rmsnorm_fn(x(256, 1024), single(1024), None, x(256, 1024))),
        "selective_state_update": lambda: selective_state_update(
            randn(2, 512, 16),
            *(randn(2, 512) for _ in "xt"),
            randn(512, 16),
            randn(2, 16),
            randn(2, 16),
            D=randn(512),
            dt_bias=randn(512),
        ),
    }


def flash_attn() -> Programs:
    """Its Triton kernels; its attention is CUDA C++."""
    import torch

    without_own_module("flash_attn")  # it imports a CUDA extension
    from flash_attn.ops.triton.cross_entropy import cross_entropy_loss
    from flash_attn.ops.triton.layer_norm import layer_norm_fn, layer_norm_linear_fn, rms_norm_fn
    from flash_attn.ops.triton.rotary import apply_rotary

    def x(*shape: int) -> Any:
        return randn(*shape, dtype=torch.bfloat16, grad=True)

    def norm(of: Callable[..., Any], *more: Any, **options: Any) -> Callable[[], None]:
        return lambda: backward(of(x(256, 1024), x(1024), x(1024), *more, **options))

    def loss(**options: Any) -> Callable[[], None]:
        labels = torch.zeros(64, dtype=torch.long, device=GPU)
        return lambda: backward(cross_entropy_loss(x(64, 4096), labels, **options)[0])

    def rotary(**options: Any) -> Callable[[], None]:
        return lambda: apply_rotary(randn(2, 128, 4, 64), randn(128, 32), randn(128, 32), **options)

    return {
        "layer_norm": norm(layer_norm_fn),
        "layer_norm_residual": norm(layer_norm_fn, x(256, 1024), prenorm=True),
        "layer_norm_dropout": norm(layer_norm_fn, dropout_p=0.1),
        "rms_norm": norm(rms_norm_fn),
        "layer_norm_linear": norm(layer_norm_linear_fn, x(512, 1024), None),
        "cross_entropy": loss(),
        "cross_entropy_smooth": loss(label_smoothing=0.1, lse_square_scale=1e-4),
        "rotary": rotary(),
        "rotary_interleaved": rotary(interleaved=True),
        "rotary_conjugate": rotary(conjugate=True),
    }


def cross_entropy() -> Programs:
    import torch
    from cut_cross_entropy import linear_cross_entropy

    def launch(**options: Any) -> Callable[[], None]:
        def run() -> None:
            e, c = (randn(*shape, dtype=torch.bfloat16, grad=True) for shape in ((512, 256), (4096, 256)))
            backward(linear_cross_entropy(e, c, torch.randint(0, 4096, (512,), device=GPU), **options))

        return run

    return {"plain": launch(), "softcap": launch(softcap=30.0), "unfiltered": launch(filter_eps=None)}


def sage() -> Programs:
    from sageattention import sageattn, sageattn_varlen

    def launch(depth: int, causal: bool) -> Callable[[], Any]:
        return lambda: sageattn(*(randn(1, 4, 512, depth) for _ in range(3)), is_causal=causal)

    def varlen() -> None:
        import torch

        starts = torch.tensor([0, 128, 512], dtype=torch.int32, device=GPU)
        sageattn_varlen(*(randn(512, 4, 64) for _ in range(3)), starts, starts, 384, 384)

    found = {
        f"{depth}{'_causal' * causal}": launch(depth, causal) for depth in (64, 96, 128) for causal in (False, True)
    }
    return {**found, "varlen": varlen}


def bitsandbytes() -> Programs:
    import torch
    from bitsandbytes.backends.triton import kernels_4bit as four
    from bitsandbytes.backends.triton import ops
    from bitsandbytes.functional import create_dynamic_map

    x = randn(256, 1024)
    code = create_dynamic_map().to(GPU)

    def blockwise() -> None:
        packed, absmax = ops.quantize_blockwise(x, code, 256)
        ops.dequantize_blockwise(packed, absmax, code, 256, torch.float16)

    def four_bits(kind: str) -> Callable[[], None]:
        def run() -> None:
            packed, absmax = ops.quantize_4bit(x, 64, kind, torch.uint8)
            ops.dequantize_4bit(packed, absmax, 64, kind, x.shape, torch.float16)

        return run

    def optimizer(name: str) -> Callable[[], None]:
        def run() -> None:
            state = [torch.zeros(size, device=GPU) for size in (4096, 4096, 8192, 4096)]  # ademamix has two in one
            ops.optimizer_update_32bit(
                name, *state[:3], state[3], None, 0.0, 0.0, 0.9, 0.99, 0.0, 0.0, 1e-8, 0.0, 1, 1e-3, 1.0
            )

        return run

    assert four
    optimizers = ("adam", "lion", "momentum", "rmsprop", "adagrad", "ademamix")
    return {"blockwise": blockwise, "fp4": four_bits("fp4"), "nf4": four_bits("nf4")} | {
        name: optimizer(name) for name in optimizers
    }


def torchao() -> Programs:
    import torch
    from torchao.kernel import blockwise_quantization as fp8
    from torchao.kernel import intmm_triton

    intmm_triton.int8_mm_kernel_configs = intmm_triton.int8_mm_kernel_configs[:4]  # of 960; its autotuner is its own
    x, w = randn(256, 512, dtype=torch.bfloat16), randn(512, 512, dtype=torch.bfloat16)
    a, b = (torch.zeros(256, 256, dtype=torch.int8, device=GPU) for _ in range(2))

    def gemm() -> None:
        packed, scale = fp8.fp8_blockwise_act_quant(x)
        weight, scales = fp8.fp8_blockwise_weight_quant(w)
        fp8.blockwise_fp8_gemm(packed, scale, weight, scales)
        fp8.fp8_blockwise_weight_dequant(weight, scales)

    return {
        "blockwise_fp8": gemm,
        "int_matmul": lambda: intmm_triton.int_matmul_cuda(a, b),
        "int_scaled_matmul": lambda: intmm_triton.int_scaled_matmul_cuda(a, b, torch.ones(256, 1, device=GPU)),
    }


def gemlite() -> Programs:
    import torch
    from gemlite.core import DType, GemLiteLinear

    def linear(bits: int, rows: int) -> Callable[[], Any]:
        def run() -> None:
            layer = GemLiteLinear(bits, 128, 1024, 1024, DType.FP16, DType.FP16)
            weights = torch.randint(0, 2**bits - 1, (1024, 1024), device=GPU).to(torch.uint8)
            scales, zeros = (randn(1024 * 1024 // 128, 1) for _ in range(2))
            layer.pack(weights, scales, zeros)
            layer(randn(rows, 1024))

        return run

    return {f"{bits} bits, {rows} rows": linear(bits, rows) for bits in (2, 4, 8) for rows in (1, 8, 64)}


def reported() -> Programs:
    """Kernels of reported regressions."""
    from benchmarks.upgrading.reported import reported

    return reported()


GROUPS: dict[str, Callable[[], Programs]] = {
    **programs.GROUPS,
    "reported": reported,
    "flag_gems": lambda: flag_gems_values(False),
    "flag_gems-values": lambda: flag_gems_values(True),
    "conch": conch,
    "mamba": mamba,
    "cut_cross_entropy": cross_entropy,
    "flash_attn": flash_attn,
    "sageattention": sage,
    "bitsandbytes": bitsandbytes,
    "torchao": torchao,
    "gemlite": gemlite,
}
NEEDS = ("torch", "triton")
QUICK = ("targets",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", choices=list(GROUPS))
    parser.add_argument("--real", action="store_true", help="shapes of a training step")
    parser.add_argument("--few", type=int, metavar="N", help="the first N programs only")
    parser.add_argument("--shard", metavar="I/N", help="every N-th program, from number I on")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="of each program")
    parser.add_argument("--until", type=float, metavar="SECONDS", help="after these no program is begun")


def run(arguments: argparse.Namespace) -> None:
    import torch

    torch.manual_seed(0)
    if arguments.real:
        programs.take_real_shapes()
    group = GROUPS[arguments.group]()
    if arguments.real:
        group.pop("multi_token_attention", None)  # Triton and ptxas take many minutes for it at this shape
    first, step = map(int, arguments.shard.split("/")) if arguments.shard else (0, 1)
    for line in ended(dict(list(group.items())[: arguments.few][first::step]), arguments.limit, arguments.until):
        print(json.dumps(line), flush=True)


def ended(group: Programs, limit_s: float | None = None, until_s: float | None = None) -> Iterator[dict[str, Any]]:
    """Run the programs, and say how each ended."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"over {limit_s:g} s")

    signal.signal(signal.SIGALRM, stop)
    began = time.perf_counter()
    for name, launch in group.items():
        started, why = time.perf_counter(), None
        if until_s is not None and started - began > until_s - 20:
            yield {"program": name, "seconds": 0.0, "why": "not begun", "launches": 0}
            continue
        emulated = sys.modules.get("tritonhook.children.dry_launches")
        before = emulated.launches.executed if emulated is not None else 0
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s or 0)
            launch()
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        executed = emulated.launches.executed - before if emulated is not None else 0
        yield {"program": name, "seconds": time.perf_counter() - started, "why": why, "launches": executed}
