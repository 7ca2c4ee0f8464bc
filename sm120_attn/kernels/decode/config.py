"""DecodeConfig: all compile-time parameters of one decode kernel. Imports neither cutlass nor torch.

A decode kernel reads a KV cache once for few queries. The query heads that share a key head, and the queries of a
sequence, are packed into the rows of one MMA tile. Each warp of a CTA takes its own keys and has its own tiles in
shared memory, so no warp waits for another before their results are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...config import (
    ARCHS,
    ELEMENT_BYTES,
    HEAD_DIMS,
    MMA_BYTES,
    OPERAND_BYTES,
    PACKED_COLUMNS,
    PANEL_BYTES,
    SCALE_COLUMNS,
    SHARED_BYTES,
    WORKING_REGISTERS,
)

DTYPES = ("bf16", "fp16")
KV_DTYPES = ("", "e4m3", *SCALE_COLUMNS)
CHUNK_BYTES = 16  # bytes that one cp.async copies
PAGE_SIZES = (16, 32, 64, 128, 256)
GROUP_KEYS = 16  # keys of the smallest page
WARPS = 4
MOST_STAGES = 4
PAD_BYTES = 32  # padding after a row of O in shared memory: the rows of a quarter warp are then in different banks
STATS_BYTES = 8  # maximum and sum of a row
REGISTERS = {2: 255, 3: 168, 4: 128}  # CTAs that share an SM -> registers of a thread
MOST_OF_GRID = 65535  # most sequences, key heads or splits: CUDA's limit on a grid's second and third dimension


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """One decode kernel. Lengths, heads, the GQA ratio, pages, strides and scales are arguments of its calls.

    arch           target of ptxas, as in attention's Config
    dtype          dtype of Q and O: "bf16" or "fp16"
    kv_dtype       format of the cache: "" (the same as dtype), or "e4m3", "mxfp8" or "nvfp4", converted in registers
    head_dim       32 to 256 in steps of 8
    rows_per_warp  rows of the tile: 16 or 32, with NVFP4 caches also 8. A row is one query of one head
    tile_n         keys of a tile: 16 or 32, with 8 rows_per_warp also 64
    stages         tiles of K, and of V, that a warp has in shared memory: 1 to 4
    causal         query i sees keys up to i + seqlen_k - seqlen_q
    window, softcap, lse   as in attention's Config; window is aligned to the bottom right
    varlen         q is packed, [total, H, D], with cu_seqlens_q; else [B, S, H, D]
    paged          the cache is [pages, page_size, Hkv, D] with a table; else [B, S, Hkv, D]
    split          the keys of a sequence are split over CTAs; a second kernel combines their results
    sinks          a logit per query head is added to the denominator of the softmax
    ctas_per_sm    CTAs that share an SM if its shared memory has room: 2 to 4. With more CTAs a thread has fewer
                   registers
    group_keys     keys that are loaded together, from one page: 16 or tile_n
    heads_per_cta  neighbouring key heads of a CTA: 1, 2 or 4. The warps are divided among them. Warps of different
                   heads read the same keys at about the same time, so their NVFP4 scales, which share a 32-byte sector,
                   are read from memory once
    """

    arch: str = "sm_120a"
    dtype: str = "bf16"
    kv_dtype: str = ""
    head_dim: int = 128
    rows_per_warp: int = 16
    tile_n: int = 16
    stages: int = 3
    causal: bool = True
    window: bool = False
    softcap: bool = False
    varlen: bool = False
    paged: bool = False
    split: bool = False
    sinks: bool = False
    lse: bool = False
    ctas_per_sm: int = 2
    group_keys: int = GROUP_KEYS
    heads_per_cta: int = 1

    # Code that is shared with the attention kernels reads these properties. All decode kernels have the same values.
    @property
    def align(self) -> str:
        return "bottom-right"

    @property
    def fp8(self) -> bool:
        return False

    @property
    def split_keys(self) -> bool:
        return False

    @property
    def two_level(self) -> bool:
        return False

    @property
    def tile_step(self) -> int:
        return 1

    @property
    def mma_throughput(self) -> bool:
        return False

    @property
    def output_dtype(self) -> str:
        return self.dtype

    @property
    def output_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of K and V."""
        return ELEMENT_BYTES[self.kv_dtype or self.dtype]

    @property
    def warps_per_head(self) -> int:
        return WARPS // self.heads_per_cta

    @property
    def pages_ahead(self) -> bool:
        """Whether page numbers are read one tile ahead: with 8 rows_per_warp, where instructions limit the speed."""
        return self.paged and self.rows_per_warp == 8

    @property
    def threads(self) -> int:
        return 32 * WARPS

    @property
    def tile_m(self) -> int:
        """Rows of a CTA. All its warps have the same rows."""
        return self.rows_per_warp

    @property
    def k_steps(self) -> int:
        """MMA steps along head_dim, of 16 columns each."""
        return -(-self.head_dim * self.output_bytes // MMA_BYTES)

    @property
    def output_columns(self) -> int:
        """Columns of O in registers: head_dim, rounded up to whole MMA steps."""
        return self.k_steps * MMA_BYTES // self.output_bytes

    @property
    def panel_bytes(self) -> int:
        return PANEL_BYTES

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of K or V, without scales."""
        return self.head_dim * self.element_bytes // PACKED_COLUMNS.get(self.kv_dtype, 1)

    @property
    def row_chunks(self) -> int:
        """16-byte chunks of a row of K or V in one panel: 8; or 4 or 2 if several NVFP4 rows share a panel row."""
        if self.kv_dtype != "nvfp4":
            return PANEL_BYTES // CHUNK_BYTES
        return next(n for n in (2, 4, 8) if n * CHUNK_BYTES >= self.row_bytes and n * self.tile_n >= 64)

    @property
    def panels(self) -> int:
        return -(-self.row_bytes // PANEL_BYTES)

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales of a row."""
        return self.head_dim // SCALE_COLUMNS[self.kv_dtype] if self.kv_dtype in SCALE_COLUMNS else 0

    @property
    def data_bytes(self) -> int:
        """Bytes of one tile of K or V without its scales. The scales follow the tile."""
        return self.tile_n * self.panels * self.row_chunks * CHUNK_BYTES

    @property
    def kv_bytes(self) -> int:
        """Bytes of one tile of K or V with its scales."""
        return self.data_bytes + self.tile_n * self.scale_bytes

    @property
    def has_cvt_e2m1(self) -> bool:
        """Whether the target has an instruction that converts e2m1 values."""
        return self.arch != "sm_90a"

    @property
    def k_factor(self) -> float:
        """Factor by which S must be multiplied: see the MMA policies of block-scaled caches."""
        return 2.0**14 if self.kv_dtype == "nvfp4" and not self.has_cvt_e2m1 else 1.0

    @property
    def v_factor(self) -> float:
        """Factor by which O must be multiplied: see the MMA policies of block-scaled caches."""
        return 2.0**60 if self.kv_dtype == "mxfp8" else self.k_factor

    @property
    def joined_row_bytes(self) -> int:
        """Bytes of a row of O in the shared memory in which the warps of a CTA join their results."""
        return 4 * self.output_columns + PAD_BYTES

    @property
    def tiles_bytes(self) -> int:
        """Bytes of the tiles of all warps. After the last tile this memory holds the results."""
        tiles = WARPS * 2 * self.stages * self.kv_bytes
        return max(tiles, WARPS * self.tile_m * self.joined_row_bytes)

    @property
    def q_in_registers(self) -> bool:
        """Whether Q stays in registers; else its operands are read from shared memory for each tile."""
        return self.rows_per_warp == 8 or (self.rows_per_warp == 16 and self.head_dim <= 128)

    @property
    def q_bytes(self) -> int:
        """Bytes of Q's MMA operands in shared memory; 0 if they stay in registers."""
        return 0 if self.q_in_registers else self.k_steps * (self.rows_per_warp // 16) * OPERAND_BYTES

    @property
    def shared_bytes(self) -> int:
        return self.tiles_bytes + self.q_bytes + WARPS * self.tile_m * STATS_BYTES

    @property
    def registers(self) -> int:
        """Estimate of a thread's registers: for scores, output and Q, plus WORKING_REGISTERS."""
        blocks = self.rows_per_warp / 16
        q = self.k_steps * self.rows_per_warp // 4 if self.q_in_registers else 0
        return int(blocks * (self.tile_n // 2 + self.output_columns // 2)) + q + WORKING_REGISTERS

    @property
    def name(self) -> str:
        """Name of the kernel's entry function, before the DSL mangles it."""
        parts = [
            f"sm120_attn_decode_{self.dtype}_d{self.head_dim}_{self.tile_m}x{self.tile_n}",
            f"cache_{self.kv_dtype}" * bool(self.kv_dtype),
            "causal" * self.causal,
            "window" * self.window,
            "softcap" * self.softcap,
            "varlen" * self.varlen,
            "paged" * self.paged,
            "split" * self.split,
            "sinks" * self.sinks,
            "lse" * self.lse,
        ]
        return "_".join(filter(None, parts))


def why_not(config: DecodeConfig) -> str | None:
    """Return the reason why this kernel cannot be built, with the limit and the remedy; None if it can be built."""
    c = config
    wrong = why_not_cache(c.arch, c.dtype, c.kv_dtype, c.head_dim)
    if wrong:
        return wrong
    if c.rows_per_warp not in (8, 16, 32):
        return f"rows_per_warp {c.rows_per_warp}: must be 8 (columns of an MMA), or 16 or 32 (one or two MMA blocks)"
    if c.rows_per_warp == 8 and c.kv_dtype != "nvfp4":
        return f"rows_per_warp 8 with a cache in {c.kv_dtype or c.dtype}: must be 16 or 32; 8 is for nvfp4 only"
    if c.tile_n not in (16, 32) and not (c.tile_n == 64 and c.rows_per_warp == 8):
        return f"tile_n {c.tile_n}: must be 16 or 32 keys; 64 is for 8 rows_per_warp only"
    if not 1 <= c.stages <= MOST_STAGES:
        return f"stages {c.stages}: must be 1 to {MOST_STAGES} tiles of K and of V for each warp"
    if c.heads_per_cta not in (1, 2, 4):
        return f"heads_per_cta {c.heads_per_cta}: must be 1, 2 or 4, to divide the {WARPS} warps of a CTA"
    if c.heads_per_cta > 1 and not c.q_in_registers:
        return f"heads_per_cta {c.heads_per_cta}: must be 1 if Q is in shared memory; use 8 rows_per_warp"
    if c.group_keys not in (GROUP_KEYS, c.tile_n):
        return f"group_keys {c.group_keys}: must be {GROUP_KEYS} (the smallest page) or tile_n {c.tile_n}"
    if c.ctas_per_sm not in REGISTERS:
        return f"ctas_per_sm {c.ctas_per_sm}: must be 2 to 4"
    if c.registers > REGISTERS[c.ctas_per_sm]:
        return (
            f"about {c.registers} registers for {c.rows_per_warp} rows, {c.tile_n} keys and head_dim {c.head_dim}: "
            f"a thread has only {REGISTERS[c.ctas_per_sm]}; use fewer rows_per_warp or a smaller tile_n"
        )
    if c.shared_bytes > SHARED_BYTES:
        return f"{c.shared_bytes} bytes of shared memory: a CTA has {SHARED_BYTES}; use fewer stages or a smaller tile"
    return None


def why_not_cache(arch: str, dtype: str, kv_dtype: str, head_dim: int) -> str | None:
    """Return the reason why no decode or append kernel supports these dtypes and this head_dim; None if one does."""
    if arch not in ARCHS:
        return f"arch {arch!r}: must be {' or '.join(ARCHS)}"
    if dtype not in DTYPES:
        return f"dtype {dtype!r}: must be {' or '.join(DTYPES)}"
    if kv_dtype not in KV_DTYPES:
        return f"kv_dtype {kv_dtype!r}: must be {', '.join(KV_DTYPES[1:])}, or empty for the queries' dtype"
    return why_not_head_dim(head_dim, kv_dtype)


def why_not_head_dim(head_dim: int, kv_dtype: str) -> str | None:
    """Return the reason why no kernel supports this head_dim with a cache in kv_dtype; None if one does."""
    if head_dim not in HEAD_DIMS:
        return f"head_dim {head_dim}: must be 32 to 256, a multiple of 8"
    if kv_dtype in SCALE_COLUMNS and head_dim % (4 * SCALE_COLUMNS[kv_dtype]):
        return (
            f"head_dim {head_dim} with a cache in {kv_dtype}: must be a multiple of {4 * SCALE_COLUMNS[kv_dtype]}, "
            "so that the scales of a row are whole 4-byte words"
        )
    if kv_dtype and head_dim % 16:
        return (
            f"head_dim {head_dim} with a cache in {kv_dtype}: must be a multiple of 16, so that a row is whole "
            "16-byte chunks"
        )
    return None
