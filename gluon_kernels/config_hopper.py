"""What one Hopper attention kernel is compiled for, and what an sm_90 GPU can run. Only values, no triton."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product, zip_longest

from .config import BITS, CAUSAL, SHARED_BYTES, OfDtype, why_not_name

HOPPER = (90,)
HEAD_DIMS = (64, 128, 256)

# A consumer is one warpgroup, and wgmma works on 64 rows of it.
CONSUMER_ROWS = 64
BASE_NAME = "attention_hopper"
WARPGROUP_THREADS = 128
REGISTERS = 65536
# setmaxnreg takes multiples of 8. The consumers hold scores and accumulator, the loading warps nearly nothing.
CONSUMER_REGISTERS = {2: 240, 3: 160}
# Of two consumers for codes: they need fewer, and the loading warps, which transpose V, get twice the difference.
CODES_REGISTERS = 232
# What a consumer needs beside its tiles, at least: maxima, sums, counters, addresses.
SCALAR_REGISTERS = 24
# A K and a V slot each have one of the 16 named barriers; see attention_hopper.py for the others.
MOST_KV_STAGES = 4
# Blocks of V as rows in shared memory: one is transposed while the other is loaded.
TRANSPOSE_SLOTS = 2
# The narrowest B of a wgmma: as many rows of ones sum up probabilities.
MMA_COLUMNS = 8
# The ring barriers, 8 bytes each, and what warp specialisation hands to the partitions.
BARRIER_BYTES = 1024
# What K and V of the heads in work may take of the 50 MiB. On an H100 32 MiB were slower, and so was less than about a
# round of tiles.
L2_BYTES = 8 * 2**20
# Below, fp8 takes the form that rounds best. Nothing was timed there.
FEW_QUERIES = 256
# What a tile costs beside its key blocks, in key blocks: a guess that only orders the tiles.
TILE_OVERHEAD_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class HopperConfig(OfDtype):
    """One forward attention kernel for sm_90a.

    dtype       of Q, K and V: "fp8e5", "fp8e4nv", "fp16" or "bf16". O has it too, but is bf16 for fp8.
    head_dim    columns of Q, K, V and O
    causal      None; "top-left": row i sees keys 0..i; "bottom-right": the last row sees the last key
    name        the entry's name in the PTX
    consumers   warpgroups that compute, 64 query rows each
    block_n     keys of a block
    kv_stages   K blocks in flight, and V blocks as well; None: as many as fit, at most 4
    transpose_v fp8: the loading partition transposes the blocks of V; else a kernel transposes V before
    turns       consumers issue their MMAs in turns, so that one computes softmax while the other has the
                tensor cores (ping-pong)
    keep_q      Q stays in registers; else each MMA reads it from shared memory
    guess       a row's maximum is that of its first block, until a sum shows that a probability grew too large for
                its type: other blocks are not searched for one
    overlap     with guess: a consumer makes probabilities while those of the block before are multiplied with V, in a
                second set of registers; else only while other consumers have the tensor cores
    int_max     without guess: blocks are searched for maxima as integers, see block_max in attention_hopper.py
    by_fma      with guess: of sixteen exponentials, how many are computed by multiply-adds (see exp2.py); of none with
                codes, where lse is not asked for
    codes       fp8: probabilities are scores rounded to the type's steps of a logarithm (see codes.py).
                Before they are rounded they are wrong by up to 4 %, a third less than e4m3 rounds, but for the
                smallest: see head_bits. lse would be off by up to 0.08 (e5m2: 0.13) where one key outweighs all others
    """

    dtype: str = "bf16"
    head_dim: int = 128
    causal: str | None = None
    name: str = BASE_NAME
    consumers: int = 2
    block_n: int = 128
    kv_stages: int | None = None
    transpose_v: bool = False
    turns: bool = False
    keep_q: bool = False
    guess: bool = False
    overlap: bool = False
    int_max: bool = False
    by_fma: int = 0
    codes: bool = False

    @property
    def fp8(self) -> bool:
        return self.element_bytes == 1

    @property
    def out_dtype(self) -> str:
        return "bf16" if self.fp8 else self.dtype

    @property
    def block_m(self) -> int:
        """Query rows of a tile."""
        return self.consumers * CONSUMER_ROWS

    @property
    def shared_out(self) -> bool:
        """O is staged where Q was: there is no room for both."""
        return self.head_dim == 256 and not self.fp8

    @property
    def q_early(self) -> bool:
        """Whether the next tile's Q is loaded during this one's last softmax and not after it: causal tiles are short.

        Without guess it does not help, and where O is staged in Q, Q is not free before O has been stored. With keep_q
        it is free at once.
        """
        return self.guess and self.causal is not None and not self.shared_out and not self.keep_q

    @property
    def uneven(self) -> bool:
        """Whether consumers leave out key blocks that the others of their tile need.

        Of 3, some have no rows in the last tile of most lengths, and with a mask the first sees less than the last. Of
        2, only with a mask and small blocks.
        """
        return self.consumers == 3 or (self.causal is not None and self.block_n < self.block_m)

    @property
    def ordered(self) -> bool:
        """Whether tiles are taken in tile_order: not all take as long."""
        return self.causal is not None or self.uneven

    @property
    def lazy_bits(self) -> int:
        """How many bits a row's maximum may grow before O is scaled; does not matter with guess. See also int_max."""
        return 3 if self.dtype == "fp8e4nv" else 8

    @property
    def margin_bits(self) -> int:
        """guess: how much larger than the maximum of few keys a row's largest score is taken to be.

        The probabilities of such a row are smaller by as much. e4m3's stay above 2^-6, where they lose bits, as long as
        they are 1/64 of the largest. Codes below are 0 soon, and would be most of a row whose query's own key outweighs
        each other one, as with q = k.
        """
        return 0 if self.codes and self.dtype == "fp8e4nv" else 3

    @property
    def head_bits(self) -> int:
        """fp8 probabilities are multiplied by 2 ** head_bits, so that small ones keep their bits.

        With the lazy bits they stay below e4m3's 448 = 2 ** 8.8 and e5m2's 57344 = 2 ** 15.8. With guess, a thread's
        sum of them: see most_lane_sum. With codes each of them, as long as no later score is 3.8 bits (e5m2: 8.8)
        longer than was guessed; from 11 bits (21) below the guess on they are too small, from 12 (22) on 0. With 3 for
        e4m3's 5, that is with 2 bits less, rows were twice as wrong as is allowed.
        """
        return {"fp8e4nv": 3 if self.guess and not self.codes else 5, "fp8e5": 7}.get(self.dtype, 0)

    @property
    def most_lane_sum(self) -> float:
        """guess: up to which sum of a thread's probabilities, of a row and block, the row keeps its maximum.

        No probability is larger than that, so that each is in the range of its type. And with the true maximum no sum
        is larger: block_n / 4 probabilities of at most 2 ** head_bits.
        """
        return {"fp8e4nv": 448.0, "fp8e5": 57344.0, "fp16": 32768.0, "bf16": 2.0**60}[self.dtype]

    @property
    def stages(self) -> int:
        if self.kv_stages is not None:
            return self.kv_stages
        return min(MOST_KV_STAGES, (SHARED_BYTES - self._shared_bytes_without_kv) // self._stage_bytes)

    @property
    def _stage_bytes(self) -> int:
        return 2 * self.block_n * self.head_dim * self.element_bytes

    @property
    def _shared_bytes_without_kv(self) -> int:
        elements = self.block_m * self.head_dim
        out = 0 if self.shared_out else 2 * elements
        rows = TRANSPOSE_SLOTS * self.block_n * self.head_dim if self.transpose_v else 0
        ones = MMA_COLUMNS * self.block_n if self.codes else 0
        return elements * self.element_bytes + out + rows + ones + BARRIER_BYTES

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA, an upper bound: Q and O tiles, K and V stages, V's rows, barriers."""
        return self._shared_bytes_without_kv + self.stages * self._stage_bytes

    @property
    def consumer_registers(self) -> int:
        if self.codes and self.transpose_v and self.consumers == 2:
            return CODES_REGISTERS
        return CONSUMER_REGISTERS[self.consumers]

    @property
    def entry_registers(self) -> int:
        """Registers per thread at launch, for the consumers' warpgroups and the loading one."""
        return REGISTERS // ((self.consumers + 1) * WARPGROUP_THREADS) // 8 * 8

    @property
    def tile_registers(self) -> int:
        """Registers per consumer thread that tiles take: fp32 scores and accumulator, the MMAs' left operands.

        With overlap there are two sets of probabilities: some are made while others are read.
        """
        threads_per_row = WARPGROUP_THREADS // CONSUMER_ROWS
        probabilities = self.block_n * (2 if self.overlap else 1)
        operands = (probabilities + self.head_dim * self.keep_q) * self.element_bytes // 4
        return (self.block_n + self.head_dim + operands) // threads_per_row

    def section(self, keys: int, heads_per_kv: int, round_heads: int = 1) -> int:
        """Heads of Q whose tiles are taken together: as many as have their K and V in L2_BYTES, or `round_heads`."""
        kv_bytes = 2 * keys * self.head_dim * self.element_bytes
        return max(L2_BYTES // kv_bytes, -(-round_heads // heads_per_kv), 1) * heads_per_kv

    @property
    def boxes(self) -> dict[str, list[int]]:
        """TMA box of each tensor descriptor: [batch, head, row, column]. V of fp8: transposed, or pairs of bytes."""
        q = [1, 1, CONSUMER_ROWS, self.head_dim]
        k = [1, 1, self.block_n, self.head_dim]
        v = k
        if self.transpose_v:
            v = [1, 1, self.block_n, self.head_dim // 2]
        elif self.fp8:
            v = [1, 1, self.head_dim, self.block_n]
        return {"q_desc": q, "k_desc": k, "v_desc": v, "o_desc": q}

    @property
    def dtypes(self) -> dict[str, str]:
        """Element type of each tensor descriptor; V that is to be transposed is taken by pairs."""
        v = "i16" if self.transpose_v else self.dtype
        return {"q_desc": self.dtype, "k_desc": self.dtype, "v_desc": v, "o_desc": self.out_dtype}

    def why_not(self, arch: int) -> str | None:
        """The first reason why compute capability `arch` (90 = sm_90) cannot run this kernel, or None."""
        if arch not in HOPPER:
            return f"arch {arch}: wgmma exists on sm_90 only"
        if self.dtype not in BITS:
            return f"dtype {self.dtype!r}: not one of {', '.join(BITS)}"
        if self.head_dim not in HEAD_DIMS:
            return f"head_dim {self.head_dim}: not one of {', '.join(map(str, HEAD_DIMS))}, what tiles are cut for"
        if self.causal not in CAUSAL:
            return f"causal {self.causal!r}: not None, 'top-left' or 'bottom-right'"
        if self.consumers not in CONSUMER_REGISTERS:
            return f"consumers {self.consumers}: 2 or 3 warpgroups fit beside the loading one"
        if self.block_n not in (64, 128, 256):
            return f"block_n {self.block_n}: 64, 128 or 256, powers of two that wgmma takes as N"
        if self.guess and self.block_n > 128:
            return (
                f"block_n {self.block_n}: with guess 64 or 128, sums of more probabilities say nothing of the largest"
            )
        if not 0 <= self.by_fma <= (16 if self.guess else 0):
            return f"by_fma {self.by_fma}: 0 to 16, and 0 without guess"
        if self.tile_registers + SCALAR_REGISTERS > self.consumer_registers:
            return (
                f"{self.tile_registers} registers for the tiles of block_n {self.block_n}: "
                f"a thread of {self.consumers} consumers has {self.consumer_registers}"
            )
        if self.overlap and not self.guess:
            return "overlap without guess: there are no registers for exponentials beside probabilities"
        if self.int_max and self.guess:
            return "int_max with guess: it looks for maxima only where a guess was wrong"
        if self.codes and not self.fp8:
            return f"codes with {self.dtype}: they are of fp8"
        if self.transpose_v and self.block_n > 128:
            return f"block_n {self.block_n}: transpose_v writes rows of at most 128 keys, the width of a swizzle"
        if self.transpose_v and not self.fp8:
            return f"transpose_v with {self.dtype}: wgmma reads V of 16 bits as it is"
        if not 2 <= self.stages <= MOST_KV_STAGES:
            return f"kv_stages {self.stages}: 2 to {MOST_KV_STAGES}, there is a named barrier for each"
        if self.shared_bytes > SHARED_BYTES:
            return f"{self.shared_bytes} shared bytes for {self.stages} kv_stages: a CTA has {SHARED_BYTES}"
        return why_not_name(self.name)

    def require(self, arch: int) -> None:
        """Raise ValueError with the reason if `arch` cannot run this kernel."""
        reason = self.why_not(arch)
        if reason is not None:
            raise ValueError(f"hopper attention kernel for sm_{arch}: {reason}")


def shift(causal: str | None, rows: int, keys: int) -> int:
    """Row i of a causal kernel sees keys 0 .. i + shift."""
    return keys - rows if causal == "bottom-right" else 0


def default_config(
    arch: int, dtype: str, head_dim: int, causal: str | None, queries: int = 4096, lse: bool = False
) -> HopperConfig:
    """What was fastest on an H100 at 1024 and 4096 queries and keys, 16 heads, batch 16 and 4; see FEW_QUERIES.

    lse: whether it is asked for, which config.codes is too rough for.
    """
    config = HopperConfig(dtype, head_dim, causal)
    if config.fp8:
        return replace(config, transpose_v=head_dim < 256, **_fp8_softmax(config, queries, lse))
    if head_dim == 64:
        if queries >= (2048 if causal is None else 4096):
            return replace(config, consumers=3, turns=True, int_max=True)
        return replace(config, guess=True, turns=True, keep_q=True)
    if head_dim == 256:  # shared memory is full with blocks of 128 keys
        return replace(config, block_n=64, guess=True)
    return replace(config, guess=True, turns=causal is not None and queries < 2048)


def _fp8_softmax(config: HopperConfig, queries: int, lse: bool) -> dict[str, int | bool]:
    """Fields of default_config for fp8."""
    masked = config.causal is not None
    three = config.head_dim == 64 and queries >= (8192 if masked else 2048)
    if queries < FEW_QUERIES:
        return {}
    if config.head_dim == 256:
        return {"int_max": True, "turns": True, "codes": not lse}
    fields = {"guess": True, "consumers": 3 if three else 2}
    if lse:
        by_fma = 1 if config.head_dim == 128 else 2
        return fields | {"by_fma": by_fma, "turns": config.head_dim == 128}
    return fields | {"codes": True, "overlap": True, "keep_q": not three, "turns": not masked or queries >= 2048}


def candidates(config: HopperConfig, arch: int) -> Iterator[HopperConfig]:
    """Configs that compute what `config` does on `arch`, without guess exactly; `config` comes first."""
    yield config
    searched: dict[str, bool | int] = {"guess": False, "overlap": False, "by_fma": 0, "codes": False}
    maxima: tuple[dict[str, bool | int], ...] = (
        {"guess": True, "overlap": True, "int_max": False},
        {"guess": True, "overlap": False, "int_max": False},
        searched | {"int_max": True},
        searched | {"int_max": False},
    )
    for consumers, block_n, turns, fields in product((2, 3), (64, 128), (False, True), maxima):
        other = replace(config, consumers=consumers, block_n=block_n, turns=turns, kv_stages=None, **fields)
        if other != config and other.why_not(arch) is None:
            yield other


def tile_order(config: HopperConfig, heads: int, heads_per_kv: int, rows: int, keys: int, programs: int) -> list[int]:
    """An ordered kernel's tiles, m * heads + head, by CTA: CTA i takes elements i, i + programs, ...

    Heads are taken in sections whose K and V stay in the L2 cache, of each section the long tiles first. In each round
    the longest tile goes to the CTA with the least work so far: a CTA that always got the first tile of a round
    would have 10 to 50 % more to do than the mean.
    """
    tiles_m = -(-rows // config.block_m)
    section = config.section(keys, heads_per_kv, programs // tiles_m)
    lengths = [tile_work(config, m, rows, keys) for m in range(tiles_m)]
    tiles = [
        m * heads + head
        for first in range(0, heads, section)
        for m in sorted(range(tiles_m), key=lambda m: (-lengths[m], -m))
        for head in range(first, min(first + section, heads))
    ]
    work = [0.0] * programs
    taken: list[list[int]] = [[] for _ in range(programs)]
    for start in range(0, len(tiles), programs):
        longest_first = sorted(tiles[start : start + programs], key=lambda tile: -lengths[tile // heads])
        least_first = sorted(range(programs), key=work.__getitem__)
        for program, tile in zip(least_first, longest_first, strict=False):
            taken[program].append(tile)
            work[program] += lengths[tile // heads] + TILE_OVERHEAD_BLOCKS
    # The last round may be short: the kernel gives its tiles to the first CTAs.
    taken.sort(key=len, reverse=True)
    return [tile for tiles_of_round in zip_longest(*taken) for tile in tiles_of_round if tile is not None]


def tile_work(config: HopperConfig, m: int, rows: int, keys: int) -> float:
    """Key blocks that the m-th tile's consumers compute, in the mean of them."""
    if not config.uneven:
        return consumer_blocks(config, m, config.consumers - 1, rows, keys)
    return sum(consumer_blocks(config, m, i, rows, keys) for i in range(config.consumers)) / config.consumers


def consumer_blocks(config: HopperConfig, m: int, consumer: int, rows: int, keys: int) -> int:
    """Key blocks that one consumer of the m-th tile computes: those that its rows see, at least 1."""
    first = m * config.block_m + consumer * CONSUMER_ROWS
    if config.uneven and first >= rows:
        return 1
    seen = min(keys, first + CONSUMER_ROWS + shift(config.causal, rows, keys)) if config.causal else keys
    return max(1, -(-seen // config.block_n))
