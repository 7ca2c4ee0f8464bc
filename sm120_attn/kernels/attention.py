"""What both kernels share: the arguments of a launch, the walk of a warp over its tiles, and the work on one tile.

How tiles of K and V come into shared memory is the kernels' own: each gives the walk two rings, with the methods

    slot(count)                    the slot that tile `count` of this CTA is in
    wait_full(count)               until the tile can be read
    release(count, lane)           after a warp's last read of it

and every warp of a CTA calls both once for every tile of the CTA, in the same order, needed or not.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from ..compile.fake_arguments import DTYPE
from ..config import Config
from . import inline_ptx as ptx
from . import mask, scheduler
from .epilogue import store
from .mma import policy_of
from .softmax import LOG2_E, OnlineSoftmax, soft_cap

NO_BOUND = 1 << 30  # window sizes: more keys than any sequence has


@dataclass(frozen=True)
class Warp:
    """What a compute warp has at hand on its walk, and its work on one tile. `count` numbers a CTA's tiles in order."""

    config: Config
    policy: Any
    band: mask.Band
    softmax: OnlineSoftmax
    output: Any  # O in registers
    q_of: Any  # step -> A operands of Q
    k_base: Any  # byte addresses of the tiles
    v_base: Any
    k_offsets: Any  # lane's byte offsets in them
    v_offsets: Any
    k_ring: Any
    v_ring: Any
    into: Any  # of softcap
    lane_row: Any  # query of the thread's first row
    lane_keys: Any  # of its first scores within eight, see policy.key_offsets
    lane: Any
    last: Any  # number of tile 0: tile t has the number last - t
    part: Any  # with split_keys: 0 or 1, the tiles of even or of odd number

    def own(self, count):
        """The first number from `count` on that is this warp's."""
        return count + ((count ^ self.part) & 1) if self.config.split_keys else count

    @cute.jit
    def skip(self, count, end):
        """Pass the barriers of tiles unread."""
        for number in cutlass.range(self.own(count), end, self.config.tile_step, unroll=1):
            self.k_ring.wait_full(number)
            self.k_ring.release(number, self.lane)
            self.v_ring.wait_full(number)
            self.v_ring.release(number, self.lane)

    @cute.jit
    def through(self, count, end, open_begin, open_end):
        """The tiles from number `count` to `end`; those from `open_begin` to `open_end` need no mask.

        Three loops: tiles that need a mask, and the first; the steady loop, without mask and rescaling; the rest. The
        steady loop ends for good when a maximum has grown so much that the output must be rescaled. Its first tile left
        undone, and all after it, are the rest's, which has mask and rescaling and costs some per cent more.
        """
        step = self.config.tile_step
        count = self.own(count)
        open_begin = cutlass.max(self.own(cutlass.min(cutlass.max(open_begin, count + 1), end)), count)
        for number in cutlass.range(count, cutlass.min(open_begin, end), step, unroll=1):
            self.k_ring.wait_full(number)
            self.any_tile(number)
        count = open_begin
        steady = cutlass.Boolean(True)
        while steady & (count < open_end):
            self.k_ring.wait_full(count)
            scores = self.scores(count)
            steady = not self.softmax.has_grown(self.softmax.largest(scores))
            if steady:
                self.finish(count, scores)
                count = count + step
        while count < end:
            if steady:
                self.k_ring.wait_full(count)
            self.any_tile(count)
            count = count + step
            steady = cutlass.Boolean(True)

    def any_tile(self, count):
        """One tile of keys, whatever it needs: a mask, other maxima. Its K has landed."""
        scores = self.scores(count)
        first_key = (self.last - count) * self.config.tile_n
        mask.hide(scores, self.policy, self.band, self.lane_row, self.lane_keys, first_key)
        self.softmax.see(scores, self.output)
        self.finish(count, scores, early=True)

    def scores(self, count):
        """S of one tile."""
        c, policy = self.config, self.policy
        base = self.k_base + self.k_ring.slot(count) * c.kv_bytes
        scores = policy.new_scores()
        policy.add_scores(scores, self.q_of, base, self.k_offsets)
        if c.softcap:
            soft_cap(scores, policy, self.into)
        return scores

    def finish(self, count, scores, early: bool = False):
        """Probabilities, and O += P V of one tile.

        Probabilities of a step are made between the products of the step before, or all before the first one (early),
        which takes fewer registers.
        """
        c, policy = self.config, self.policy
        self.k_ring.release(count, self.lane)
        base = self.v_base + self.v_ring.slot(count) * c.kv_bytes
        steps = range(policy.columns // policy.step_columns)
        p_of = self.p_of(scores)
        if early:
            p_of = [p_of(step) for step in steps].__getitem__
        self.v_ring.wait_full(count)
        for step in steps:
            policy.add_values(self.output, p_of(step), base, self.v_offsets, step)
        self.v_ring.release(count, self.lane)

    def p_of(self, scores):
        """The operands of P for a step of keys, as a function that makes them when asked for."""
        policy = self.policy
        columns = policy.step_columns

        def operands(step: int):
            return [
                policy.p_operand(
                    [self.softmax.exponentials(scores, block, columns * step + i) for i in range(columns)], step
                )
                for block in range(policy.blocks)
            ]

        return operands


class Attention:
    """One Config's kernel, without the loads. `build` makes it; see there for the arguments of the call."""

    def __init__(self, config: Config, policy: Any = None):
        """policy: None for the one of the config."""
        self.config = config
        self.policy = policy_of(config) if policy is None else policy
        self.dtype = DTYPE[config.dtype]

    # --- launcher ---

    def name_kernel(self):
        type(self).kernel.set_name_prefix(
            self.config.name, remove_cutlass_symbol=not self.config.cutlass_name, keep_mangled_name=False
        )

    def sizes(self, q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q):
        """The scheduler's Problem, and the number of tiles.

        varlen: the keys of one sequence are taken as max_seqlen_q, which is all that is known on the host.
        """
        head_axis = 1 if self.config.varlen else 2
        heads, heads_kv = q.shape[head_axis], k.shape[head_axis]
        batch = cu_seqlens_q.shape[0] - 1 if self.config.varlen else q.shape[0]
        seqlen_k = Int32(0) if self.config.varlen else k.shape[1]
        tiles_m = cute.ceil_div(max_seqlen_q, self.config.tile_m)
        group = scheduler.heads_per_group(
            self.config, heads, heads_kv, max_seqlen_q if self.config.varlen else seqlen_k
        )
        group = cutlass.min(group, heads * batch)
        problem = scheduler.Problem(heads, heads_kv, tiles_m, group, max_seqlen_q, seqlen_k, cu_seqlens_q, cu_seqlens_k)
        return problem, tiles_m * heads * batch

    def scales(self, scale_log2, softcap):
        """What a score is multiplied with in the softmax, and before tanh."""
        if not self.config.softcap:
            return scale_log2, Float32(0.0)
        return softcap * LOG2_E, 2.0 * scale_log2 / softcap

    def bounds(self, window_left, window_right):
        """Window sizes with "no bound" as a large number."""
        unbounded = Int32(NO_BOUND)
        return tuple(ptx.select(w < 0, unbounded, w) for w in (window_left, window_right))

    # --- set-up in the kernel ---

    def allocate_tiles(self, smem, size_bytes: int):
        """Room for tiles, as a pointer to elements; the swizzle wants 1024-byte boundaries."""
        return cute.recast_ptr(smem.allocate(size_bytes, 1024), dtype=self.dtype)

    # --- compute ---

    def descaled(self, work, descales, scale, into):
        """scale and into for FP8's own scale factors, and the factor of the output (None: 1)."""
        if not self.config.fp8:
            return scale, into, None
        q_descale, k_descale, v_descale = descales
        factor = q_descale[work.batch, work.head] * k_descale[work.batch, work.head_kv]
        if self.config.softcap:
            into = into * factor
        else:
            scale = scale * factor
        return scale, into, v_descale[work.batch, work.head_kv]

    @cute.jit
    def walk(
        self, work: cutlass.Constexpr, band: cutlass.Constexpr, tiles: cutlass.Constexpr,
        q_smem, k_smem, v_smem, k_ring: cutlass.Constexpr, v_ring: cutlass.Constexpr, scale, into, warp, lane,
    ):  # fmt: skip
        """A warp's rows over all tiles of keys: softmax state and output. Q has landed in shared memory."""
        c, policy = self.config, self.policy
        part, warp = warp // c.row_warps, warp % c.row_warps
        first_row = work.first_row + warp * c.rows_per_warp
        q_offsets, k_offsets, v_offsets = policy.lane_offsets(lane)
        q_base = q_smem.toint() + warp * (c.rows_per_warp * c.row_bytes)
        mine = mask.tiles_of(band, first_row, c.rows_per_warp, c.tile_n).within(tiles)
        output = policy.new_output()
        softmax = OnlineSoftmax(policy, scale)
        if cutlass.const_expr(c.q_in_registers):
            held = [policy.load_q(q_base, q_offsets, step) for step in range(c.k_steps)]
            q_of = lambda step: held[step]  # noqa: E731
        else:
            q_of = lambda step: policy.load_q(q_base, q_offsets, step)  # noqa: E731
        start = tiles.last  # tile t has the number start - 1 - t
        w = Warp(
            c, policy, band, softmax, output, q_of, k_smem.toint(), v_smem.toint(), k_offsets, v_offsets, k_ring,
            v_ring, into, first_row + lane // 4, policy.key_offsets(lane), lane, start - 1, part,
        )  # fmt: skip
        # Tiles that others of this CTA need, but not this warp: their barriers must be passed all the same.
        w.skip(Int32(0), start - mine.last)
        w.through(start - mine.last, start - mine.first, start - mine.open_last, start - mine.open_first)
        if cutlass.const_expr(c.window):
            w.skip(start - mine.first, start - tiles.first)
        return softmax, output

    def store(self, work, softmax, output, o, lse, warp, lane, factor=None):
        """factor: of the whole output."""
        row = work.first_row + warp * self.config.rows_per_warp + lane // 4
        store(self.config, self.policy, softmax, output, o, lse, work, row, lane, factor)
