"""Build the host function of a config: its parameters, and the sources of its code.

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
    q_descale      fp32 [B, H], the factor of FP8 values, greater than 0. Strides of 0 mean one number for all. None
                   without config.fp8. k_descale, v_descale: the same for [B, Hkv]; also present with config.kv_dtype
    max_seqlen_q   int32, rows of the longest query sequence (Sq without varlen); sets the grid
    scale_log2     fp32, softmax scale * log2(e), positive
    softcap        fp32, the cap; ignored without config.softcap
    window_left    int32, keys to the left that a query sees; -1: all. Ignored without config.window
    window_right   the same to the right; 0 in causal kernels
    stream         a CUstream

Arguments of quantisation kernels (QuantizeConfig); an absent argument is None:

    x0, x1, x2     the tensors, [B, S, H, D] or varlen [total, H, D]; strides as those of q; y0, y1, y2: the outputs
    descale0, ...  fp32 [B, H] of each tensor, contiguous
    starts0        int32 [B + 1], cu_seqlens of x0; starts1: of x1 and x2. None without config.varlen
    partials       int32, scratch memory of Cut.scratch words. None with config.whole
    pieces, chunks, group      see kernels.quantize.config.Cut
    stream         a CUstream

Arguments of decode kernels (DecodeConfig); an absent argument is None:

    q, o, lse, cu_seqlens_q, cache_seqlens, block_table, sinks     as for attention; q and o bf16 or fp16
    k, v           as for attention with a cache
    k_scales       e4m3 or e8m0 as bytes, [pages, page_size, Hkv, D / 16 or 32]; None without a block-scaled kv_dtype.
                   v_scales the same. k, v: [pages, page_size, Hkv, D / 2] bytes with "nvfp4"
    partials       fp32, scratch memory of config.split, see kernels.decode.combine
    max_seqlen_q, num_splits, page_shift, scale_log2, softcap, window_left, window_right, stream

Arguments of append kernels (AppendConfig):

    q, q_out       as for attention; None without config.rotary. q_out: copy of q with rotary embedding
    k_new, v_new   [B, S, Hkv, D], or varlen [total_q, Hkv, D], with strides like those of q; bf16 or fp16
    k, v           as for attention with a cache
    cache_seqlens  int32 [B], keys without the new keys. new_seqlens: int32 [B], output, keys with the new keys
    block_table, cu_seqlens_q, k_descale, v_descale, k_scales, v_scales      as for attention and decode
    k_mean         fp32 [B, Hkv, D], after v_scales; None without config.smooth
    rotary_cos, rotary_sin     [positions, rotary columns / 2]; None without config.rotary
    tokens         int32, sets the grid: total_q, or without config.varlen B * max(S, and with config.rotary Sq)
    seqlen_q, seqlen_new       int32, queries and new keys of a sequence; ignored with config.varlen
    q_step         int32, positions from one query to the next: 1, or 0 if all queries have the position of the first
    page_shift, stream

Arguments of probes (ProbeConfig): source and target (int32 of one dimension), blocks (int32) and the stream.

For a row that sees no key, O is 0 and LSE is -inf. The caller must not launch if total_q, B or max_seqlen_q is 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..config import Config
from ..config import why_not as why_not_attention
from ..kernels.append.config import AppendConfig
from ..kernels.append.config import why_not as why_not_append
from ..kernels.decode.config import DecodeConfig
from ..kernels.decode.config import why_not as why_not_decode
from ..kernels.probe.config import ProbeConfig
from ..kernels.probe.config import why_not as why_not_probe
from ..kernels.quantize.config import QuantizeConfig
from ..kernels.quantize.config import why_not as why_not_quantize

KernelConfig = Config | DecodeConfig | AppendConfig | QuantizeConfig | ProbeConfig
PACKAGE = Path(__file__).parents[1]
SHARED_SOURCES = ("config.py", "kernels/*.py", "compile/*.py")  # files that every kernel depends on


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Kernels with one type of config. sources: files that determine their code, besides SHARED_SOURCES."""

    why_not: Callable[[Any], str | None]
    sources: tuple[str, ...] = ()


FAMILIES: dict[type, KernelFamily] = {
    Config: KernelFamily(why_not_attention),
    DecodeConfig: KernelFamily(why_not_decode, ("kernels/decode/*.py",)),
    AppendConfig: KernelFamily(why_not_append, ("kernels/append/*.py", "kernels/decode/config.py")),
    QuantizeConfig: KernelFamily(why_not_quantize, ("kernels/quantize/*.py",)),
    ProbeConfig: KernelFamily(why_not_probe, ("kernels/probe/*.py",)),
}


def why_not(config: KernelConfig) -> str | None:
    """Return the reason why this kernel cannot be built, or None."""
    return FAMILIES[type(config)].why_not(config)


def build(config: KernelConfig) -> tuple[Any, tuple[Any, ...]]:
    """Make a kernel's host function, and fake arguments to compile it. Raises ValueError if it cannot be built."""
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    from ..kernels.append.kernel import Append
    from ..kernels.attention_cp_async import AttentionCpAsync
    from ..kernels.attention_tma import AttentionTma
    from ..kernels.decode.kernel import Decode
    from ..kernels.probe.kernel import ProbeKernel
    from ..kernels.quantize.kernel import Quantize
    from . import fake_arguments as fake

    attention = AttentionTma if getattr(config, "kernel", "") == "tma" else AttentionCpAsync
    made: dict[type, tuple[Any, Any]] = {
        Config: (attention, fake.fake_arguments),
        DecodeConfig: (Decode, fake.fake_decode_arguments),
        AppendConfig: (Append, fake.fake_append_arguments),
        QuantizeConfig: (Quantize, fake.fake_quantize_arguments),
        ProbeConfig: (ProbeKernel, fake.fake_probe_arguments),
    }
    function, arguments = made[type(config)]
    return function(config), arguments(config)


@cache
def source_hash(kind: type) -> str:
    """Compute the SHA-256 of all sources that determine the code of kernels with this type of config."""
    digest = hashlib.sha256()
    for file in source_files(kind):
        digest.update(f"{file.relative_to(PACKAGE)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def source_files(kind: type) -> Iterator[Path]:
    """Yield the files of source_hash, always in the same order."""
    for pattern in SHARED_SOURCES + FAMILIES[kind].sources:
        yield from sorted(PACKAGE.glob(pattern))
