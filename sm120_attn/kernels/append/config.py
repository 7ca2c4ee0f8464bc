"""AppendConfig: all compile-time parameters of a kernel that appends to a KV cache. Imports no cutlass, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ...config import ELEMENT_BYTES, PACKED_COLUMNS, SCALE_COLUMNS
from ..decode.config import why_not_cache

THREADS = 128
CHUNK = 8  # columns of a row that one thread copies: 16 bytes of the new keys and values
ROTARY = ("", "half", "interleaved")
ROTARY_STEP = 16  # must divide the number of rotary columns, so that each half of them consists of whole chunks


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """One append kernel. Shapes, strides, lengths and the number of rotary columns are arguments of its calls.

    arch           target of ptxas, as in attention's Config
    dtype          dtype of Q and of the new keys and values: "bf16" or "fp16"
    kv_dtype       format of the cache. "": dtype; "e4m3": values are divided by the descale and rounded; "mxfp8" and
                   "nvfp4": values are also divided by a scale of their block, which is written to the scales
    head_dim       32 to 256 in steps of 8
    rotary         "half": column i is rotated with column i + half; "interleaved": columns 2i and 2i + 1 are rotated;
                   "": none. With rotary embedding the kernel also makes a rotated copy of Q
    table_dtype    dtype of cosines and sines: "" for the same as dtype, or "fp32"
    varlen         Q and the new keys are packed, [total, H, D], with cu_seqlens_q; else [B, S, H, D]
    paged          the cache is [pages, page_size, Hkv, D] with a table; else [B, S, Hkv, D]
    smooth         k_mean, one vector for each key head, is subtracted from the keys before they are rounded
    """

    arch: str = "sm_120a"
    dtype: str = "bf16"
    kv_dtype: str = ""
    head_dim: int = 128
    rotary: str = ""
    table_dtype: str = ""
    varlen: bool = False
    paged: bool = False
    smooth: bool = False

    @property
    def output_bytes(self) -> int:
        """Bytes of an element of Q, and of the new keys and values."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def cache_bytes(self) -> int:
        """Bytes of an element of the cache."""
        return ELEMENT_BYTES[self.kv_dtype or self.dtype]

    @property
    def block_chunks(self) -> int:
        """Number of chunks that share a scale. Neighbouring threads copy them. 0 without scales."""
        return SCALE_COLUMNS.get(self.kv_dtype, 0) // CHUNK

    @property
    def packed(self) -> int:
        """Values in an element of the cache."""
        return PACKED_COLUMNS.get(self.kv_dtype, 1)

    @property
    def chunks(self) -> int:
        """Number of chunks of a row."""
        return self.head_dim // CHUNK

    @property
    def name(self) -> str:
        """Name of the kernel's entry function, before the DSL mangles it."""
        parts = [
            f"sm120_attn_append_{self.dtype}_d{self.head_dim}",
            f"cache_{self.kv_dtype}" * bool(self.kv_dtype),
            f"rotary_{self.rotary}" * bool(self.rotary),
            f"table_{self.table_dtype}" * bool(self.table_dtype),
            "varlen" * self.varlen,
            "paged" * self.paged,
            "smooth" * self.smooth,
        ]
        return "_".join(filter(None, parts))


def why_not(config: AppendConfig) -> str | None:
    """Return the reason why this kernel cannot be built, with the limit and the remedy; None if it can be built."""
    c = config
    wrong = why_not_cache(c.arch, c.dtype, c.kv_dtype, c.head_dim)
    if wrong:
        return wrong
    if c.smooth and not c.kv_dtype:
        return "smooth without kv_dtype: kv_dtype must be set; only caches of 8 or 4 bits are smoothed"
    if c.rotary not in ROTARY:
        return f"rotary {c.rotary!r}: must be half, interleaved, or empty for none"
    if c.table_dtype not in ("", "fp32") or (c.table_dtype and not c.rotary):
        return f"table_dtype {c.table_dtype!r}: must be fp32 (with rotary only), or empty for the dtype of Q"
    return None
