"""Attention forward with cp.async: every warp loads and computes. No TMA, no mbarrier, no setmaxnreg.

Shared memory holds one tile of K and one of V. The load of V starts when K of the same tile has landed; the load of the
next K starts when all warps have computed scores. So each load overlaps with a matrix product or a softmax, and
several small CTAs share an SM. `plan` never chooses this kernel; checks and benchmarks compare it with the tma kernel.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.memory import SmemAllocator

from ..config import PANEL_BYTES
from . import inline_ptx as ptx
from . import mask, scheduler
from .attention import Attention
from .given import Given, Scores

CHUNK_BYTES = 16  # bytes that one cp.async copies
CHUNKS = PANEL_BYTES // CHUNK_BYTES


@dataclass(frozen=True)
class Rows:
    """Rows of one head of one sequence in global memory: address of the first row, stride in bytes, number of rows."""

    address: Any
    stride: Any
    count: Any


@dataclass(frozen=True)
class Loader:
    """Copies tiles of K and V to shared memory, with all threads of the CTA."""

    config: Any
    keys: Rows
    values: Rows
    k_base: Any
    v_base: Any
    tiles: Any
    thread: Any

    def load(self, rows: Rows, base, tile):
        """Start the copy of one tile: threads / 8 rows at a time, one 16-byte chunk per thread."""
        c = self.config
        copy_rows(c, rows, tile * c.tile_n, base, c.tile_n, self.thread, c.threads)
        cute.arch.cp_async_commit_group()

    @cute.jit
    def load_k(self, tile):
        if tile >= self.tiles.first:
            self.load(self.keys, self.k_base, tile)

    def arrive(self):
        """Wait until all copies of this CTA are complete."""
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()


@dataclass(frozen=True)
class Keys:
    """The ring of K: one slot."""

    loader: Loader

    def slot(self, count):
        return 0

    def wait_full(self, count):
        loader = self.loader
        loader.arrive()
        loader.load(loader.values, loader.v_base, loader.tiles.last - 1 - count)

    def release(self, count, lane):
        self.loader.arrive()
        self.loader.load_k(self.loader.tiles.last - 2 - count)


@dataclass(frozen=True)
class Values:
    """The ring of V: one slot, without waits of its own.

    When all warps have released K, the copy of V is complete. When they wait for the next K, V can be overwritten.
    """

    def slot(self, count):
        return 0

    def wait_full(self, count):
        pass

    def release(self, count, lane):
        pass


def copy_rows(config, rows: Rows, first, base, tile_rows: int, thread, threads: int, panel_rows: int = 0):
    """Start cp.async of tile_rows rows from `first` on, swizzled. Rows past the sequence and padding become zero.

    panel_rows: rows of a panel in shared memory, if it has more than tile_rows; else 0.
    """
    panel_bytes = (panel_rows or tile_rows) * PANEL_BYTES
    step = threads // CHUNKS
    row, chunk = thread // CHUNKS, thread % CHUNKS
    for i in range(-(-tile_rows // step)):
        at = row + i * step
        within = at * PANEL_BYTES + ((chunk ^ (at & 7)) * CHUNK_BYTES)
        there = first + at < rows.count
        if tile_rows % step:
            # There are more threads than rows: the surplus threads copy the last row again, to the same addresses.
            at = cutlass.min(at, Int32(tile_rows - 1))
            within = at * PANEL_BYTES + ((chunk ^ (at & 7)) * CHUNK_BYTES)
            there = first + at < rows.count
        source = rows.address + Int64(ptx.select(there, first + at, Int32(0))) * rows.stride
        for panel in range(config.panels):
            column = panel * PANEL_BYTES + chunk * CHUNK_BYTES
            valid = there
            if config.head_dim * config.element_bytes < (panel + 1) * PANEL_BYTES:
                valid = there & (column < config.head_dim * config.element_bytes)
            size = ptx.select(valid, Int32(CHUNK_BYTES), Int32(0))
            shift = ptx.select(valid, column, Int32(0))
            ptx.cp_async_16(base + within, source + Int64(shift), panel * panel_bytes, size)


class AttentionCpAsync(Attention):
    """The kernel of one Config. See compile/build.py for the arguments of the call."""

    # --- launcher ---

    @cute.jit
    def __call__(
        self, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, cache_seqlens, block_table, sinks,
        q_descale, k_descale, v_descale,
        max_seqlen_q: Int32, scale_log2: Float32, softcap: Float32, window_left: Int32, window_right: Int32, stream,
    ):  # fmt: skip
        given = Given(q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, sinks=sinks)
        problem = self.problem(q, k, given, max_seqlen_q)
        scores = self.scores_of(scale_log2, softcap, window_left, window_right)
        self.name_kernel()
        self.kernel(given, problem, scores).launch(
            grid=(problem.total, 1, 1), block=(self.config.threads, 1, 1), stream=stream
        )

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
        q_smem = self.allocate_tiles(smem, c.q_bytes, self.dtype)
        k_smem = self.allocate_tiles(smem, c.kv_bytes, self.dtype)
        v_smem = self.allocate_tiles(smem, c.kv_bytes, self.dtype)
        work = scheduler.work_of(c, problem, given, index)
        band = mask.Band.of(c, work.seqlen_q, work.seqlen_k, scores.window_left, scores.window_right)
        tiles = mask.tiles_of(band, work.first_row, c.tile_m, c.tile_n)
        loader = Loader(
            c,
            rows_of(c, given.k, work.batch, work.head_kv, work.start_k, work.seqlen_k),
            rows_of(c, given.v, work.batch, work.head_kv, work.start_k, work.seqlen_k),
            k_smem.toint(), v_smem.toint(), tiles, thread,
        )  # fmt: skip
        # Q and the first K are in one group of copies: waiting for K also waits for Q.
        q_base = q_smem.toint() + warp * (c.rows_per_warp * c.row_bytes)
        q_rows = rows_of(c, given.q, work.batch, work.head, work.start_q, work.seqlen_q)
        copy_rows(c, q_rows, work.first_row + warp * c.rows_per_warp, q_base, c.rows_per_warp, lane, 32)
        loader.load_k(tiles.last - 1)
        if cutlass.const_expr(c.q_in_registers):
            loader.arrive()
        softmax, acc_o = self.walk(
            work, band, tiles, q_smem, k_smem, v_smem, Keys(loader), Values(), scores.scale, scores.tanh_scale, warp,
            lane,
        )  # fmt: skip
        self.store(work, softmax, acc_o, given, warp, lane)
        cute.arch.cp_async_wait_group(0)


def rows_of(config, tensor, batch, head, start, count) -> Rows:
    """Select the rows of one head of one sequence."""
    if config.varlen:
        at = Int64(start) * Int64(tensor.stride[0]) + Int64(head) * Int64(tensor.stride[1])
        stride = tensor.stride[0]
    else:
        at = Int64(batch) * Int64(tensor.stride[0]) + Int64(head) * Int64(tensor.stride[2])
        stride = tensor.stride[1]
    size = Int64(config.element_bytes)
    return Rows(tensor.iterator.toint() + at * size, Int64(stride) * size, count)
