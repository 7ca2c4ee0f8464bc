"""Combine: join partial results of the same rows over different keys, from the warps of a CTA or from several CTAs.

A partial result has for each row the maximum (in bits, see softmax.py), the sum, and O before the division by the sum.
If a part saw no key, its sum is 0, and its O is not read from scratch memory.

Scratch memory (float32): O, [batch, heads_kv, splits, rows, head_dim], then maximum and sum, [batch, heads_kv, splits,
rows, 2]; rows = max_seqlen_q * group.
"""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from .. import inline_ptx as ptx
from .. import scheduler
from ..epilogue import row_address
from ..softmax import NOTHING_SEEN, finished
from .config import STATS_BYTES

WARPS = 4  # warps of a CTA that combines the splits of a row
COLUMNS = 4  # columns of a row that a thread joins at a time
IN_FLIGHT = 8  # splits that a warp loads before it waits for the first


class Sizes(NamedTuple):
    """Sizes of the problem, Int32. rows: number of rows of all sequences and heads in scratch memory."""

    batch: Any
    num_heads_kv: Any
    group: Any
    max_seqlen_q: Any
    num_splits: Any

    @property
    def rows(self):
        return self.batch * self.num_heads_kv * self.group * self.max_seqlen_q

    def part(self, batch, head_kv, split, row):
        """Compute the index of a row of a split in scratch memory, as an Int64."""
        return Int64((batch * self.num_heads_kv + head_kv) * self.num_splits + split) * Int64(
            self.group * self.max_seqlen_q
        ) + Int64(row)

    def o_address(self, config, partials, part):
        return partials.iterator.toint() + part * Int64(4 * config.head_dim)

    def stats_address(self, config, partials, part):
        all_parts = Int64(self.rows) * Int64(self.num_splits)
        return partials.iterator.toint() + all_parts * Int64(4 * config.head_dim) + part * Int64(STATS_BYTES)


@cute.jit
def join_warps(
    config: cutlass.Constexpr, given: cutlass.Constexpr, sizes: cutlass.Constexpr, work: cutlass.Constexpr, split,
    first_row, v_factor, output_base, stats_base, thread,
):  # fmt: skip
    """Read the results of a CTA's warps from shared memory, join them and write them to global memory.

    v_factor: multiplies O; None means 1. With several heads per CTA every thread works on all heads.
    """
    c = config
    columns = c.head_dim // COLUMNS
    rows = cutlass.min(sizes.group * work.seqlen_q - first_row, Int32(c.tile_m))
    first_head = work.head_kv - thread // (32 * c.warps_per_head)
    for item in cutlass.range(thread, c.heads_per_cta * rows * columns, c.threads, unroll=1):
        local, column = item // columns, item % columns * COLUMNS
        first = Int32(0)  # first of the rows in shared memory that this head's warps have written
        if cutlass.const_expr(c.heads_per_cta > 1):
            number, local = local // rows, local % rows
            first = number * (c.warps_per_head * c.tile_m)
            work = replace(work, head_kv=first_head + number)
            if cutlass.const_expr(v_factor is not None):
                v_factor = given.v_descale[work.batch, work.head_kv]
        row = first_row + local
        stats = [
            ptx.load_shared(stats_base + (first + part * c.tile_m + local) * STATS_BYTES, 0, 2)
            for part in range(c.warps_per_head)
        ]
        largest, total, factors = joined(stats)
        at = output_base + (first + local) * c.joined_row_bytes + 4 * column
        values = [Float32(0.0)] * COLUMNS
        for part, factor in enumerate(factors):
            theirs = ptx.load_shared(at, part * c.tile_m * c.joined_row_bytes, COLUMNS)
            values = [ptx.fma(t, factor, v) for t, v in zip(theirs, values, strict=True)]
        if cutlass.const_expr(c.split):
            number = sizes.part(work.batch, work.head_kv, split, row)
            ptx.store_16(
                sizes.o_address(c, given.partials, number) + Int64(4 * column), [ptx.bits(value) for value in values]
            )
            if column == 0:
                ptx.store_8(sizes.stats_address(c, given.partials, number), [ptx.bits(largest), ptx.bits(total)])
        else:
            query = row // sizes.group
            sink = given.sinks[work.head_kv * sizes.group + row % sizes.group] if c.sinks else None
            finish_row(c, given, sizes.group, work, query, row, column, sink, v_factor, values, largest, total)


@cute.jit
def join_splits(
    config: cutlass.Constexpr, given: cutlass.Constexpr, sizes: cutlass.Constexpr, batch, head_kv, row, output_base,
    stats_base, warp, lane,
):  # fmt: skip
    """Join the results of all splits for one row. All threads of a CTA call it.

    Warp w joins splits w, w + WARPS, ... Then the first warp joins the results of all warps in shared memory.
    """
    c = config
    query = row // sizes.group
    start_q, seqlen_q = Int32(0), sizes.max_seqlen_q
    if cutlass.const_expr(c.varlen):
        start_q = given.cu_seqlens_q[batch]
        seqlen_q = given.cu_seqlens_q[batch + 1] - start_q
    work = scheduler.Work(row, Int32(0), head_kv, batch, start_q, Int32(0), seqlen_q, Int32(0))
    # Loaded before the partial results, because at the end the kernel would wait for these loads.
    v_factor = given.v_descale[batch, head_kv] if c.kv_dtype != "" else None
    sink = given.sinks[head_kv * sizes.group + row % sizes.group] if c.sinks else None
    if query < seqlen_q:
        first = sizes.part(batch, head_kv, Int32(0), row)
        stats, parts_o = sizes.stats_address(c, given.partials, first), sizes.o_address(c, given.partials, first)
        largest = cute.make_rmem_tensor((1,), Float32)
        made = cute.make_rmem_tensor((COLUMNS + 1,), Float32)  # O and the sum
        pieces = -(-c.head_dim // (32 * COLUMNS))
        for i in cutlass.range_constexpr(pieces):
            column = (lane + 32 * i) * COLUMNS
            there = column < c.head_dim
            largest.fill(NOTHING_SEEN)
            made.fill(0.0)
            for split in cutlass.range(warp, sizes.num_splits, WARPS * IN_FLIGHT, unroll=1):
                parts = [split + WARPS * j for j in range(IN_FLIGHT)]
                add_parts(largest, made, [load_part(c, sizes, stats, parts_o, s, column, there) for s in parts])
            if there:
                at = output_base + 4 * column + warp * (4 * c.head_dim)
                ptx.store_shared(at, 0, [made[j] for j in range(COLUMNS)])
        if lane == 0:
            ptx.store_shared(stats_base + warp * STATS_BYTES, 0, [largest[0], made[COLUMNS]])
        cute.arch.sync_threads()
        for i in cutlass.range_constexpr(pieces):
            column = (lane + 32 * i) * COLUMNS
            if (warp == 0) & (column < c.head_dim):
                row_max, row_sum, factors = joined(
                    [ptx.load_shared(stats_base + part * STATS_BYTES, 0, 2) for part in range(WARPS)]
                )
                values = [Float32(0.0)] * COLUMNS
                for part, factor in enumerate(factors):
                    theirs = ptx.load_shared(output_base + 4 * column, part * 4 * c.head_dim, COLUMNS)
                    values = [ptx.fma(t, factor, v) for t, v in zip(theirs, values, strict=True)]
                finish_row(c, given, sizes.group, work, query, row, column, sink, v_factor, values, row_max, row_sum)


def load_part(config, sizes, stats, parts_o, split, column, there):
    """Load maximum and sum of a split, and four columns of its O. All are zero if the split does not exist."""
    inside = split < sizes.num_splits
    per_head = sizes.group * sizes.max_seqlen_q
    at = Int64(ptx.select(inside, split, Int32(0))) * Int64(per_head)
    row_max, row_sum = (ptx.from_bits(w) for w in ptx.load_if(stats + at * Int64(STATS_BYTES), inside, 2))
    shift = Int64(ptx.select(there, 4 * column, Int32(0)))
    words = ptx.load_if(parts_o + at * Int64(4 * config.head_dim) + shift, inside & there, COLUMNS)
    return row_max, row_sum, words


def add_parts(largest, made, parts):
    """Add parts of a row to `made` (O and the sum) and update the maximum `largest`. parts: see load_part."""
    seen = [row_sum > 0.0 for _, row_sum, _ in parts]
    maxima = [ptx.select(s, row_max, Float32(NOTHING_SEEN)) for s, (row_max, _, _) in zip(seen, parts, strict=True)]
    larger = functools.reduce(cute.arch.fmax, maxima, largest[0])
    before = ptx.exp2(largest[0] - larger)
    for j in range(COLUMNS + 1):
        made[j] = made[j] * before
    largest[0] = larger
    for one, row_max, (_, row_sum, words) in zip(seen, maxima, parts, strict=True):
        factor = ptx.exp2(row_max - larger)
        for j in range(COLUMNS):
            made[j] = ptx.fma(ptx.from_bits(ptx.select(one, words[j], Int32(0))), factor, made[j])
        made[COLUMNS] = ptx.fma(row_sum, factor, made[COLUMNS])


def joined(stats):
    """Return a row's maximum and sum over its parts, and a factor for O of each part. stats: (maximum, sum) pairs."""
    largest = functools.reduce(cute.arch.fmax, [row_max for row_max, _ in stats])
    factors = [ptx.exp2(row_max - largest) for row_max, _ in stats]
    total = Float32(0.0)
    for (_, row_sum), factor in zip(stats, factors, strict=True):
        total = ptx.fma(row_sum, factor, total)
    return largest, total, factors


@cute.jit
def finish_row(
    config: cutlass.Constexpr, given: cutlass.Constexpr, group, work: cutlass.Constexpr, query, row, column, sink,
    v_factor, values: cutlass.Constexpr, row_max, row_sum,
):  # fmt: skip
    """Write four columns of a row of O, and with column 0 its LSE. If the row saw no key: O = 0, LSE = -inf."""
    c = config
    head = work.head_kv * group + row % group
    at = replace(work, head=head)
    factor, found = finished(row_max, row_sum, sink)
    if cutlass.const_expr(c.kv_dtype):
        factor = factor * v_factor * c.v_factor
    words = [
        ptx.pack(c.dtype, values[0] * factor, values[1] * factor),
        ptx.pack(c.dtype, values[2] * factor, values[3] * factor),
    ]
    ptx.store_8(row_address(c, given.o, at, query) + Int64(column * c.output_bytes), words)
    if cutlass.const_expr(c.lse):
        store_lse(c, at, query, column, given.lse, found)


@cute.jit
def store_lse(config: cutlass.Constexpr, work: cutlass.Constexpr, query, column, lse, value):
    if column == 0:
        if cutlass.const_expr(config.varlen):
            lse[work.head, work.start_q + query] = value
        else:
            lse[work.batch, work.head, query] = value
