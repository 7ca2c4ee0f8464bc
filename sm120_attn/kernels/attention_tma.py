"""Attention forward with TMA: one warp loads K and V, the other warps compute 16 or 32 query rows each.

A compute warp loads its own Q. For each tile of keys it computes S = Q K^T and the softmax, and adds P V, in registers.
K and V have one ring each, so that K of the next tile arrives while V of the current tile is in use.

Barriers:

    name            completes when                          who waits
    k_full[slot]    TMA bytes of the tile have landed       every compute warp, before it reads the tile
    k_empty[slot]   every compute warp has read the tile    load warp, before it loads the slot's next tile
    v_full[slot]    as k_full                               as k_full
    v_empty[slot]   as k_empty                              as k_empty
    q_full[warp]    TMA bytes of the warp's Q have landed   that warp

With split_keys two warps have the same query rows and take every other tile, each from its own slot.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from ..config import LOAD_REGISTERS, PANEL_BYTES
from . import inline_ptx as ptx
from . import mask, scheduler
from .attention import Attention
from .given import Given, Scores
from .pipeline import Ring


@dataclass(frozen=True)
class Cta:
    """Values of a CTA that the kernel's functions use."""

    problem: scheduler.Problem
    given: Given
    scores: Scores
    item: Any  # index of this CTA
    q_full: Any
    q_smem: Any
    k_smem: Any
    v_smem: Any
    k_ring: Ring
    v_ring: Ring
    warp: Any
    lane: Any


class AttentionTma(Attention):
    """The kernel of one Config. See compile/build.py for the arguments of the call."""

    # --- launcher ---

    @cute.jit
    def __call__(
        self, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, cache_seqlens, block_table, sinks,
        q_descale, k_descale, v_descale,
        max_seqlen_q: Int32, scale_log2: Float32, softcap: Float32, window_left: Int32, window_right: Int32, stream,
    ):  # fmt: skip
        c = self.config
        given = Given(
            self.tma(plain_rows(q, c), c.rows_per_warp, c.panel_columns),
            self.tma(self.view(k), self.box_rows, c.kv_panel_columns),
            self.tma(self.view(v), self.box_rows, c.kv_panel_columns),
            o, lse, cu_seqlens_q, cu_seqlens_k, cache_seqlens, block_table, k.shape[1] if c.cache_rows else None, sinks,
            q_descale, k_descale, v_descale,
        )  # fmt: skip
        problem = self.problem(q, k, given, max_seqlen_q)
        scores = self.scores_of(scale_log2, softcap, window_left, window_right)
        self.name_kernel()
        self.kernel(given, problem, scores).launch(
            grid=(problem.total, 1, 1), block=(c.threads, 1, 1), stream=stream,
            min_blocks_per_mp=c.ctas_per_sm, preferred_smem_carveout=100,
        )  # fmt: skip

    @property
    def box_rows(self) -> int:
        """Rows of K or V that one TMA instruction loads (a box)."""
        return int(self.config.cache_rows or self.config.tile_n)

    def view(self, tensor):
        """Return a view of K or V in the shape from which TMA loads boxes."""
        if self.config.cache_rows:
            return cached_rows(tensor, self.config)
        return (
            ragged_rows(tensor, self.config, self.box_rows) if self.config.varlen else plain_rows(tensor, self.config)
        )

    def tma(self, rows, box_rows: int, columns: int):
        """Make the TMA atom for boxes of box_rows rows and `columns` columns, and its coordinate tensor."""
        op = cpasync.CopyBulkTensorTileG2SOp()
        return cpasync.make_tiled_tma_atom(op, rows, self.box_layout(box_rows, columns), (box_rows, columns))

    def box_layout(self, box_rows: int, columns: int):
        """Make the layout of one box in shared memory: rows of a panel, swizzled."""
        plain = cute.make_layout((box_rows, columns), stride=(columns, 1))
        return cute.make_composed_layout(self.swizzle(), 0, plain)

    def swizzle(self):
        """Make TMA's swizzle for rows of 128 or 64 bytes. mma.py describes this swizzle."""
        return cute.make_swizzle(3 if self.config.panel_bytes == PANEL_BYTES else 2, 4, 3)

    # --- kernel ---

    @cute.kernel
    def kernel(self, given: Given, problem: scheduler.Problem, scores: Scores):
        self.schedule()
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        lane = thread % 32
        smem = SmemAllocator()
        k_ring = Ring.allocate(smem, c.stages_k, c.row_warps, self.policy.spare_registers)
        v_ring = Ring.allocate(smem, c.stages_v, c.row_warps, self.policy.spare_registers)
        q_full = smem.allocate_array(cutlass.Int64, c.row_warps)
        q_smem = self.allocate_tiles(smem, c.q_bytes, self.dtype)
        k_smem = self.allocate_tiles(smem, c.stages_k * c.kv_bytes, self.kv_dtype)
        v_smem = self.allocate_tiles(smem, c.stages_v * c.kv_bytes, self.kv_dtype)
        if thread == 0:
            k_ring.init()
            v_ring.init()
            for i in cutlass.range_constexpr(c.row_warps):
                cute.arch.mbarrier_init(q_full + i, 1)
            cute.arch.mbarrier_init_fence()
        if warp == c.warps:
            for atom, _ in given[:3]:
                cpasync.prefetch_descriptor(atom)
        cute.arch.sync_threads()

        cta = Cta(problem, given, scores, index, q_full, q_smem, k_smem, v_smem, k_ring, v_ring, warp, lane)
        if warp < c.warps:
            if warp < c.row_warps:
                self.ask_q(cta)  # before setmaxnreg, so that Q arrives sooner
            cute.arch.setmaxregister_increase(c.compute_registers)
            self.compute(cta)
        else:
            cute.arch.setmaxregister_decrease(LOAD_REGISTERS)
            if warp == c.warps:
                self.load(cta)

    def work_of(self, cta):
        """Find this CTA's tile of queries, the keys that it sees, and their tiles."""
        c = self.config
        work = scheduler.work_of(c, cta.problem, cta.given, cta.item)
        band = mask.Band.of(c, work.seqlen_q, work.seqlen_k, cta.scores.window_left, cta.scores.window_right)
        return work, band, mask.tiles_of(band, work.first_row, c.tile_m, c.tile_n)

    # --- load ---

    @cute.jit
    def load(self, cta: cutlass.Constexpr):
        work, _, tiles = self.work_of(cta)
        tile_n = self.config.tile_n
        ahead = self.page_of_lane(cta, work, (tiles.last - 1) * tile_n)
        for count in cutlass.range(tiles.last - tiles.first, unroll=1):
            key = (tiles.last - 1 - count) * tile_n
            page = ahead
            ahead = self.page_of_lane(cta, work, key - tile_n)
            self.load_tile(cta, cta.k_ring, *cta.given.k, cta.k_smem, work, count, key, page)
            self.load_tile(cta, cta.v_ring, *cta.given.v, cta.v_smem, work, count, key, page)

    @cute.jit
    def load_tile(
        self, cta: cutlass.Constexpr, ring: cutlass.Constexpr, atom, rows, smem, work: cutlass.Constexpr, count, key,
        page,
    ):  # fmt: skip
        c = self.config
        ring.wait_empty(count)
        full = ring.full(count)
        if cta.lane == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(full, c.kv_bytes)
        boxes = c.tile_n // self.box_rows
        for part in cutlass.range_constexpr(boxes):
            where = page if boxes == 1 else ptx.shuffle(page, part)
            source = self.box_at(cta, rows, work, key + part * self.box_rows, where)
            for panel in cutlass.range_constexpr(c.kv_panels):
                box = (ring.slot(count) * c.kv_panels + panel) * boxes + part
                at = cute.domain_offset((0, panel * c.kv_panel_columns), source)
                self.copy_box(atom, at, smem, box, (self.box_rows, c.kv_panel_columns), full)

    def page_of_lane(self, cta, work, key):
        """Look up the page of box number `lane` of the tile that starts at `key`. Return 0 without pages.

        Lanes past the number of boxes get the page of the last box. The load warp calls this one tile ahead, and once
        for both K and V, because the time between boxes is too short to wait for the table.
        """
        c = self.config
        if not c.paged:
            return Int32(0)
        at = key + cutlass.min(cta.lane, Int32(c.tile_n // self.box_rows - 1)) * self.box_rows
        at = ptx.select((at >= 0) & (at < work.seqlen_k), at, Int32(0))
        return cta.given.block_table[work.batch, at // cta.given.page_size]

    def box_at(self, cta, rows, work, key, page):
        """Compute the coordinates of the box of K or V that starts at `key` of the sequence. page: page of this key."""
        c, box_rows = self.config, self.box_rows
        if c.cache_rows:
            left = cutlass.min(cutlass.max(work.seqlen_k - key, Int32(0)), Int32(box_rows))
            key = ptx.select(left > 0, key, Int32(0))
            page, row = (page, key & (cta.given.page_size - 1)) if c.paged else (work.batch, key)
            rows = rows[None, None, work.head_kv, row + left, page]
            key = box_rows - left
        elif c.varlen:
            left = cutlass.min(cutlass.max(work.seqlen_k - key, Int32(0)), Int32(box_rows))
            rows = rows[None, None, work.head_kv, work.start_k + key + left]
            key = box_rows - left
        else:
            rows = rows[None, None, work.head_kv, work.batch]
        return cute.domain_offset((key, 0), rows)

    def copy_box(self, atom, source, smem, box, size: tuple[int, int], barrier):
        """Load a box of `size` (rows, columns) from the coordinates `source` into box number `box` of `smem`."""
        box_rows, columns = size
        layout = cute.make_layout((box_rows, columns), stride=(columns, 1))
        target = smem + box * (box_rows * columns)
        pointer = cute.recast_ptr(target, self.swizzle())
        shared, coordinates = cpasync.tma_partition(
            atom, 0, cute.make_layout(1),
            cute.group_modes(cute.make_tensor(pointer, layout), 0, 2),
            cute.group_modes(cute.local_tile(source, (box_rows, columns), (0, 0)), 0, 2),
        )  # fmt: skip
        cute.copy(atom, coordinates, shared, tma_bar_ptr=barrier)

    # --- compute ---

    @cute.jit
    def compute(self, cta: cutlass.Constexpr):
        c = self.config
        work, band, tiles = self.work_of(cta)
        scale, tanh_scale, factor = self.descaled(work, cta.given, cta.scores.scale, cta.scores.tanh_scale)
        cute.arch.mbarrier_wait(cta.q_full + cta.warp % c.row_warps, 0)
        softmax, acc_o = self.walk(
            work, band, tiles, cta.q_smem, cta.k_smem, cta.v_smem, cta.k_ring, cta.v_ring, scale, tanh_scale, cta.warp,
            cta.lane,
        )  # fmt: skip
        if cutlass.const_expr(c.split_keys):
            self.merge(softmax, acc_o, cta.q_smem.toint(), cta.k_smem.toint(), cta.warp, cta.lane)
        if cta.warp < c.row_warps:
            self.store(work, softmax, acc_o, cta.given, cta.warp, cta.lane, factor)

    @cute.jit
    def ask_q(self, cta: cutlass.Constexpr):
        """Start the load of the warp's own query rows."""
        c, barrier = self.config, cta.q_full + cta.warp
        atom, rows = cta.given.q
        work, _, _ = self.work_of(cta)
        row = work.first_row + cta.warp * c.rows_per_warp
        if cta.lane == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, c.rows_per_warp * c.row_bytes)
        for panel in cutlass.range_constexpr(c.panels):
            box = cta.warp * c.panels + panel
            at = self.q_box(rows, work, row, panel)
            self.copy_box(atom, at, cta.q_smem, box, (c.rows_per_warp, c.panel_columns), barrier)

    @cute.jit
    def merge(self, softmax: cutlass.Constexpr, acc_o, rows_base, output_base, warp, lane):
        """With split_keys: add O and sums of the upper half of the warps to those of the lower half.

        They pass through shared memory. All tiles have been read before, so the memory of Q, K and V is free.
        """
        c = self.config
        thread = warp % c.row_warps * 32 + lane
        all_threads = 32 * c.warps
        cute.arch.sync_warp()
        cute.arch.barrier(barrier_id=1, number_of_threads=all_threads)
        if warp >= c.row_warps:
            self.hand_over(softmax, acc_o, rows_base, output_base, thread)
        cute.arch.sync_warp()
        cute.arch.barrier(barrier_id=1, number_of_threads=all_threads)
        if warp < c.row_warps:
            self.take_over(softmax, acc_o, rows_base, output_base, thread)

    def hand_over(self, softmax, acc_o, rows_base, output_base, thread):
        threads = 32 * self.config.row_warps
        for r in range(self.policy.rows):
            at = rows_base + (r * threads + thread) * 8
            ptx.store_shared(at, 0, [softmax.row_max[r], softmax.row_sum[r]])
        for i, (a, b) in enumerate(self.policy.output_groups()):
            values = [acc_o[a, b, j] for j in range(4)]
            ptx.store_shared(output_base + thread * 16, i * threads * 16, values)

    def take_over(self, softmax, acc_o, rows_base, output_base, thread):
        threads = 32 * self.config.row_warps
        theirs = []
        for r in range(self.policy.rows):
            row_max, row_sum = ptx.load_shared(rows_base + (r * threads + thread) * 8, 0, 2)
            theirs.append(softmax.join_row(r, row_max, row_sum, acc_o))
        factors = self.policy.group_factors(theirs)
        for i, (a, b) in enumerate(self.policy.output_groups()):
            values = ptx.load_shared(output_base + thread * 16, i * threads * 16, 4)
            for j in range(4):
                acc_o[a, b, j] = ptx.fma(values[j], factors[i][j], acc_o[a, b, j])

    def q_box(self, rows, work, row, panel: int):
        if self.config.varlen:
            rows, row = rows[None, None, work.head], work.start_q + row
        else:
            rows = rows[None, None, work.head, work.batch]
        return cute.domain_offset((row, panel * self.config.panel_columns), rows)


# --- layouts ---


def plain_rows(tensor, config):
    """Return a view of [B, S, H, D] as (S, D, H, B), or of [total, H, D] as (total, D, H)."""
    order = (0, 2, 1) if config.varlen else (1, 3, 2, 0)
    shape = tuple(config.head_dim if i == len(order) - 1 else tensor.shape[i] for i in order)
    stride = tuple(1 if i == len(order) - 1 else tensor.stride[i] for i in order)
    return cute.make_tensor(tensor.iterator, cute.make_layout(shape, stride=stride))


def ragged_rows(tensor, config, box_rows: int):
    """Return a view of [total, H, D] as (box_rows, D, H, total + 1), so that a box can stop at the end of a sequence.

    Element (r, d, h, t) is row t + r - box_rows. If only `left` rows of a box belong to the sequence, the box starts at
    r = box_rows - left: its other rows are out of bounds, and TMA fills them with zeros.
    """
    row_stride, head_stride = tensor.stride[0], tensor.stride[1]
    shape = (box_rows, config.head_dim, tensor.shape[1], tensor.shape[0] + 1)
    layout = cute.make_layout(shape, stride=(row_stride, 1, head_stride, row_stride))
    return cute.make_tensor(tensor.iterator - row_stride * box_rows, layout)


def cached_rows(tensor, config):
    """Return a view of [pages, page_size, H, D] as (box_rows, D, H, page_size + 1, pages).

    Rows are as in ragged_rows: coordinate t selects the box whose last row is row t - 1 of its page.
    """
    page_stride, row_stride, head_stride = tensor.stride[0], tensor.stride[1], tensor.stride[2]
    shape = (config.cache_rows, config.head_dim, tensor.shape[2], tensor.shape[1] + 1, tensor.shape[0])
    layout = cute.make_layout(shape, stride=(row_stride, 1, head_stride, row_stride, page_stride))
    return cute.make_tensor(tensor.iterator - row_stride * config.cache_rows, layout)
