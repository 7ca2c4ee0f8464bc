"""Combine: join O and sums of the same rows over different keys, of the warps of a CTA or of several CTAs.

Each part has, per row, O before the division by its sum, the maximum in bits and the sum. A part that saw no key has
sum 0, and its O is not read from scratch memory.

Scratch memory (float32): O, [batch, heads_kv, splits, rows, head_dim], then maximum and sum, [batch, heads_kv, splits,
rows, 2]; rows = max_seqlen_q * group.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..kernels import inline_ptx as ptx
from ..kernels import scheduler
from ..kernels.epilogue import row_address
from ..kernels.softmax import NOTHING_SEEN, finished
from .config import STATS_BYTES
from .config import WARPS as PARTS

WARPS = 4  # of a CTA that combines splits: one row each
COLUMNS = 4  # of a row, that a thread joins at a time


@dataclass(frozen=True)
class Shape:
    """Sizes of the problem, Int32. rows: of all sequences and heads together, as scratch memory has them."""

    batch: Any
    num_heads_kv: Any
    group: Any
    max_seqlen_q: Any
    num_splits: Any

    @property
    def numbers(self):
        return self.batch, self.num_heads_kv, self.group, self.max_seqlen_q, self.num_splits

    @property
    def rows(self):
        return self.batch * self.num_heads_kv * self.group * self.max_seqlen_q

    def part(self, batch, head_kv, split, row):
        """Number of a row of a split in scratch memory. 64 bits."""
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
    config: cutlass.Constexpr, shape: cutlass.Constexpr, work: cutlass.Constexpr, split, first_row,
    o, lse, sinks, v_descale, partials, output_base, stats_base, thread,
):  # fmt: skip
    """Join the results of a CTA's warps, which are in shared memory, and write them."""
    c = config
    columns = c.head_dim // COLUMNS
    for i in cutlass.range_constexpr(-(-c.tile_m * columns // c.threads)):
        item = thread + i * c.threads
        local, column = item // columns, item % columns * COLUMNS
        row = first_row + local
        query = row // shape.group
        if (local < c.tile_m) & (query < work.seqlen_q):
            stats = [
                ptx.load_shared(stats_base + (part * c.tile_m + local) * STATS_BYTES, 0, 2) for part in range(PARTS)
            ]
            largest, total, factors = joined(stats)
            at = output_base + local * c.joined_row_bytes + 4 * column
            values = [Float32(0.0)] * COLUMNS
            for part, factor in enumerate(factors):
                theirs = ptx.load_shared(at, part * c.tile_m * c.joined_row_bytes, COLUMNS)
                values = [ptx.fma(t, factor, v) for t, v in zip(theirs, values, strict=True)]
            if cutlass.const_expr(c.split):
                number = shape.part(work.batch, work.head_kv, split, row)
                ptx.store_16(
                    shape.o_address(c, partials, number) + Int64(4 * column), [ptx.bits(value) for value in values]
                )
                if column == 0:
                    ptx.store_8(shape.stats_address(c, partials, number), [ptx.bits(largest), ptx.bits(total)])
            else:
                finish_row(c, shape, work, query, row, column, o, lse, sinks, v_descale, values, largest, total)


@cute.jit
def join_splits(
    config: cutlass.Constexpr, shape: cutlass.Constexpr, number, o, lse, cu_seqlens_q, sinks, v_descale, partials, lane
):
    """Join the results of all splits for one row, with one warp. number: of the row, see Shape.rows."""
    c = config
    per_head = shape.group * shape.max_seqlen_q
    head, row = number // per_head, number % per_head
    batch, head_kv = head // shape.num_heads_kv, head % shape.num_heads_kv
    query = row // shape.group
    start_q, seqlen_q = Int32(0), shape.max_seqlen_q
    inside = number < shape.rows
    if cutlass.const_expr(c.varlen):
        sequence = ptx.select(inside, batch, Int32(0))
        start_q = cu_seqlens_q[sequence]
        seqlen_q = cu_seqlens_q[sequence + 1] - start_q
    work = scheduler.Work(row, Int32(0), head_kv, batch, start_q, Int32(0), seqlen_q, Int32(0))
    if inside & (query < seqlen_q):
        stats = shape.stats_address(c, partials, shape.part(batch, head_kv, Int32(0), row))
        parts_o = shape.o_address(c, partials, shape.part(batch, head_kv, Int32(0), row))
        largest = cute.make_rmem_tensor((1,), Float32)
        largest.fill(NOTHING_SEEN)
        for split in cutlass.range(lane, shape.num_splits, 32, unroll=1):
            (bits,) = load_words(stats + Int64(split) * Int64(per_head) * Int64(STATS_BYTES), 1)
            largest[0] = cute.arch.fmax(largest[0], bits)
        for offset in cutlass.range_constexpr(5):
            largest[0] = cute.arch.fmax(largest[0], cute.arch.shuffle_sync_bfly(largest[0], offset=1 << offset))
        for i in cutlass.range_constexpr(-(-c.head_dim // (32 * COLUMNS))):
            column = (lane + 32 * i) * COLUMNS
            there = column < c.head_dim
            made = cute.make_rmem_tensor((COLUMNS + 1,), Float32)  # O and the sum
            made.fill(0.0)
            for split in cutlass.range(shape.num_splits, unroll=4):
                at = Int64(split) * Int64(per_head)
                row_max, row_sum = load_words(stats + at * Int64(STATS_BYTES), 2)
                factor = ptx.exp2(row_max - largest[0])
                words = ptx.load_if(
                    parts_o + at * Int64(4 * c.head_dim) + Int64(ptx.select(there, 4 * column, Int32(0))),
                    there & (row_sum > 0.0), COLUMNS,
                )  # fmt: skip
                for j in cutlass.range_constexpr(COLUMNS):
                    made[j] = ptx.fma(ptx.from_bits(words[j]), factor, made[j])
                made[COLUMNS] = ptx.fma(row_sum, factor, made[COLUMNS])
            if there:
                values = [made[j] for j in range(COLUMNS)]
                finish_row(
                    c, shape, work, query, row, column, o, lse, sinks, v_descale, values, largest[0], made[COLUMNS]
                )


def load_words(address, count: int):
    """Load one or two Float32 of scratch memory."""
    words = ptx.load_if(address, Int32(0) == 0, count)
    return [ptx.from_bits(word) for word in ([words] if count == 1 else words)]


def joined(stats):
    """The maximum and the sum over all parts of a row, and the factor of each part's O. stats: (maximum, sum) pairs."""
    largest = functools.reduce(cute.arch.fmax, [row_max for row_max, _ in stats])
    factors = [ptx.exp2(row_max - largest) for row_max, _ in stats]
    total = Float32(0.0)
    for (_, row_sum), factor in zip(stats, factors, strict=True):
        total = ptx.fma(row_sum, factor, total)
    return largest, total, factors


@cute.jit
def finish_row(
    config: cutlass.Constexpr, shape: cutlass.Constexpr, work: cutlass.Constexpr, query, row, column,
    o, lse, sinks, v_descale, values: cutlass.Constexpr, row_max, row_sum,
):  # fmt: skip
    """Write four columns of a row of O, and with the first ones its LSE. Without a key: O = 0, LSE = -inf."""
    c = config
    head = work.head_kv * shape.group + row % shape.group
    at = replace(work, head=head)
    factor, found = finished(row_max, row_sum, sinks[head] if c.sinks else None)
    if cutlass.const_expr(c.kv_dtype):
        factor = factor * v_descale[work.batch, work.head_kv]
    words = [
        ptx.pack(c.dtype, values[0] * factor, values[1] * factor),
        ptx.pack(c.dtype, values[2] * factor, values[3] * factor),
    ]
    ptx.store_8(row_address(c, o, at, query) + Int64(column * c.output_bytes), words)
    if cutlass.const_expr(c.lse):
        store_lse(c, at, query, column, lse, found)


@cute.jit
def store_lse(config: cutlass.Constexpr, work: cutlass.Constexpr, query, column, lse, value):
    if column == 0:
        if cutlass.const_expr(config.varlen):
            lse[work.head, work.start_q + query] = value
        else:
            lse[work.batch, work.head, query] = value
