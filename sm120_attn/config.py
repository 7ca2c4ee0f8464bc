"""What one attention kernel is compiled for, and what the hardware can run. Only values: no cutlass, no torch."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("bf16", "fp16", "e4m3", "e5m2")
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "e4m3": 1, "e5m2": 1, "fp32": 4}
FP8 = ("e4m3", "e5m2")
OUT_DTYPES = ("bf16", "fp16", "fp32")  # for FP8 inputs
FP8_MMAS = ("native", "plain", "portable")
# Set to one of them: what `attention` takes. For whoever finds the native path wrong on a GPU where nobody has run it.
FP8_MMA_VARIABLE = "SM120_ATTN_FP8_MMA"
# Probabilities of FP8 are 2^bias as large as usual, and may grow by 2^lazy before the output is rescaled. e4m3 ends at
# 448 = 2^8.8, e5m2 at 57344 = 2^15.8. A higher bias keeps smaller probabilities, a larger growth rescales less often:
# chosen by the ranges, not by timing.
BIAS_AND_LAZY_BITS = {"e4m3": (6.0, 2.75), "e5m2": (8.0, 7.75)}
ARCHS = ("sm_120a", "sm_121a", "sm_120f", "sm_90a")
KERNELS = ("tma", "cp_async")
HEAD_DIMS = range(32, 256 + 1, 8)
ALIGNMENTS = ("top-left", "bottom-right")

# Shared memory one CTA may have on sm_12x (of 100 KiB per SM, 1 KiB is the system's). sm_90a has 227 KiB, but stands in
# for sm_12x here, so that what runs there is what would run on an RTX 50.
SHARED_BYTES = 99 * 1024
# Barriers of all rings, 8 bytes each, and the padding that brings the first tile to 1024 bytes (128-byte swizzle).
BARRIER_BYTES = 1024
PANEL_BYTES = 128  # of one swizzled row; a tile is as many such panels as head_dim needs; FP8 also has 64
MMA_BYTES = 32  # of a row that one MMA takes along head_dim

LOAD_REGISTERS = 24  # after setmaxnreg
COMPUTE_REGISTERS = {1: 240, 2: 232}  # 8 warps x 240 + 4 x 24, or twice 4 x 232 + 4 x 24, of 64 K
# Fragments in flight, addresses, row maxima and sums; what ptxas needs beside the large tiles.
WORKING_REGISTERS = 32


@dataclass(frozen=True, slots=True)
class Config:
    """One forward attention kernel: everything that is known when it is compiled.

    Sequence lengths, batch, heads, the GQA ratio, strides, scales and window sizes are arguments of the compiled
    function; they never recompile.

    arch           target of ptxas: sm_120a, sm_121a, sm_120f, or sm_90a (the stand-in that tests run on)
    dtype          of Q, K and V: "bf16", "fp16", "e4m3" or "e5m2"; scores, sums and LSE are fp32
    out_dtype      of O: "bf16", "fp16" or "fp32" for FP8 inputs; else "", which is dtype
    fp8_mma        for FP8 inputs: "native" is unit-scale block-scaled MMA and byte-wise ldmatrix, with exact stand-ins
                   on sm_90a; "plain" has the plain MMA; "portable" also ldmatrix of 16 bits and byte permutes
    head_dim       columns of Q, K, V and O: 32 to 256 in steps of 8; padded with zeros inside
    kernel         "tma": a warp loads, the others compute. "cp_async": all warps do both; no TMA, no setmaxnreg
    warps          that compute; rows_per_warp: query rows of each, 16 or 32 (one or two m16 MMA blocks)
    tile_n         keys of a K or V tile
    stages_k/_v    K and V tiles in shared memory, 1, 2 or 4
    q_in_registers Q fragments stay in registers during the walk over the keys, else they are read again per tile
    causal         query i sees keys up to i (+ offset of `align`)
    window         query i sees keys i - window_left to i + window_right (+ offset), both arguments at run time
    align          "top-left": offset 0; "bottom-right": Sk - Sq. Of no meaning without causal or window
    softcap        scores become cap * tanh(score / cap); cap is an argument at run time
    varlen         sequences packed in one [total, H, D] tensor with cu_seqlens; else [B, S, H, D]
    lse            write the log-sum-exp (natural logarithm) of each row
    split_keys     warps w and w + 4 have the same query rows, and each takes every other tile of keys: half as many
                   rows per CTA, for short sequences (tma only)
    ctas_per_sm    CTAs that shall share an SM (2 with 4 warps; tma only)
    cutlass_name   the entry's name has "cutlass" in it, which makes ptxas schedule differently
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
    split_keys: bool = False
    ctas_per_sm: int = 1
    cutlass_name: bool = False

    @property
    def tile_m(self) -> int:
        """Query rows of a CTA."""
        return self.row_warps * self.rows_per_warp

    @property
    def row_warps(self) -> int:
        """Warps with query rows of their own."""
        return self.warps // self.tile_step

    @property
    def tile_step(self) -> int:
        """A warp takes every tile of keys, or every other one."""
        return 2 if self.split_keys else 1

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def fp8(self) -> bool:
        return self.dtype in FP8

    @property
    def output_dtype(self) -> str:
        """Of O."""
        return self.out_dtype or self.dtype

    @property
    def output_bytes(self) -> int:
        """Of an element of O."""
        return ELEMENT_BYTES[self.output_dtype]

    @property
    def masked(self) -> bool:
        """Whether a query may not see all keys, apart from the end of the sequence."""
        return self.causal or self.window

    @property
    def threads(self) -> int:
        """Threads of a CTA. setmaxnreg speaks for four warps at a time, so the load warp brings three idle ones."""
        return 32 * (self.warps + (4 if self.kernel == "tma" else 0))

    @property
    def k_steps(self) -> int:
        """MMA steps of 16 along head_dim, of 32 with FP8."""
        return -(-self.head_dim * self.element_bytes // MMA_BYTES)

    @property
    def output_columns(self) -> int:
        """Columns of the output in registers: head_dim up to the end of its last MMA step."""
        return self.k_steps * MMA_BYTES // self.element_bytes

    @property
    def panel_bytes(self) -> int:
        """Of a row of a panel: a Q, K or V tile in shared memory is made of panels of so many columns."""
        return PANEL_BYTES // 2 if self.fp8 and self.head_dim <= PANEL_BYTES // 2 else PANEL_BYTES

    @property
    def panels(self) -> int:
        return -(-self.head_dim // self.panel_columns)

    @property
    def panel_columns(self) -> int:
        """Columns of a panel: 64, or 128 with FP8 and more than 64 columns."""
        return self.panel_bytes // self.element_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a tile's row in shared memory, with the padding columns."""
        return self.panels * self.panel_bytes

    @property
    def q_bytes(self) -> int:
        return self.tile_m * self.row_bytes

    @property
    def kv_bytes(self) -> int:
        """One K or V tile."""
        return self.tile_n * self.row_bytes

    @property
    def compute_registers(self) -> int:
        """Registers that a compute thread may have."""
        return 255 if self.kernel == "cp_async" else COMPUTE_REGISTERS[self.ctas_per_sm]

    @property
    def shared_bytes(self) -> int:
        return self.q_bytes + (self.stages_k + self.stages_v) * self.kv_bytes + BARRIER_BYTES

    @property
    def registers(self) -> int:
        """A thread's registers for scores, output and Q, with what must be in flight beside them: an estimate."""
        blocks = self.rows_per_warp // 16
        scores = blocks * self.tile_n // 2
        output = blocks * self.output_columns // 2
        q = blocks * self.k_steps * 4 if self.q_in_registers else 0
        return scores + output + q + WORKING_REGISTERS

    @property
    def name(self) -> str:
        """The entry's name, without the DSL's mangling."""
        parts = [
            f"sm120_attn_{self.kernel}_{self.dtype}_d{self.head_dim}_{self.tile_m}x{self.tile_n}",
            f"to_{self.out_dtype}" * bool(self.out_dtype),
            self.fp8_mma * (self.fp8_mma != "native"),
            "causal" * self.causal,
            "window" * self.window,
            "softcap" * self.softcap,
            "varlen" * self.varlen,
            "lse" * self.lse,
        ]
        return "_".join(filter(None, parts))


def why_not(config: Config) -> str | None:
    """The reason why this kernel cannot be built, with the limit and the remedy; None if it can."""
    c = config
    if c.arch not in ARCHS:
        return f"arch {c.arch!r}: compiled for {', '.join(ARCHS)} only"
    if c.dtype not in DTYPES:
        return f"dtype {c.dtype!r}: takes {' or '.join(DTYPES)}"
    if c.kernel not in KERNELS:
        return f"kernel {c.kernel!r}: there are {' and '.join(KERNELS)}"
    if c.head_dim not in HEAD_DIMS:
        return f"head_dim {c.head_dim}: 32 to 256 in steps of 8"
    wrong = _why_not_fp8(c) if c.fp8 else _why_not_16_bit(c)
    if wrong:
        return wrong
    if c.align not in ALIGNMENTS:
        return f"align {c.align!r}: {' or '.join(ALIGNMENTS)}"
    if c.rows_per_warp not in (16, 32):
        return f"rows_per_warp {c.rows_per_warp}: 16 or 32, one or two MMA blocks"
    if c.warps not in (4, 8):
        return f"warps {c.warps}: 4 or 8, so that each scheduler of an SM has as many"
    if c.tile_n not in (32, 64, 128):
        return f"tile_n {c.tile_n}: 32, 64 or 128 keys"
    if c.stages_k not in (1, 2, 4) or c.stages_v not in (1, 2, 4):
        return (
            f"stages {c.stages_k} and {c.stages_v}: 1, 2 or 4 tiles of K and of V, so that a slot is a bit of a counter"
        )
    if c.kernel == "cp_async" and (c.stages_k, c.stages_v) != (1, 1):
        return f"stages {c.stages_k} and {c.stages_v}: the cp_async kernel has one tile of K and one of V"
    if (c.ctas_per_sm, c.warps) not in ((1, 4), (1, 8), (2, 4)) or (c.ctas_per_sm == 2 and c.kernel != "tma"):
        return f"ctas_per_sm {c.ctas_per_sm}: 1, or 2 of the tma kernel with 4 warps"
    if c.split_keys and (c.kernel, c.warps, c.stages_k, c.stages_v) != ("tma", 8, 2, 2):
        return "split_keys: of the tma kernel with 8 warps and two tiles of K and of V, one for each half of the warps"
    if c.split_keys and c.tile_m * c.output_columns * 4 > 4 * c.kv_bytes:
        return f"split_keys: tile_n {c.tile_n} is too small for the partial output, which goes through K and V's memory"
    limit = c.compute_registers
    if c.registers > limit:
        return (
            f"about {c.registers} registers for {c.rows_per_warp} rows, {c.tile_n} keys and head_dim {c.head_dim}: "
            f"a thread has {limit}; use fewer rows_per_warp or a smaller tile_n"
        )
    room = SHARED_BYTES if c.ctas_per_sm == 1 else SHARED_BYTES // 2
    if c.shared_bytes > room:
        return (
            f"{c.shared_bytes} bytes of shared memory (Q {c.q_bytes}, {c.stages_k} K and {c.stages_v} V tiles of "
            f"{c.kv_bytes}, barriers {BARRIER_BYTES}): a CTA has {room}; use fewer stages or a smaller tile"
        )
    return None


def _why_not_fp8(c: Config) -> str | None:
    if c.out_dtype not in OUT_DTYPES:
        return f"out_dtype {c.out_dtype!r}: FP8 inputs give {', '.join(OUT_DTYPES)}"
    if c.fp8_mma not in FP8_MMAS:
        return f"fp8_mma {c.fp8_mma!r}: {', '.join(FP8_MMAS)}"
    if c.kernel != "tma":
        return f"kernel {c.kernel!r} with {c.dtype}: FP8 inputs have the tma kernel only"
    return None


def _why_not_16_bit(c: Config) -> str | None:
    if c.out_dtype:
        return f"out_dtype {c.out_dtype!r} with {c.dtype}: the output of 16-bit inputs has their type"
    if c.fp8_mma != "native":
        return f"fp8_mma {c.fp8_mma!r} with {c.dtype}: for FP8 inputs only"
    return None


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts of a call that pick a kernel. Lengths are of the longest sequence if varlen.

    sms: multiprocessors of the device; the number of CTAs is weighed against it.
    out_dtype: see Config.
    """

    arch: str
    dtype: str
    head_dim: int
    batch: int
    heads: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int
    sms: int = 188
    causal: bool = False
    window: bool = False
    align: str = "top-left"
    softcap: bool = False
    varlen: bool = False
    lse: bool = False
    out_dtype: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A kernel for a shape, and why this one."""

    config: Config
    reason: str


def plan(shape: Shape) -> Plan:
    """The kernel for `shape`. Raises ValueError with the reason if there is none."""
    if shape.sms < 1:
        raise ValueError(f"sms {shape.sms}: must be the multiprocessors of the device, such as 170")
    tiles, reason = _tiles(shape)
    config = Config(
        arch=shape.arch,
        dtype=shape.dtype,
        head_dim=shape.head_dim,
        causal=shape.causal,
        window=shape.window,
        align=shape.align if shape.causal or shape.window else "top-left",
        softcap=shape.softcap,
        varlen=shape.varlen,
        lse=shape.lse,
        out_dtype=shape.out_dtype,
        cutlass_name=_is_faster_with_cutlass(shape, tiles),
        **tiles,
    )
    wrong = why_not(config)
    if wrong:
        raise ValueError(wrong)
    return Plan(config, reason)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Fields of Config that are a choice, and what a CTA with them costs on an H100, in microseconds.

    tile: 64 keys, at the largest head_dim of its class; fixed: launch, Q, output. All CTAs of an SM together.
    """

    what: str
    rows: int
    tile: float
    fixed: float
    fields: tuple[tuple[str, object], ...]

    @property
    def ctas_per_sm(self) -> int:
        return next((number for name, number in self.fields if name == "ctas_per_sm"), 1)


def _choice(what: str, rows: int, tile: float, fixed: float, **fields: object) -> _Choice:
    return _Choice(what, rows, tile, fixed, tuple(fields.items()))


CLOSE = 1.03  # estimates are no better than that: of equals the first, which has the most rows

# By the largest head_dim of a class; fitted to times like those in benchmarks/results/sm120_bf16_h100.json.
CHOICES = {
    64: (
        _choice("32 rows a warp", 256, 1.38, 4.5, rows_per_warp=32, tile_n=128),
        _choice("32 rows, two warps to a row", 128, 0.74, 4.1, rows_per_warp=32, split_keys=True),
        _choice("16 rows a warp", 128, 0.86, 3.1, q_in_registers=True),
        _choice("16 rows, two warps to a row", 64, 0.36, 4.0, q_in_registers=True, split_keys=True),
        _choice("32 rows a warp, two CTAs to an SM", 128, 1.40, 3.0, rows_per_warp=32, warps=4, ctas_per_sm=2),
    ),
    128: (
        _choice("32 rows a warp", 256, 2.40, 4.8, rows_per_warp=32, stages_k=1, stages_v=1),
        _choice("32 rows, two warps to a row", 128, 1.23, 5.8, rows_per_warp=32, split_keys=True),
        _choice("16 rows a warp", 128, 1.34, 3.8, q_in_registers=True),
        _choice("16 rows, two warps to a row", 64, 0.64, 4.8, q_in_registers=True, split_keys=True),
    ),
    192: (_choice("16 rows a warp", 128, 2.2, 5.0, q_in_registers=True, stages_k=1, stages_v=1),),
    256: (_choice("16 rows a warp", 128, 3.0, 5.0, q_in_registers=True, tile_n=32, stages_k=1, stages_v=1),),
}
# FP8: never timed where it is fast. A key is taken to cost half of what it costs BF16, and half
# of that for half of the rows; the rest is BF16's.
FP8_CHOICES = {
    64: (
        _choice("16 rows a warp", 128, 0.43, 3.1, q_in_registers=True, tile_n=128),
        _choice("16 rows, two warps to a row", 64, 0.215, 4.0, q_in_registers=True, tile_n=128, split_keys=True),
    ),
    128: (
        _choice("16 rows a warp", 128, 0.67, 3.8, q_in_registers=True, tile_n=128),
        _choice("16 rows, two warps to a row", 64, 0.335, 4.8, q_in_registers=True, tile_n=128, split_keys=True),
    ),
    256: (_choice("16 rows a warp", 128, 1.5, 5.0, q_in_registers=True),),
}


def choices_of(dtype: str, head_dim: int) -> tuple[_Choice, ...]:
    """What `plan` chooses from. Beyond all classes why_not has the word."""
    table = FP8_CHOICES if dtype in FP8 else CHOICES
    return table[min((d for d in table if d >= head_dim), default=max(table))]


def _tiles(shape: Shape) -> tuple[dict[str, object], str]:
    """The fields of Config that are a choice, and the reason for it: the least time by the costs of CHOICES."""
    choices = choices_of(shape.dtype, shape.head_dim)
    least = min(_time(choice, shape) for choice in choices)
    best = next(choice for choice in choices if _time(choice, shape) <= CLOSE * least)
    ctas = _ctas(best, shape)
    reason = f"{best.what}, {best.rows} rows a CTA: {ctas} CTAs on {shape.sms} SMs"
    if len(choices) > 1:
        others = ", ".join(f"{_time(c, shape):.0f}" for c in choices if c is not best)
        basis = "half of BF16's on an H100 per key" if shape.dtype in FP8 else "on an H100"
        reason += f"; {_time(best, shape):.0f} us estimated {basis}, {others} for the other tiles"
    return dict(best.fields), reason


def _is_faster_with_cutlass(shape: Shape, tiles: dict[str, object]) -> bool:
    """Whether "cutlass" in the name gains time: on an H100 by 1 to 3 % in seven of seven lengths, for this kernel only.

    Others lost or gained nothing (benchmarks/results/sm120_bf16_h100.json). No sm_12x has been measured.
    """
    plain = not (shape.causal or shape.window or shape.softcap or shape.varlen or shape.lse)
    return (
        (shape.arch, shape.head_dim, tiles.get("rows_per_warp")) == ("sm_90a", 128, 32)
        and plain
        and shape.dtype not in FP8
        and "split_keys" not in tiles
    )


def _ctas(choice: _Choice, shape: Shape) -> int:
    return shape.batch * shape.heads * -(-shape.seqlen_q // choice.rows)


def _time(choice: _Choice, shape: Shape) -> float:
    """Microseconds on as many SMs of an H100: whole rounds of equal CTAs, or long ones first if causal.

    Two CTAs of an SM are not in step: where one has ended, the other goes on faster, so that rounds need not be whole.
    A CTA alone on its SM takes 0.6 of the time of one in company (18.0 us of 28, 1024 keys).
    """
    longest = choice.fixed + choice.tile * -(-shape.seqlen_k // 64)
    rounds = _ctas(choice, shape) / (shape.sms * choice.ctas_per_sm)
    if choice.ctas_per_sm > 1 and not shape.causal:
        return longest * (1 if rounds <= 1 else max(rounds, 1.6))
    if not shape.causal:
        return longest * -(-_ctas(choice, shape) // shape.sms)
    # Rows see half of the keys on average, and half a tile of queries more at the diagonal.
    mean = choice.fixed + choice.tile * (shape.seqlen_k + choice.rows) / 128
    return max(longest, mean * rounds)
