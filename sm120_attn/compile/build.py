"""Build the host function of a config: what it takes, and which sources its code is made of.

    host, arguments = build(config)              # a @cute.jit callable, and fake arguments of dynamic shape
    compiled = cute.compile(host, *arguments)    # see compiler.py for the options
    compiled(q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, cache_seqlens, block_table, sinks, q_descale, k_descale,
             v_descale, max_seqlen_q, scale_log2, softcap, window_left, window_right, stream)

Arguments of a compiled attention kernel, in this order. All shapes and strides are dynamic, also the number of heads:

    q, o           [B, Sq, H, D]; varlen: [total_q, H, D]. q, k, v: bf16, fp16 or FP8; o: config.output_dtype
    k, v           [B, Sk, Hkv, D]; varlen: [total_k, Hkv, D]. H is a multiple of Hkv
                   last stride 1; other strides multiples of 16 bytes; address 16-byte aligned
    lse            fp32 [B, H, Sq], varlen [H, total_q], contiguous along the last axis; None without config.lse
    cu_seqlens_q   int32 [B + 1], non-decreasing, from 0; None without config.varlen. cu_seqlens_k the same
    cache_seqlens  int32 [B], keys of each sequence in the cache, read on the device; None without config.cache_rows.
                   Then k and v are [pages, page_size, Hkv, D], or [B, S, Hkv, D] without config.paged
    block_table    int32 [B, most pages], the pages of each sequence; None without config.paged
    sinks          fp32 [H], a logit of each query head; None without config.sinks
    q_descale      fp32 [B, H], the factor of FP8 values, greater than 0. Strides may be 0: one number for all. None
                   without config.fp8. k_descale, v_descale: [B, Hkv], the same, and with config.kv_dtype
    max_seqlen_q   int32, rows of the longest query sequence (Sq without varlen); sets the grid
    scale_log2     fp32, softmax scale * log2(e), positive
    softcap        fp32, the cap; ignored without config.softcap
    window_left    int32, keys to the left that a query sees; -1: all. Ignored without config.window
    window_right   the same to the right; causal kernels take it as 0
    stream         a CUstream

Quantisation kernels (QuantizeConfig) take these; None where there is no such argument:

    x0, x1, x2     the tensors, [B, S, H, D] or varlen [total, H, D]; strides as those of q; y0, y1, y2: the outputs
    descale0, ...  fp32 [B, H] of each tensor, contiguous
    starts0        int32 [B + 1], cu_seqlens of x0; starts1: of x1 and x2. None without config.varlen
    partials       int32, scratch memory of Cut.scratch words. None with config.whole
    pieces, chunks, group      see quantization.config.Cut
    stream         a CUstream

Decode kernels (DecodeConfig) take these; None where there is no such argument:

    q, o, lse, cu_seqlens_q, cache_seqlens, block_table, sinks     as above; q and o bf16 or fp16
    k, v           as above with a cache
    partials       fp32, scratch memory of config.split, see kv_cache.combine
    max_seqlen_q, num_splits, page_shift, scale_log2, softcap, window_left, window_right, stream

Append kernels (AppendConfig) take these:

    q, q_out       as above; None without config.rotary. q_out: the turned copy of q
    k_new, v_new   [B, S, Hkv, D], or varlen [total_q, Hkv, D], with the strides of q; bf16 or fp16
    k, v           as above with a cache
    cache_seqlens  int32 [B], keys before the new ones; new_seqlens: int32 [B], written: those with the new ones
    block_table, cu_seqlens_q, k_descale, v_descale      as above
    rotary_cos, rotary_sin     [positions, rotary columns / 2]; None without config.rotary
    tokens         int32, rows of q and k_new, of the sequences that have fewer as many as the most; sets the grid
    seqlen_q, seqlen_new       int32, queries and new keys of a sequence; ignored with config.varlen
    q_step         int32, positions from one query to the next: 1, or 0 where all have the first one's
    page_shift, stream

Probes (ProbeConfig) take source and target (int32 of one dimension), blocks (int32) and the stream.

A row that sees no key gets O = 0 and LSE = -inf. The caller must not launch where total_q, B or max_seqlen_q is 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .. import config as attention
from ..config import Config
from ..kv_cache import config as kv_cache
from ..kv_cache.append import config as append
from ..kv_cache.append.config import AppendConfig
from ..kv_cache.config import DecodeConfig
from ..quantization import config as quantization
from ..quantization.config import QuantizeConfig
from ..verify.hardware_probes import config as probes
from ..verify.hardware_probes.config import ProbeConfig

KernelConfig = Config | DecodeConfig | AppendConfig | QuantizeConfig | ProbeConfig
PACKAGE = Path(__file__).parents[1]
SHARED_SOURCES = ("config.py", "kernels", "compile")  # files and folders of the package; of every kernel


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels with one type of config. sources: files that make their code, beside SHARED_SOURCES."""

    why_not: Callable[[Any], str | None]
    build: Callable[[Any], tuple[Any, tuple[Any, ...]]]
    sources: tuple[str, ...] = ()


def why_not(config: KernelConfig) -> str | None:
    """Say why this kernel cannot be built; None if it can be."""
    return FAMILIES[type(config)].why_not(config)


def build(config: KernelConfig) -> tuple[Any, tuple[Any, ...]]:
    """The host function of a kernel, and fake arguments to compile it with. Raises ValueError if it cannot be built."""
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    return FAMILIES[type(config)].build(config)


@cache
def source_hash(kind: type) -> str:
    """Hash of all sources that make the kernels of this type of config. Other files of the package do not count."""
    digest = hashlib.sha256()
    for file in source_files(kind):
        digest.update(f"{file.relative_to(PACKAGE)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def source_files(kind: type) -> Iterator[Path]:
    """The files of source_hash, always in the same order."""
    for name in SHARED_SOURCES + FAMILIES[kind].sources:
        path = PACKAGE / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _build_attention(config: Config) -> tuple[Any, tuple[Any, ...]]:
    from .fake_arguments import fake_arguments

    kernel: Any
    if config.kernel == "tma":
        from ..kernels.attention_tma import AttentionTma

        kernel = AttentionTma(config)
    else:
        from ..kernels.attention_cp_async import AttentionCpAsync

        kernel = AttentionCpAsync(config)
    return kernel, fake_arguments(config)


def _build_decode(config: DecodeConfig) -> tuple[Any, tuple[Any, ...]]:
    from ..kv_cache.kernel import Decode
    from .fake_arguments import fake_decode_arguments

    return Decode(config), fake_decode_arguments(config)


def _build_append(config: AppendConfig) -> tuple[Any, tuple[Any, ...]]:
    from ..kv_cache.append.kernel import Append
    from .fake_arguments import fake_append_arguments

    return Append(config), fake_append_arguments(config)


def _build_quantize(config: QuantizeConfig) -> tuple[Any, tuple[Any, ...]]:
    from ..quantization.kernel import Quantize
    from .fake_arguments import fake_quantize_arguments

    return Quantize(config), fake_quantize_arguments(config)


def _build_probe(config: ProbeConfig) -> tuple[Any, tuple[Any, ...]]:
    from ..verify.hardware_probes.kernel import Probe
    from .fake_arguments import fake_probe_arguments

    return Probe(config), fake_probe_arguments()


FAMILIES: dict[type, Family] = {
    Config: Family(attention.why_not, _build_attention),
    DecodeConfig: Family(
        kv_cache.why_not, _build_decode, tuple(f"kv_cache/{name}.py" for name in ("config", "kernel", "combine"))
    ),
    AppendConfig: Family(
        append.why_not,
        _build_append,
        ("kv_cache/config.py", *(f"kv_cache/append/{name}.py" for name in ("config", "kernel"))),
    ),
    QuantizeConfig: Family(quantization.why_not, _build_quantize, ("quantization/config.py", "quantization/kernel.py")),
    ProbeConfig: Family(
        probes.why_not,
        _build_probe,
        ("verify/hardware_probes/config.py", "verify/hardware_probes/kernel.py"),
    ),
}
