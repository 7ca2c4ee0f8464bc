"""Errors of attention over KV caches in BF16, FP8, MXFP8 and NVFP4, on twelve kinds of data.

    CUTE_DSL_ARCH=sm_90a python -m benchmarks sm120_kv_formats_error [--out FILE]
    python -m benchmarks sm120_kv_formats_error --format-only      # without a GPU: without the kernel's own errors

`format`: attention in float64 over the rounded K and V, against attention in float64 over K and V as drawn, which are
BF16 numbers. `own`: the kernel's result against the first of these. Each as rms of O over that of O in float64, and as
`worst`: the largest error of a row over its largest value. Factors of FP8 and NVFP4 are those that bring the largest
value of a head to the largest of the format. `nvfp4, smoothed`: of each key the mean key of its head is subtracted
before it is rounded; softmax does not see that, so the kernel is the same one.

Data is random, seeded, and of no model: "key bias" and "outlier channels" are there because keys of language models
have them.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from benchmarks.common import environment

NEEDS = ("gpu", "torch", "cutlass")
OFFLINE = {"--format-only": ("torch",)}
QUICK = ("--format-only",)
BATCH, QUERIES, HEADS, HEADS_KV, KEYS, DIM = 2, 2, 8, 2, 4096, 128  # 8 rows for each key head
SMALL = {"KEYS": 256}
FORMATS = ("bf16", "e4m3", "mxfp8", "nvfp4", "nvfp4, smoothed")
LARGEST = {"e4m3": 448.0, "nvfp4": 6.0 * 448.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format-only", action="store_true", help="without a GPU: not the kernel's own errors")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    device = "cpu" if arguments.format_only else "cuda"
    rows = [row_of(torch, kind, device) for kind in KINDS]
    packages = ("torch",) if arguments.format_only else ("torch", "nvidia-cutlass-dsl")
    shape = {"batch": BATCH, "queries": QUERIES, "heads": HEADS, "heads_kv": HEADS_KV, "keys": KEYS, "head_dim": DIM}
    return {
        "what": "errors of attention over KV caches of four formats, on twelve kinds of data",
        "summary": summary(rows),
        "environment": environment(*packages),
        "executed": not arguments.format_only,
        "shape": shape,
        "rows": rows,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst error of each format and figure, over all kinds of data."""
    return {
        "worst": {
            name: {
                f"{of}_{figure}": max(row[name][of][figure] for row in rows)
                for of in ("format", "own")
                if all(of in row[name] for row in rows)
                for figure in ("rms", "worst")
            }
            for name in FORMATS
        }
    }


# --- data --------------------------------------------------------------------------------------------------------


def drawn(torch: Any, kind: str) -> tuple[Any, Any, Any]:
    """Q, K and V, [batch, rows, heads, head_dim], as BF16 numbers in float64."""
    generator = torch.Generator().manual_seed(45)
    q, k, v = (
        torch.randn(BATCH, rows, heads, DIM, generator=generator, dtype=torch.float64)
        for rows, heads in ((QUERIES, HEADS), (KEYS, HEADS_KV), (KEYS, HEADS_KV))
    )
    k[:, :, :, :], v[:, :, :, :], q[:, :, :, :] = KINDS[kind](torch, generator, q, k, v)
    return tuple(t.to(torch.bfloat16).double() for t in (q, k, v))  # type: ignore[return-value]


def _channels(torch: Any, generator: Any, factor: float) -> Any:
    """Factors of the columns: of a few of each head `factor`, of the others 1."""
    wide = torch.rand(1, 1, HEADS_KV, DIM, generator=generator, dtype=torch.float64) < 0.04
    return torch.where(wide, factor, 1.0)


def _hidden(k: Any) -> Any:
    k = k.abs()
    k[:, : KEYS // 2] *= -1
    return k


def _outlier_keys(k: Any) -> Any:
    k = k.clone()
    k[:, ::37] *= 60
    return k


# Each gives K, V and Q.
KINDS: dict[str, Any] = {
    "normal": lambda torch, g, q, k, v: (k, v, q),
    "large scores": lambda torch, g, q, k, v: (k, v, q * 250),
    "peaked": lambda torch, g, q, k, v: (k, v, q * 3),
    "equal keys": lambda torch, g, q, k, v: (k * 0 + 0.5, v, q),
    "small": lambda torch, g, q, k, v: (k * 1e-3, v * 1e-3, q),
    "outlier keys": lambda torch, g, q, k, v: (_outlier_keys(k), v, q),
    "outlier channels": lambda torch, g, q, k, v: (k * _channels(torch, g, 12.0), v, q),
    "key bias": lambda torch, g, q, k, v: (
        k + 6 * torch.randn(1, 1, HEADS_KV, DIM, generator=g, dtype=k.dtype), v, q,
    ),
    "values with a mean": lambda torch, g, q, k, v: (k, v * 0.5 + 2, q),
    "values of one": lambda torch, g, q, k, v: (k, v * 0 + 1, q),
    "first half hidden": lambda torch, g, q, k, v: (_hidden(k), v, q.abs() * 8),
    "heavy tails": lambda torch, g, q, k, v: (
        k / (0.1 + torch.rand(k.shape, generator=g, dtype=k.dtype)),
        v / (0.1 + torch.rand(v.shape, generator=g, dtype=v.dtype)), q,
    ),
}  # fmt: skip


# --- errors ------------------------------------------------------------------------------------------------------


def attended(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention in float64, causal with the last query at the last key."""
    from sm120_attn.verify.reference import attention_reference

    return attention_reference(q, k, v, causal=True)[0]


def errors(found: Any, wanted: Any) -> dict[str, float]:
    off = found - wanted
    return {
        "rms": float(off.square().mean().sqrt() / wanted.square().mean().sqrt()),
        "worst": float((off.abs().amax(-1) / wanted.abs().amax(-1)).max()),
    }


def row_of(torch: Any, kind: str, device: str) -> dict[str, Any]:
    q, k, v = drawn(torch, kind)
    exact = attended(torch, q, k, v)
    row: dict[str, Any] = {"kind": kind}
    for name in FORMATS:
        mean = k.float().mean(1, keepdim=True).double() if "smoothed" in name else torch.zeros(())
        caches = [rounded(torch, t, name.partition(",")[0]) for t in (k - mean, v)]
        given = attended(torch, q, *(values for values, _ in caches))
        row[name] = {"format": errors(given, exact)}
        if device == "cuda":
            row[name]["own"] = errors(executed(torch, q, caches).double().cpu(), given)
    best = " ".join(f"{name} {row[name]['format']['rms']:.1e}" for name in FORMATS)
    print(f"{kind}: {best}" + (f"; own {row['nvfp4']['own']['rms']:.1e}" if device == "cuda" else ""), flush=True)
    return row


def rounded(torch: Any, values: Any, kv_dtype: str) -> tuple[Any, dict[str, Any]]:
    """What a cache of this format has, in float64; and its tensors: cache, scales, descale."""
    from sm120_attn.verify import block_scaled

    if kv_dtype == "bf16":
        return values.to(torch.bfloat16).double(), {"cache": values.to(torch.bfloat16)}
    largest = values.abs().amax((1, 3)).clamp(min=1e-30)
    descale = (largest / LARGEST[kv_dtype]).float() if kv_dtype in LARGEST else torch.ones(largest.shape)
    factor = descale[:, None, :, None]
    if kv_dtype == "e4m3":
        codes = (values.float() / factor).clamp(-448, 448).to(torch.float8_e4m3fn)
        return codes.double() * factor.double(), {"cache": codes, "descale": descale}
    data, scales = block_scaled.quantised(values, kv_dtype, descale[:, None].expand(values.shape[:-1]))
    real = block_scaled.dequantised(data, scales, kv_dtype).double() * factor.double()
    cache = data if kv_dtype == "nvfp4" else data.view(torch.float8_e4m3fn)
    return real, {"cache": cache, "scales": scales, "descale": descale}


def executed(torch: Any, q: Any, caches: list[tuple[Any, dict[str, Any]]]) -> Any:
    """The kernel's O."""
    from sm120_attn import attention_with_kv_cache

    given = {f"{n}_{part}": t.cuda() for n, (_, parts) in zip("kv", caches, strict=True) for part, t in parts.items()}
    lengths = torch.full((BATCH,), KEYS, dtype=torch.int32, device="cuda")
    return attention_with_kv_cache(
        q.to(torch.bfloat16).cuda(), **given, cache_seqlens=lengths, scale=1 / math.sqrt(DIM)
    )
