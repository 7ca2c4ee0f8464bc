"""Config: all compile-time parameters of one attention kernel. why_not: the reason why it cannot be built.

Imports neither cutlass nor torch. planner.py chooses the Config for a problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

DTYPES = ("bf16", "fp16", "e4m3", "e5m2")
# Bytes of a tensor's element. An element of "nvfp4" holds two values.
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "e4m3": 1, "e5m2": 1, "fp32": 4, "mxfp8": 1, "nvfp4": 1}
# Block-scaled format of a KV cache -> columns that share a scale. mxfp8 has e4m3 values and e8m0 scales (OCP MX); nvfp4
# has e2m1 values and e4m3 scales.
SCALE_COLUMNS = {"mxfp8": 32, "nvfp4": 16}
PACKED_COLUMNS = {"nvfp4": 2}  # values in an element
FP8 = ("e4m3", "e5m2")
OUT_DTYPES = ("bf16", "fp16", "fp32")  # output dtypes for FP8 inputs
FP8_MMAS = ("native", "plain", "portable")
# Environment variable that selects one of FP8_MMAS for `attention`. It helps if the native path gives wrong results on
# a GPU on which it has not been tested.
FP8_MMA_VARIABLE = "SM120_ATTN_FP8_MMA"
# FP8 probabilities are multiplied by 2^bias, and may grow by another 2^lazy before the output is rescaled. The largest
# value is 448 = 2^8.8 in e4m3 and 57344 = 2^15.8 in e5m2. A higher bias keeps smaller probabilities; a higher lazy
# rescales less often. Both numbers follow from these ranges; they were not tuned by timing.
BIAS_AND_LAZY_BITS = {"e4m3": (6.0, 2.75), "e5m2": (8.0, 7.75)}
ARCHS = ("sm_120a", "sm_121a", "sm_120f", "sm_90a")
KERNELS = ("tma", "cp_async")
HEAD_DIMS = range(32, 256 + 1, 8)
ALIGNMENTS = ("top-left", "bottom-right")

# Shared memory that one CTA can have on sm_12x: 100 KiB per SM, of which the system keeps 1 KiB. sm_90a has 227 KiB,
# but gets the same limit: tests on it then run the tile sizes of an RTX 50.
SHARED_BYTES = 99 * 1024
# Room for the barriers of all rings, 8 bytes each, and for the padding before the first tile, which needs 1024-byte
# alignment for the 128-byte swizzle.
BARRIER_BYTES = 1024
PANEL_BYTES = 128  # width of a panel: one swizzled row. Tiles consist of panels; FP8 tiles may have panels of 64 bytes
OPERAND_BYTES = 512  # size of an MMA's A operand: 16 rows and 16 columns of 16-bit values
MMA_BYTES = 32  # bytes of a row that one MMA reads along head_dim

LOAD_REGISTERS = 24  # of a thread of the load warp, after setmaxnreg
# CTAs per SM -> registers of a compute thread. The 64 K registers of an SM suffice for one CTA of 8 + 4 warps,
# 32 * (8 * 240 + 4 * 24), or for two CTAs of 4 + 4 warps, 2 * 32 * (4 * 232 + 4 * 24).
COMPUTE_REGISTERS = {1: 240, 2: 232}
# Registers besides scores, output and Q: fragments in flight, addresses, row maxima and row sums.
WORKING_REGISTERS = 32


class Features(NamedTuple):
    """Features that a call needs from its kernel. Config and Shape have fields of the same names."""

    causal: bool
    window: bool
    softcap: bool
    varlen: bool
    lse: bool
    sinks: bool

    @classmethod
    def of(cls, value: Any) -> Features:
        """Read the features from the fields of a Config or a Shape."""
        return cls(*(getattr(value, name) for name in cls._fields))


@dataclass(frozen=True, slots=True)
class Config:
    """One forward attention kernel: everything that is fixed when it is compiled.

    Sequence lengths, batch, heads, the GQA ratio, strides, scales and window sizes are arguments of the compiled
    function. Other values of these arguments never compile another kernel.

    arch           target of ptxas: sm_120a, sm_121a, sm_120f, or sm_90a (which tests use instead of sm_12x)
    dtype          of Q, K and V: "bf16", "fp16", "e4m3" or "e5m2"; scores, sums and LSE are fp32
    out_dtype      dtype of O: "bf16", "fp16" or "fp32" for FP8 inputs; else "", which means the same as dtype
    fp8_mma        instructions for FP8 inputs. "native": block-scaled MMA with all scales 1, and byte-wise ldmatrix
                   (sm_90a has neither and uses other instructions with the same result). "plain": MMA without scales,
                   and byte-wise ldmatrix. "portable": MMA without scales; 16-bit ldmatrix and byte permutes replace
                   the byte-wise ldmatrix
    head_dim       columns of Q, K, V and O: 32 to 256 in steps of 8; the kernel pads them with zeros
    kernel         "tma": one warp loads, the others compute. "cp_async": all warps do both; no TMA, no setmaxnreg
    warps          warps that compute
    rows_per_warp  query rows of each computing warp: 16 or 32 (one or two m16 MMA blocks)
    tile_n         keys of a K or V tile
    stages_k/_v    K and V tiles in shared memory: 1, 2 or 4
    q_in_registers Q fragments stay in registers for all tiles of keys; else they are read again for each tile
    causal         query i sees keys up to i (+ offset of `align`)
    window         query i sees keys i - window_left to i + window_right (+ offset), both arguments at run time
    align          "top-left": offset 0; "bottom-right": seqlen_k - seqlen_q. No effect without causal or window
    softcap        scores become cap * tanh(score / cap); cap is an argument at run time
    varlen         sequences packed in one [total, H, D] tensor with cu_seqlens; else [B, S, H, D]
    lse            write the log-sum-exp (natural logarithm) of each row
    cache_rows     0: no cache. Else K and V are a cache, [pages, page_size, Hkv, D] (tma only). cache_seqlens has its
                   lengths, and varlen applies to q only. The value is the number of rows loaded at once: the rows of
                   a tile, or of a page if a page is smaller
    paged          a table lists the pages of each sequence; else page b belongs to sequence b
    kv_dtype       dtype of a cache: "" for the same as dtype, or "e4m3", which is converted in registers, for Q in bf16
                   or fp16
    sinks          a logit per query head is added to the denominator of the softmax
    split_keys     warps w and w + 4 have the same query rows, and each takes every other tile of keys. So a CTA has
                   half as many rows, which is better for short sequences (tma only)
    ctas_per_sm    CTAs that share an SM: 1, or 2 with the tma kernel and 4 warps
    two_level      FP8: P V of each tile of keys is accumulated separately and then added to O in fp32. The tensor cores
                   may keep fewer bits of a sum than fp32 has (see planner.LONG_SUM_KEYS)
    mma_throughput use ptxas's second instruction scheduler. The pragma "mma_throughput" selects it; for a ptxas older
                   than 13.3 the word "cutlass" in the kernel's name does. Both give the same machine code
    """

    arch: str = "sm_120a"
    dtype: str = "bf16"
    out_dtype: str = ""
    fp8_mma: str = "native"
    head_dim: int = 128
    kernel: str = "tma"
    warps: int = 8
    rows_per_warp: int = 16
    tile_n: int = 64
    stages_k: int = 2
    stages_v: int = 2
    q_in_registers: bool = False
    causal: bool = False
    window: bool = False
    align: str = "top-left"
    softcap: bool = False
    varlen: bool = False
    lse: bool = False
    cache_rows: int = 0
    paged: bool = False
    kv_dtype: str = ""
    sinks: bool = False
    split_keys: bool = False
    ctas_per_sm: int = 1
    two_level: bool = False
    mma_throughput: bool = False

    @property
    def tile_m(self) -> int:
        """Query rows of a CTA."""
        return self.row_warps * self.rows_per_warp

    @property
    def row_warps(self) -> int:
        """Warps with different query rows: half of the warps with split_keys, else all."""
        return self.warps // self.tile_step

    @property
    def tile_step(self) -> int:
        """Step from one tile of keys of a warp to its next: 1, or 2 if it takes every other tile."""
        return 2 if self.split_keys else 1

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of Q."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def kv_element_bytes(self) -> int:
        return ELEMENT_BYTES[self.kv_dtype or self.dtype]

    @property
    def fp8(self) -> bool:
        return self.dtype in FP8

    @property
    def output_dtype(self) -> str:
        """dtype of O."""
        return self.out_dtype or self.dtype

    @property
    def output_bytes(self) -> int:
        """Bytes of an element of O."""
        return ELEMENT_BYTES[self.output_dtype]

    @property
    def masked(self) -> bool:
        """Whether a causal mask or a window can hide keys from a query."""
        return self.causal or self.window

    @property
    def threads(self) -> int:
        """Threads of a CTA. setmaxnreg acts on groups of four warps, so three idle warps join the load warp."""
        return 32 * (self.warps + (4 if self.kernel == "tma" else 0))

    @property
    def k_steps(self) -> int:
        """MMA steps along head_dim, of 16 columns each (FP8: 32)."""
        return -(-self.head_dim * self.element_bytes // MMA_BYTES)

    @property
    def output_columns(self) -> int:
        """Columns of O in registers: head_dim, rounded up to whole MMA steps."""
        return self.k_steps * MMA_BYTES // self.element_bytes

    @property
    def panel_bytes(self) -> int:
        """Bytes of one row of a panel. A Q, K or V tile in shared memory consists of panels."""
        return PANEL_BYTES // 2 if self.fp8 and self.head_dim <= PANEL_BYTES // 2 else PANEL_BYTES

    @property
    def panels(self) -> int:
        """Number of panels of a tile of Q."""
        return -(-self.head_dim // self.panel_columns)

    @property
    def panel_columns(self) -> int:
        """Columns of a panel of Q: 64, or 128 with FP8 and more than 64 columns."""
        return self.panel_bytes // self.element_bytes

    @property
    def kv_panels(self) -> int:
        return -(-self.head_dim // self.kv_panel_columns)

    @property
    def kv_panel_columns(self) -> int:
        """Columns of a panel of K or V."""
        return self.panel_bytes // self.kv_element_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of Q in shared memory, with the padding columns."""
        return self.panels * self.panel_bytes

    @property
    def q_bytes(self) -> int:
        return self.tile_m * self.row_bytes

    @property
    def kv_bytes(self) -> int:
        """Bytes of one K or V tile."""
        return self.tile_n * self.kv_panels * self.panel_bytes

    @property
    def compute_registers(self) -> int:
        """Most registers that a compute thread can have."""
        return 255 if self.kernel == "cp_async" else COMPUTE_REGISTERS[self.ctas_per_sm]

    @property
    def shared_bytes(self) -> int:
        return self.q_bytes + (self.stages_k + self.stages_v) * self.kv_bytes + BARRIER_BYTES

    @property
    def registers(self) -> int:
        """Estimate of a thread's registers: for scores, output and Q, plus WORKING_REGISTERS."""
        blocks = self.rows_per_warp // 16
        scores = blocks * self.tile_n // 2
        output = blocks * self.output_columns // 2
        q = blocks * self.k_steps * 4 if self.q_in_registers else 0
        return scores + output + q + WORKING_REGISTERS

    @property
    def name(self) -> str:
        """Name of the kernel's entry function, before the DSL mangles it."""
        parts = [
            f"sm120_attn_{self.kernel}_{self.dtype}_d{self.head_dim}_{self.tile_m}x{self.tile_n}",
            f"to_{self.out_dtype}" * bool(self.out_dtype),
            self.fp8_mma * (self.fp8_mma != "native"),
            "two_level" * self.two_level,
            "causal" * self.causal,
            "window" * self.window,
            "softcap" * self.softcap,
            "varlen" * self.varlen,
            f"cache{self.cache_rows}" * bool(self.cache_rows),
            self.kv_dtype,
            "paged" * self.paged,
            "sinks" * self.sinks,
            "lse" * self.lse,
        ]
        return "_".join(filter(None, parts))


def why_not(config: Config) -> str | None:
    """Return the reason why this kernel cannot be built, with the limit and the remedy; None if it can be built."""
    c = config
    if c.arch not in ARCHS:
        return f"arch {c.arch!r}: must be {' or '.join(ARCHS)}"
    if c.dtype not in DTYPES:
        return f"dtype {c.dtype!r}: must be {' or '.join(DTYPES)}"
    if c.kernel not in KERNELS:
        return f"kernel {c.kernel!r}: must be {' or '.join(KERNELS)}"
    if c.head_dim not in HEAD_DIMS:
        return f"head_dim {c.head_dim}: must be 32 to 256, a multiple of 8"
    wrong = _why_not_fp8(c) if c.fp8 else _why_not_16_bit(c)
    if wrong:
        return wrong
    if c.align not in ALIGNMENTS:
        return f"align {c.align!r}: must be {' or '.join(ALIGNMENTS)}"
    if c.rows_per_warp not in (16, 32):
        return f"rows_per_warp {c.rows_per_warp}: must be 16 or 32 (one or two MMA blocks)"
    if c.warps not in (4, 8):
        return f"warps {c.warps}: must be 4 or 8, so that all schedulers of an SM have the same number of warps"
    if c.tile_n not in (32, 64, 128):
        return f"tile_n {c.tile_n}: must be 32, 64 or 128 keys"
    if c.stages_k not in (1, 2, 4) or c.stages_v not in (1, 2, 4):
        return f"stages_k {c.stages_k} and stages_v {c.stages_v}: each must be 1, 2 or 4 tiles"
    if c.kernel == "cp_async" and (c.stages_k, c.stages_v) != (1, 1):
        return f"stages_k {c.stages_k} and stages_v {c.stages_v}: both must be 1 with the cp_async kernel"
    if (c.ctas_per_sm, c.warps) not in ((1, 4), (1, 8), (2, 4)) or (c.ctas_per_sm == 2 and c.kernel != "tma"):
        return (
            f"ctas_per_sm {c.ctas_per_sm} with the {c.kernel} kernel and {c.warps} warps: must be 1; only the tma "
            "kernel with 4 warps can have 2"
        )
    wrong = _why_not_cache(c)
    if wrong:
        return wrong
    if c.split_keys and (c.kernel, c.warps, c.stages_k, c.stages_v) != ("tma", 8, 2, 2):
        return "split_keys: needs the tma kernel with 8 warps and two tiles of K and of V, one per half of the warps"
    if c.split_keys and c.tile_m * c.output_columns * 4 > 4 * c.kv_bytes:
        return f"split_keys with tile_n {c.tile_n}: use a larger tile_n; O must fit into the shared memory of K and V"
    limit = c.compute_registers
    if c.registers > limit:
        return (
            f"about {c.registers} registers for {c.rows_per_warp} rows, {c.tile_n} keys and head_dim {c.head_dim}: "
            f"a thread has only {limit}; use fewer rows_per_warp or a smaller tile_n"
        )
    room = SHARED_BYTES if c.ctas_per_sm == 1 else SHARED_BYTES // 2
    if c.shared_bytes > room:
        return (
            f"{c.shared_bytes} bytes of shared memory (Q {c.q_bytes}, {c.stages_k} K and {c.stages_v} V tiles of "
            f"{c.kv_bytes}, barriers {BARRIER_BYTES}): a CTA has only {room}; use fewer stages or a smaller tile"
        )
    return None


def _why_not_cache(c: Config) -> str | None:
    if c.paged and not c.cache_rows:
        return "paged without cache_rows: cache_rows must be set, because only a cache has pages"
    if c.cache_rows and c.kernel != "tma":
        return f"cache_rows with kernel {c.kernel!r}: kernel must be tma, because only this kernel reads a cache"
    if c.cache_rows and c.masked and c.align != "bottom-right":
        return f"cache_rows with align {c.align!r}: align must be bottom-right (the last query sees the last key)"
    if c.cache_rows and (c.cache_rows < 16 or c.cache_rows > c.tile_n or c.tile_n % c.cache_rows):
        return f"cache_rows {c.cache_rows}: must be at least 16, and a divisor of tile_n {c.tile_n}"
    if c.kv_dtype not in ("", "e4m3") or (c.kv_dtype and not c.cache_rows):
        return f"kv_dtype {c.kv_dtype!r}: must be e4m3 (with cache_rows only), or empty for the queries' dtype"
    if c.kv_dtype and c.head_dim % 16:
        return (
            f"head_dim {c.head_dim} with a cache in {c.kv_dtype}: must be a multiple of 16, so that a row is whole "
            "16-byte chunks"
        )
    return None


def _why_not_fp8(c: Config) -> str | None:
    if c.out_dtype not in OUT_DTYPES:
        return f"out_dtype {c.out_dtype!r}: must be {' or '.join(OUT_DTYPES)} for FP8 inputs"
    if c.fp8_mma not in FP8_MMAS:
        return f"fp8_mma {c.fp8_mma!r}: must be {' or '.join(FP8_MMAS)}"
    if c.kernel != "tma":
        return f"kernel {c.kernel!r} with {c.dtype}: must be tma, because only this kernel takes FP8 inputs"
    if c.kv_dtype:
        return f"kv_dtype {c.kv_dtype!r} with {c.dtype}: must be empty, because only 16-bit queries can use it"
    return None


def _why_not_16_bit(c: Config) -> str | None:
    if c.out_dtype:
        return f"out_dtype {c.out_dtype!r} with {c.dtype}: must be empty; the output of 16-bit inputs has their dtype"
    if c.fp8_mma != "native":
        return f"fp8_mma {c.fp8_mma!r} with {c.dtype}: must be native; the others are for FP8 inputs only"
    if c.two_level:
        return f"two_level with {c.dtype}: must be false; it is for FP8 inputs only"
    return None
