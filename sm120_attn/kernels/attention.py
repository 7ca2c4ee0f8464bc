"""Shared code of both attention kernels: arguments of a launch, a warp's loop over tiles, and the work on one tile.

The kernels load tiles of K and V into shared memory in different ways. Each kernel passes two rings to the loop, one of
K and one of V, with these methods:

    slot(count)             return the slot of the CTA's tile number `count`
    wait_full(count)        wait until the tile can be read
    release(count, lane)    signal that this warp has read the tile

Every warp of a CTA calls wait_full and release once for every tile of the CTA, in the same order, also for tiles that
it does not need.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from ..config import Config
from . import inline_ptx as ptx
from . import mask, scheduler
from .element_types import ELEMENT_TYPES
from .epilogue import store
from .given import Given, Scores
from .mma_16bit import Mma16
from .mma_fp8 import Mma8, Mma8Portable, Mma8StandIn
from .mma_fp8_cache import MmaFp8Cache
from .mma_scaled_cache import MmaMxfp8Cache, MmaNvfp4Cache, MmaNvfp4CacheColumns
from .softmax import LOG2_E, OnlineSoftmax, soft_cap

CACHE_POLICIES = {"e4m3": MmaFp8Cache, "mxfp8": MmaMxfp8Cache, "nvfp4": MmaNvfp4Cache}
NO_BOUND = 1 << 30  # window size for "no limit": more keys than any sequence has


@dataclass(frozen=True)
class Warp:
    """A compute warp in its loop over the tiles of its CTA. `count` numbers these tiles in the order of the loop."""

    config: Config
    policy: Any
    band: mask.Band
    softmax: OnlineSoftmax
    acc_o: Any  # O in registers
    q_of: Any  # function: step along head_dim -> A operands of Q
    k_base: Any  # k_base, v_base: byte addresses of the rings' first slots
    v_base: Any
    k_offsets: Any  # k_offsets, v_offsets: the lane's byte offsets in a tile, see policy.lane_offsets
    v_offsets: Any
    k_ring: Any
    v_ring: Any
    tanh_scale: Any  # for softcap, see softmax.soft_cap
    queries: Any  # query numbers of the thread's rows
    lane_keys: Any  # keys of the thread's first scores in an n8 column, see policy.key_offsets
    lane: Any
    last: Any  # number of the tile with key 0. The tile with keys from t * tile_n on has the number last - t
    part: Any  # with split_keys: 0 if the warp takes tiles with even numbers, 1 if odd

    def own(self, count):
        """Return the number of this warp's first tile at `count` or after it."""
        return count + ((count ^ self.part) & 1) if self.config.split_keys else count

    @cute.jit
    def skip(self, count, end):
        """Wait for tiles `count` to `end` - 1 and release them without reading them."""
        for number in cutlass.range(self.own(count), end, self.config.tile_step, unroll=1):
            self.k_ring.wait_full(number)
            self.k_ring.release(number, self.lane)
            self.v_ring.wait_full(number)
            self.v_ring.release(number, self.lane)

    @cute.jit
    def through(self, count, end, open_begin, open_end):
        """Work on the tiles `count` to `end` - 1. The tiles `open_begin` to `open_end` - 1 need no mask.

        There are three loops. The first handles the very first tile and the tiles before `open_begin`. The second, the
        steady loop, has neither mask nor rescaling. It ends at a tile at which a row maximum grows so much that O must
        be rescaled. The third loop handles this tile and all later tiles with mask and rescaling; it is a few per cent
        slower.
        """
        step = self.config.tile_step
        count = self.own(count)
        open_begin = cutlass.max(self.own(cutlass.min(cutlass.max(open_begin, count + 1), end)), count)
        for number in cutlass.range(count, cutlass.min(open_begin, end), step, unroll=1):
            self.k_ring.wait_full(number)
            self.any_tile(number)
        count = open_begin
        steady = cutlass.Boolean(True)
        starts = self.softmax.starts() if self.policy.spare_registers else None
        while steady & (count < open_end):
            self.k_ring.wait_full(count)
            scores = self.scores(count, starts)
            steady = not self.softmax.must_rescale(scores, starts)
            if steady:
                self.finish(count, scores, starts)
                count = count + step
        while count < end:
            if steady:
                self.k_ring.wait_full(count)
            self.any_tile(count)
            count = count + step
            steady = cutlass.Boolean(True)

    def any_tile(self, count):
        """Work on one tile of keys with mask and rescaling. The tile's K must be in shared memory."""
        scores = self.scores(count)
        first_key = (self.last - count) * self.config.tile_n
        mask.hide(scores, self.policy, self.band, self.queries, self.lane_keys, first_key)
        self.softmax.see(scores, self.acc_o)
        self.finish(count, scores, early=True)

    def scores(self, count, starts=None):
        """Compute S of one tile. starts: see policy.new_scores."""
        c, policy = self.config, self.policy
        base = self.k_base + self.k_ring.slot(count) * c.kv_bytes
        scores = policy.new_scores(None if c.softcap else starts)
        policy.add_scores(scores, self.q_of, base, self.k_offsets)
        if c.softcap:
            soft_cap(scores, policy, self.tanh_scale, starts)
        return scores

    def finish(self, count, scores, starts=None, early: bool = False):
        """Compute the probabilities of one tile and add P V to O. starts: as in `scores`.

        A step is 16 keys (FP8 inputs: 32). The probabilities of a step are computed between the MMAs of the previous
        step. With `early` all probabilities are computed before the first MMA, which takes fewer registers. With
        two_level they are too, because each block of O gets all MMAs of a tile before the next block begins.
        """
        c, policy = self.config, self.policy
        self.k_ring.release(count, self.lane)
        base = self.v_base + self.v_ring.slot(count) * c.kv_bytes
        steps = range(policy.columns // policy.step_columns)
        p_of = self.p_of(scores, starts)
        if early or c.two_level:
            p_of = [p_of(step) for step in steps].__getitem__
        self.v_ring.wait_full(count)
        if c.two_level:
            policy.add_tile(self.acc_o, [p_of(step) for step in steps], base, self.v_offsets)
        else:
            for step in steps:
                policy.add_values(self.acc_o, p_of(step), base, self.v_offsets, step)
        self.v_ring.release(count, self.lane)

    def p_of(self, scores, starts):
        """Return a function that computes the MMA operands of P for a step of keys."""
        policy = self.policy
        columns = policy.step_columns

        def operands(step: int):
            return [
                policy.p_operand(
                    [self.softmax.exponentials(scores, block, columns * step + i, starts) for i in range(columns)],
                    step,
                )
                for block in range(policy.blocks)
            ]

        return operands


def policy_of(config):
    """Choose the MMA policy for a config's dtype and target."""
    if getattr(config, "kv_dtype", ""):
        few = getattr(config, "rows_per_warp", 16) == 8
        return MmaNvfp4CacheColumns(config) if few else CACHE_POLICIES[config.kv_dtype](config)
    if not config.fp8:
        return Mma16(config)
    if config.fp8_mma == "portable":
        return Mma8Portable(config)
    if config.arch == "sm_90a":  # has neither byte-wise ldmatrix nor block-scaled MMA
        return Mma8StandIn(config)
    return Mma8(config, block_scaled=config.fp8_mma == "native")


class Attention:
    """The kernel of one Config, without the loads. See compile/build.py for the arguments of the call."""

    kernel: Any  # a @cute.kernel of the subclass
    config: Any  # a Config, or the DecodeConfig of kernels.decode.kernel.Decode

    def __init__(self, config: Any):
        self.config = config
        self.policy = policy_of(config)
        self.dtype = ELEMENT_TYPES[config.dtype]
        self.kv_dtype = ELEMENT_TYPES[config.kv_dtype or config.dtype]

    # --- launcher ---

    def name_kernel(self):
        """Set the kernel's name; it contains "cutlass" only if it must select ptxas's second scheduler."""
        by_name = self.config.mma_throughput and not ptx.knows_pragma()
        type(self).kernel.set_name_prefix(self.config.name, remove_cutlass_symbol=not by_name, keep_mangled_name=False)

    def schedule(self):
        """Select ptxas's second scheduler by pragma if the config has mma_throughput and ptxas knows the pragma."""
        if self.config.mma_throughput and ptx.knows_pragma():
            ptx.mma_throughput()

    def problem(self, q, k, given: Given, max_seqlen_q):
        """Make the scheduler's Problem from the tensors.

        With varlen or a cache the host does not know the number of keys; it takes max_seqlen_q as an estimate.
        """
        num_heads, num_heads_kv = q.shape[len(q.shape) - 2], k.shape[len(k.shape) - 2]
        batch = given.cu_seqlens_q.shape[0] - 1 if self.config.varlen else q.shape[0]
        unknown = self.config.varlen or self.config.cache_rows
        seqlen_k = Int32(0) if unknown else k.shape[1]
        tiles_m = cute.ceil_div(max_seqlen_q, self.config.tile_m)
        group = scheduler.heads_per_group(self.config, num_heads, num_heads_kv, max_seqlen_q if unknown else seqlen_k)
        group = cutlass.min(group, num_heads * batch)
        total = tiles_m * num_heads * batch
        divisors = scheduler.Divisors.of(num_heads, num_heads_kv, tiles_m, group, total)
        return scheduler.Problem(num_heads, num_heads_kv, tiles_m, group, total, max_seqlen_q, seqlen_k, divisors)

    def scores_of(self, scale_log2, softcap, window_left, window_right):
        """Make the Scores of a call. A negative window size, which means no limit, becomes NO_BOUND."""
        scale, tanh_scale = scale_log2, Float32(0.0)
        if self.config.softcap:
            scale, tanh_scale = softcap * LOG2_E, 2.0 * scale_log2 / softcap
        unbounded = Int32(NO_BOUND)
        left, right = (ptx.select(w < 0, unbounded, w) for w in (window_left, window_right))
        return Scores(scale, tanh_scale, left, right)

    # --- set-up in the kernel ---

    def allocate_tiles(self, smem, size_bytes: int, dtype):
        """Reserve shared memory for tiles; returns a pointer to elements. The swizzle needs 1024-byte alignment."""
        return cute.recast_ptr(smem.allocate(size_bytes, 1024), dtype=dtype)

    # --- compute ---

    def descaled(self, work, given, scale, tanh_scale):
        """Return scale and tanh_scale times the descales of Q and K, and the descale of V, by which O is multiplied.

        Without descales the third value is None.
        """
        if not (self.config.fp8 or self.config.kv_dtype):
            return scale, tanh_scale, None
        factor = given.k_descale[work.batch, work.head_kv]
        if self.config.fp8:
            factor = given.q_descale[work.batch, work.head] * factor
        return *self.rescaled(scale, tanh_scale, factor), given.v_descale[work.batch, work.head_kv]

    def rescaled(self, scale, tanh_scale, factor):
        """Multiply `scale`, or with softcap `tanh_scale`, by `factor`, a factor of the scores."""
        return (scale, tanh_scale * factor) if self.config.softcap else (scale * factor, tanh_scale)

    @cute.jit
    def walk(
        self, work: cutlass.Constexpr, band: cutlass.Constexpr, tiles: cutlass.Constexpr,
        q_smem, k_smem, v_smem, k_ring: cutlass.Constexpr, v_ring: cutlass.Constexpr, scale, tanh_scale, warp, lane,
    ):  # fmt: skip
        """Loop over a warp's tiles of keys; return its softmax state and O. Q must be in shared memory."""
        c, policy = self.config, self.policy
        part, warp = warp // c.row_warps, warp % c.row_warps
        first_row = work.first_row + warp * c.rows_per_warp
        q_offsets, k_offsets, v_offsets = policy.lane_offsets(lane)
        q_base = q_smem.toint() + warp * (c.rows_per_warp * c.row_bytes)
        mine = mask.tiles_of(band, first_row, c.rows_per_warp, c.tile_n).within(tiles)
        if cutlass.const_expr(c.kv_dtype):
            q_of, factor = self.q_in_fp16(work, first_row, q_base, q_offsets, part, lane)
            scale, tanh_scale = self.rescaled(scale, tanh_scale, factor)
        elif cutlass.const_expr(c.q_in_registers):
            held = [policy.load_q(q_base, q_offsets, step) for step in range(c.k_steps)]
            q_of = lambda step: held[step]  # noqa: E731
        else:
            q_of = lambda step: policy.load_q(q_base, q_offsets, step)  # noqa: E731
        acc_o = policy.new_output()
        softmax = OnlineSoftmax(policy, scale)
        start = tiles.last  # tile t has the number start - 1 - t
        w = Warp(
            c, policy, band, softmax, acc_o, q_of, k_smem.toint(), v_smem.toint(), k_offsets, v_offsets, k_ring,
            v_ring, tanh_scale, policy.row_numbers(first_row, lane), policy.key_offsets(lane), lane, start - 1, part,
        )  # fmt: skip
        # Other warps of this CTA need these tiles; this warp does not, but must wait for them and release them.
        w.skip(Int32(0), start - mine.last)
        w.through(start - mine.last, start - mine.first, start - mine.open_last, start - mine.open_first)
        if cutlass.const_expr(c.window):
            w.skip(start - mine.first, start - tiles.first)
        return softmax, acc_o

    @cute.jit
    def q_in_fp16(self, work: cutlass.Constexpr, first_row, q_base, q_offsets, part, lane):
        """Convert Q to FP16, for FP8 caches. Return a function from a step along head_dim to A operands, and a factor.

        The scores must be multiplied by the factor. Operands that do not stay in registers overwrite Q in shared
        memory. Rows past the sequence become zero, because rows of other sequences must not influence the factor.
        """
        c, policy = self.config, self.policy
        rows = policy.row_numbers(first_row, lane)
        there = [row < work.seqlen_q for row in rows]
        words = [
            [
                [ptx.select(there[2 * block + i % 2], word, Int32(0)) for i, word in enumerate(operand)]
                for block, operand in enumerate(policy.load_q(q_base, q_offsets, step))
            ]
            for step in range(c.k_steps)
        ]
        factor, inverse = policy.q_factor(word for step in words for operand in step for word in operand)
        held = [[[policy.in_fp16(word, inverse) for word in operand] for operand in step] for step in words]
        if cutlass.const_expr(c.q_in_registers):
            q_of = held.__getitem__
        else:
            mine = q_base + lane * 16
            if cutlass.const_expr(c.split_keys):  # two warps share these rows: both read them before one of them writes
                cute.arch.barrier(barrier_id=1, number_of_threads=32 * c.warps)
            else:
                cute.arch.sync_warp()
            if part == 0:
                for step in cutlass.range_constexpr(c.k_steps):
                    self.policy.store_operands(mine, step, held[step])
            if cutlass.const_expr(c.split_keys):
                cute.arch.barrier(barrier_id=1, number_of_threads=32 * c.warps)
            else:
                cute.arch.sync_warp()
            q_of = lambda step: policy.load_operands(mine, step)  # noqa: E731
        return q_of, factor

    def store(self, work, softmax, acc_o, given, warp, lane, factor=None):
        """Write the warp's rows of O and LSE. factor: multiplies all of O; None means 1."""
        rows = self.policy.row_numbers(work.first_row + warp * self.config.rows_per_warp, lane)
        store(self.config, self.policy, softmax, acc_o, given, work, rows, lane, factor)
