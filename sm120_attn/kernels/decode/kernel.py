"""Decode: few queries over a KV cache, as fast as memory can be read.

A CTA has one tile of rows: queries of a sequence times the query heads of one key head. Its four warps have the same
rows and take different keys: each loops over its own tiles, loads them with cp.async into its own ring, and waits for
no other warp. At the end the warps join their results in shared memory. With config.split the keys of a sequence are
divided among several CTAs too; they write O and sums in float32 to scratch memory, and a second kernel combines them.
Sums have a fixed order everywhere, so the same inputs give the same bits.

The length of each sequence is read on the device, and the division of its tiles depends on this length alone.

For short sequences most of the time is the start of a CTA. So both kernels are launched while the previous kernel still
runs (programmatic dependent launch), and wait for it before they read memory. Q is loaded before K and V. Code that
runs once is a loop if possible, because fewer instructions must then be loaded from memory.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from cutlass.memory import SmemAllocator

from ...config import PANEL_BYTES
from .. import inline_ptx as ptx
from .. import mask, scheduler
from ..attention import Attention, Warp
from ..attention_cp_async import Rows, copy_rows
from ..epilogue import row_address
from ..given import Given, Scores
from ..softmax import OnlineSoftmax
from . import combine
from .config import CHUNK_BYTES, STATS_BYTES, WARPS, DecodeConfig


@dataclass(frozen=True)
class Source:
    """K or V of one head of one sequence in the cache, or their scales.

    address: byte address of the head's first row in page 0. The strides are in bytes. table: the block table; None for
    a contiguous cache, which has one page per sequence. scales: the Source of the scales; None without scales.
    """

    config: DecodeConfig
    address: Any
    page_stride: Any
    row_stride: Any
    table: Any
    batch: Any
    page_shift: Any
    seqlen: Any
    scales: Any = None

    @classmethod
    def of(cls, config, cache, scales, head_kv, table, batch, page_shift, seqlen) -> "Source":
        size = Int64(config.element_bytes)
        address = cache.iterator.toint() + Int64(head_kv) * Int64(cache.stride[2]) * size
        strides = Int64(cache.stride[0]) * size, Int64(cache.stride[1]) * size
        if scales is not None:
            scales = cls.of(config, scales, None, head_kv, table, batch, page_shift, seqlen)
        return cls(config, address, *strides, table, batch, page_shift, seqlen, scales)

    def starts(self, tile):
        """Yield for each group of a tile its first key, or 0 if that is past the end, and the keys left from it on."""
        for first in range(0, self.config.tile_n, self.config.group_keys):
            key = tile * self.config.tile_n + first
            left = self.seqlen - key
            yield ptx.select(left > 0, key, Int32(0)), left

    def fetch_pages(self, pages, tile):
        """Load the page numbers of a tile's groups into `pages`. Before the first tile: the page of key 0."""
        for group, (key, _) in enumerate(self.starts(tile)):
            pages[group] = self.table[self.batch, cutlass.max(key, Int32(0)) >> self.page_shift]

    def places(self, pages, tile):
        """Yield, for each group of a tile, the page and the row of its first key, and the number of keys left from
        there on."""
        for group, (key, left) in enumerate(self.starts(tile)):
            page, row = self.batch, key
            if self.config.paged:
                page = self.table[self.batch, key >> self.page_shift] if pages is None else pages[group]
                row = key & ((Int32(1) << self.page_shift) - 1)
            yield page, row, left

    def rows_of(self, page, row, left) -> Rows:
        if self.config.rows_per_warp == 8:  # unsigned (they are never negative), which saves a multiplication
            page, row = Uint32(page), Uint32(row)
        return Rows(self.address + Int64(page) * self.page_stride + Int64(row) * self.row_stride, self.row_stride, left)

    def copy(self, pages, tile, base, lane):
        """Start the copy of a tile to shared memory, by one warp. Rows past the sequence become zero."""
        c = self.config
        for group, place in enumerate(self.places(pages, tile)):
            first = group * c.group_keys
            if c.row_chunks * CHUNK_BYTES == PANEL_BYTES:
                at = base + first * PANEL_BYTES
                copy_rows(c, self.rows_of(*place), Int32(0), at, c.group_keys, lane, 32, c.tile_n)
            else:
                copy_narrow_rows(c, self.rows_of(*place), first, base, lane)
            if self.scales is not None:
                copy_scales(c, self.scales.rows_of(*place), base + c.data_bytes + first * c.scale_bytes, lane)


def copy_narrow_rows(config, rows: Rows, first: int, base, lane):
    """Copy group_keys rows to the tile, from its row `first` on, where several rows share a row of a panel.

    Otherwise this is like copy_rows. Copies of 0 bytes may have the address of a row past the sequence, or of padding.
    """
    chunks = config.row_chunks
    chunk, row = lane % chunks, lane // chunks
    offset = Int64(row) * rows.stride + Int64(chunk * CHUNK_BYTES)
    for start in range(0, config.group_keys, 32 // chunks):
        key = row + (first + start)
        number = (key >> 3) * chunks + chunk
        within = (number >> 3) * (8 * PANEL_BYTES) + (key & 7) * PANEL_BYTES + (((number ^ key) & 7) * CHUNK_BYTES)
        there = row + start < rows.count
        if chunks * CHUNK_BYTES > config.row_bytes:
            there = there & (chunk * CHUNK_BYTES < config.row_bytes)
        source = rows.address + offset + Int64(start) * rows.stride
        ptx.cp_async_16(base + within, source, 0, ptx.select(there, Int32(CHUNK_BYTES), Int32(0)), 256)


def copy_scales(config, rows: Rows, base, lane):
    """Start the copy of the scales of group_keys keys. Lanes past the last piece copy an earlier piece again."""
    size = math.gcd(config.scale_bytes, CHUNK_BYTES)
    pieces = config.scale_bytes // size
    for start in range(0, config.group_keys * pieces, 32):
        number = (start + lane) % (config.group_keys * pieces)
        at, piece = number // pieces, number % pieces
        source = rows.address + Int64(at) * rows.stride + Int64(piece * size)
        bytes_read = ptx.select(at < rows.count, Int32(size), Int32(0))
        ptx.cp_async_small(base + number * size, source, size, bytes_read, 128 if config.kv_dtype == "nvfp4" else 0)


@dataclass(frozen=True)
class WarpRing:
    """One warp's ring of tiles of K or V. The same warp fills the slots by cp.async.

    The warp starts copies in the order K, V, K, V, ... Each copy is a cp.async group, even if nothing is left to load.
    So 2 * stages - 1 groups are newer than the group for which wait_full waits.

    pages: with pages_ahead, the page numbers of the next tile to load, for both rings; else None. They are read when
    the copy of the previous tile of V has started, so no copy waits for the table.
    """

    source: Source
    pages: Any
    fetches: bool  # whether this ring also reads `pages`: true for V, which is loaded after K
    base: Any
    last: Any  # index of the tile after the warp's last tile; count 0 is the last tile, and the loop goes backwards
    end: Any  # number of the warp's tiles
    lane: Any

    @property
    def stages(self) -> int:
        return self.source.config.stages

    def slot(self, count):
        return 0 if self.stages == 1 else count % self.stages

    @cute.jit
    def load(self, count):
        """Start the copy of tile number `count`; past the last one, commit an empty group."""
        c = self.source.config
        if count < self.end:
            at = self.base + self.slot(count) * c.kv_bytes
            self.source.copy(self.pages, self.last - 1 - count, at, self.lane)
            if cutlass.const_expr(self.fetches and c.pages_ahead):
                self.source.fetch_pages(self.pages, self.last - 2 - count)
        cute.arch.cp_async_commit_group()

    def wait_full(self, count):
        cute.arch.cp_async_wait_group(2 * self.stages - 1)
        cute.arch.sync_warp()

    def release(self, count, lane):
        cute.arch.sync_warp()
        self.load(count + self.stages)


class Decode(Attention):
    """The kernels of one DecodeConfig. See compile/build.py for the arguments of the call."""

    # --- launcher ---

    @cute.jit
    def __call__(
        self, q, k, v, o, lse, cu_seqlens_q, cache_seqlens, block_table, sinks, k_descale, v_descale, k_scales,
        v_scales, partials, max_seqlen_q: Int32, num_splits: Int32, page_shift: Int32, scale_log2: Float32,
        softcap: Float32, window_left: Int32, window_right: Int32, stream,
    ):  # fmt: skip
        c = self.config
        num_heads, num_heads_kv, batch = q.shape[1 if c.varlen else 2], k.shape[2], cache_seqlens.shape[0]
        group = num_heads // num_heads_kv
        scores = self.scores_of(scale_log2, softcap, window_left, window_right)
        tiles_m = cute.ceil_div(max_seqlen_q * group, c.tile_m)
        given = Given(
            q, k, v, o, lse, cu_seqlens_q, None, cache_seqlens, block_table, None, sinks, None, k_descale, v_descale,
            k_scales, v_scales, partials,
        )  # fmt: skip
        sizes = combine.Sizes(batch, num_heads_kv, group, max_seqlen_q, num_splits)
        name = c.name
        type(self).kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
        type(self).combine.set_name_prefix(f"{name}_combine", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(given, sizes, tiles_m, page_shift, scores).launch(
            grid=(tiles_m * (num_heads_kv // c.heads_per_cta), num_splits, batch), block=(c.threads, 1, 1),
            stream=stream, use_pdl=True, min_blocks_per_mp=c.ctas_per_sm, preferred_smem_carveout=100,
        )  # fmt: skip
        if cutlass.const_expr(c.split):
            given = given._replace(
                q=None, k=None, v=None, cache_seqlens=None, block_table=None, k_descale=None, k_scales=None,
                v_scales=None,
            )  # fmt: skip
            self.combine(given, sizes).launch(
                grid=(group * max_seqlen_q, num_heads_kv, batch), block=(32 * combine.WARPS, 1, 1),
                stream=stream, use_pdl=True, min_blocks_per_mp=4, preferred_smem_carveout=100,
            )  # fmt: skip

    # --- kernels ---

    @cute.kernel
    def kernel(self, given: Given, sizes: combine.Sizes, tiles_m: Int32, page_shift: Int32, scores: Scores):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        index, split, batch = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        lane = thread % 32
        smem = SmemAllocator()
        tiles_base = smem.allocate(c.tiles_bytes, 1024).toint()
        q_base = smem.allocate(c.q_bytes, 16).toint() if c.q_bytes else tiles_base
        stats_base = smem.allocate(WARPS * c.tile_m * STATS_BYTES, 16).toint()
        # Order of the CTAs: first those with the same keys, then the next key head, whose rows are next in memory.
        first_row, head_kv, part = index % tiles_m * c.tile_m, index // tiles_m, warp
        if cutlass.const_expr(c.heads_per_cta > 1):
            head_kv = head_kv * c.heads_per_cta + warp // c.warps_per_head
            part = warp % c.warps_per_head
        cute.arch.griddepcontrol_wait()
        work = work_of(c, batch, head_kv, first_row, sizes.max_seqlen_q, given)
        band = mask.Band.of(c, work.seqlen_q, work.seqlen_k, scores.window_left, scores.window_right)
        first_query = first_row // sizes.group
        last_query = (first_row + c.tile_m - 1) // sizes.group
        tiles = mask.tiles_of(band, first_query, last_query - first_query + 1, c.tile_n)
        mine = part_of(tiles, split * c.warps_per_head + part, sizes.num_splits * c.warps_per_head)
        scale, tanh_scale = scores[:2]
        if cutlass.const_expr(c.kv_dtype):
            scale, tanh_scale = self.rescaled(scale, tanh_scale, given.k_descale[batch, head_kv] * c.k_factor)
        v_factor = given.v_descale[batch, head_kv] if c.kv_dtype != "" and not c.split else None
        softmax, acc_o = self.walk_over_cache(
            given, sizes.group, page_shift, work, band, mine, first_row, tiles_base, q_base, scale, tanh_scale, warp,
            lane,
        )  # fmt: skip
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        rows_left = sizes.group * work.seqlen_q - first_row
        self.hand_over(softmax, acc_o, tiles_base, stats_base, warp, lane, rows_left)
        cute.arch.sync_threads()
        combine.join_warps(c, given, sizes, work, split, first_row, v_factor, tiles_base, stats_base, thread)

    @cute.kernel
    def combine(self, given: Given, sizes: combine.Sizes):
        """Combine the results of all splits. Each CTA has one row."""
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        row, head_kv, batch = cute.arch.block_idx()
        smem = SmemAllocator()
        output_base = smem.allocate(combine.WARPS * 4 * c.head_dim, 16).toint()
        stats_base = smem.allocate(combine.WARPS * STATS_BYTES, 16).toint()
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        combine.join_splits(c, given, sizes, batch, head_kv, row, output_base, stats_base, thread // 32, thread % 32)

    # --- compute ---

    @cute.jit
    def walk_over_cache(
        self, given: cutlass.Constexpr, group, page_shift, work: cutlass.Constexpr, band: cutlass.Constexpr,
        mine: cutlass.Constexpr, first_row, tiles_base, q_base, scale, tanh_scale, warp, lane,
    ):  # fmt: skip
        """Loop over a warp's tiles of keys; return its softmax state and O."""
        c, policy = self.config, self.policy
        k_base = tiles_base + warp * (2 * c.stages * c.kv_bytes)
        v_base = k_base + c.stages * c.kv_bytes
        start = mine.last  # tile t has the number start - 1 - t
        pages = cute.make_rmem_tensor((c.tile_n // c.group_keys,), Int32) if c.pages_ahead else None
        k_ring, v_ring = (
            WarpRing(
                Source.of(c, cache, scales, work.head_kv, given.block_table, work.batch, page_shift, work.seqlen_k),
                pages, cache is given.v, base, start, start - mine.first, lane,
            )
            for cache, scales, base in ((given.k, given.k_scales, k_base), (given.v, given.v_scales, v_base))
        )  # fmt: skip
        if cutlass.const_expr(c.pages_ahead):
            k_ring.source.fetch_pages(pages, start - 1)
        words = self.load_q(work, given.q, policy.q_row_numbers(first_row, lane), group, warp, lane)
        # Without a barrier ptxas would move the loads of Q after the copies of K and V, and Q would arrive after them.
        cute.arch.sync_threads()
        for stage in cutlass.range(c.stages, unroll=1):
            k_ring.load(stage)
            v_ring.load(stage)
        q_of, factor = self.keep_q(words, q_base, warp, lane)
        if cutlass.const_expr(c.kv_dtype):
            scale, tanh_scale = self.rescaled(scale, tanh_scale, factor)
        acc_o = policy.new_output()
        softmax = OnlineSoftmax(policy, scale)
        _, k_offsets, v_offsets = policy.lane_offsets(lane)
        queries = [row // group for row in policy.row_numbers(first_row, lane)]
        w = Warp(
            c, policy, band, softmax, acc_o, q_of, k_base, v_base, k_offsets, v_offsets, k_ring,
            v_ring, tanh_scale, queries, policy.key_offsets(lane), lane, start - 1, Int32(0),
        )  # fmt: skip
        w.through(Int32(0), start - mine.first, start - mine.open_last, start - mine.open_first)
        return softmax, acc_o

    def load_q(self, work, q, rows, group, warp, lane):
        """Start to load the A operands of Q: [step][block] of four words. Rows past the sequence and padding are zero.

        If the operands go to shared memory, each warp loads only those that it writes there. With caches of 8 or 4 bits
        all warps load all operands, because each warp needs the largest value.
        """
        c, policy = self.config, self.policy
        places = [self.place_of(work, q, row, group, lane) for row in rows]
        made, n, blocks = [], len(places) // policy.blocks, range(policy.blocks)
        for step in range(0, c.k_steps, policy.q_steps):
            mine = True if c.q_in_registers or c.kv_dtype else warp == step % WARPS
            rows = [policy.q_pairs(self.q_words(at, there & mine, 16 * step)) for at, there in places]
            for words in zip(*rows, strict=True):
                made.append([[words[n * block + i % n][i // n] for i in range(2 * n)] for block in blocks])
        return made

    def q_words(self, at, there, column: int):
        """Load a lane's registers of a row of Q from `column` on: two for each of q_steps steps along head_dim."""
        first, second = (column + half for half in self.policy.q_halves)
        if self.policy.q_steps == 2:
            return ptx.load_if(at + Int64(2 * first), there, 4)
        if second == first + 2:
            return ptx.load_if(at + Int64(2 * first), there, 2)
        padding = second >= self.config.head_dim
        return (
            ptx.load_if(at + Int64(2 * first), there, 1),
            Int32(0) if padding else ptx.load_if(at + Int64(2 * second), there, 1),
        )

    @cute.jit
    def keep_q(self, words: cutlass.Constexpr, q_base, warp, lane):
        """Keep Q in registers or shared memory; return a function from a step along head_dim to its A operands.

        Also return the factor by which the scores of these operands must be multiplied: 1 if the cache has q's dtype.
        """
        c, policy = self.config, self.policy
        factor = Float32(1.0)
        if cutlass.const_expr(c.kv_dtype):
            factor, inverse = policy.q_factor([word for step in words for operand in step for word in operand])
            words = [[[policy.in_fp16(word, inverse) for word in operand] for operand in step] for step in words]
        if cutlass.const_expr(c.q_in_registers):
            q_of = words.__getitem__
        else:
            mine = q_base + lane * 16
            for step in cutlass.range_constexpr(c.k_steps):
                if warp == step % WARPS:
                    self.policy.store_operands(mine, step, words[step])
            cute.arch.sync_threads()
            q_of = lambda step: policy.load_operands(mine, step)  # noqa: E731
        return q_of, factor

    def place_of(self, work, q, row, group, lane):
        """Return the address of a lane's first columns in a row of Q, and whether the row is in the sequence."""
        query = row // group
        there = query < work.seqlen_q
        mine = replace(work, head=work.head_kv * group + row % group)
        at = row_address(self.config, q, mine, ptx.select(there, query, Int32(0)))
        return at + Int64(self.policy.q_lane_bytes * (lane & 3)), there

    @cute.jit
    def hand_over(self, softmax: cutlass.Constexpr, acc_o, output_base, stats_base, warp, lane, rows_left):
        """Write a warp's O and its rows' maxima and sums to shared memory. Only the first `rows_left` rows of O."""
        c, policy = self.config, self.policy
        for r, row in enumerate(policy.row_numbers(warp * c.tile_m, lane)):
            at = output_base + row * c.joined_row_bytes + policy.o_lane_bytes * policy.row_of_lane(lane)
            parts = policy.row_parts(acc_o, r)
            if row - warp * c.tile_m < rows_left:
                for offset, values in parts:
                    ptx.store_shared(at, offset, values)
            total = policy.row_sum(softmax.row_sum[r])
            if policy.row_of_lane(lane) == 0:
                ptx.store_shared(stats_base + row * STATS_BYTES, 0, [softmax.row_max[r], total])


def work_of(config, batch, head_kv, first_row, max_seqlen_q, given: Given) -> scheduler.Work:
    """Make the Work of a CTA. Its field `head` is 0 and not used, because each row has its own head."""
    start_q, seqlen_q = Int32(0), max_seqlen_q
    if config.varlen:
        start_q = given.cu_seqlens_q[batch]
        seqlen_q = given.cu_seqlens_q[batch + 1] - start_q
    seqlen_k = cutlass.max(given.cache_seqlens[batch], Int32(0))
    return scheduler.Work(first_row, Int32(0), head_kv, batch, start_q, Int32(0), seqlen_q, seqlen_k)


def part_of(tiles: mask.Tiles, part, parts) -> mask.Tiles:
    """Divide the tiles into `parts` ranges whose sizes differ by at most 1; return number `part`."""
    total = tiles.last - tiles.first
    each, more = total // parts, total % parts
    first = tiles.first + part * each + cutlass.min(part, more)
    last = first + each + ptx.select(part < more, Int32(1), Int32(0))
    return tiles.within(mask.Tiles(first, last, first, last))
