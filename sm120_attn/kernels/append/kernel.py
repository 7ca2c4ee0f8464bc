"""Append: write new keys and values after those of a cache; apply rotary embedding to new keys and queries.

Each thread copies a chunk of 8 columns. All chunks of a CTA belong to one token. A token has `lines`: the rows of its
key heads, then of its value heads, then, with rotary embedding, of its query heads. Loads and stores are predicated,
without branches. The last CTAs write the new lengths, one sequence per thread.

A row is not written if it lies after the end of the cache, or if its page number is invalid.
"""

import functools
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from .. import inline_ptx as ptx
from ..epilogue import row_address
from .config import CHUNK, THREADS, AppendConfig

LARGEST = {"mxfp8": 448.0, "nvfp4": 6.0}  # format -> its largest value, before the scale is applied
FINITE, INFINITY, ONE, MANTISSA = 0x7FFFFFFF, 0x7F800000, 0x3F800000, 0x7FFFFF  # bit patterns and masks of float32


class NewRows(NamedTuple):
    """The tensors of a call, as in compile/build.py; None if absent."""

    q: Any
    k_new: Any
    v_new: Any
    k: Any
    v: Any
    q_out: Any
    cache_seqlens: Any
    new_seqlens: Any
    block_table: Any
    cu_seqlens_q: Any
    rotary_cos: Any
    rotary_sin: Any
    k_descale: Any
    v_descale: Any
    k_scales: Any
    v_scales: Any
    k_mean: Any


@dataclass(frozen=True)
class Token:
    """One token of one sequence. length: keys of the sequence before the call. number: index of the token in the call.

    is_new: whether the sequence has a new key with this number. is_query: whether it has a query with this number.
    """

    batch: Any
    start_q: Any
    number: Any
    length: Any
    is_new: Any
    is_query: Any


@dataclass(frozen=True)
class ChunkPlace:
    """Position of a thread's chunk in its token. head: key, value or query head. column: the chunk's first column."""

    head: Any
    column: Any
    is_key: Any
    is_value: Any
    is_query: Any


class Append:
    """The kernel of one AppendConfig. See compile/build.py for the arguments of the call."""

    def __init__(self, config: AppendConfig):
        self.config = config

    # --- launcher ---

    @cute.jit
    def __call__(
        self, q, k_new, v_new, k, v, q_out, cache_seqlens, new_seqlens, block_table, cu_seqlens_q,
        rotary_cos, rotary_sin, k_descale, v_descale, k_scales, v_scales, k_mean,
        tokens: Int32, seqlen_q: Int32, seqlen_new: Int32, q_step: Int32, page_shift: Int32, stream,
    ):  # fmt: skip
        c = self.config
        lines = 2 * k_new.shape[1 if c.varlen else 2]
        if cutlass.const_expr(c.rotary):
            lines = lines + q.shape[1 if c.varlen else 2]
        parts = cute.ceil_div(lines * c.chunks, THREADS)
        batch = cache_seqlens.shape[0]
        type(self).kernel.set_name_prefix(c.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        given = NewRows(
            q, k_new, v_new, k, v, q_out, cache_seqlens, new_seqlens, block_table, cu_seqlens_q, rotary_cos,
            rotary_sin, k_descale, v_descale, k_scales, v_scales, k_mean,
        )  # fmt: skip
        self.kernel(given, tokens, lines, parts, seqlen_q, seqlen_new, q_step, page_shift).launch(
            grid=(tokens * parts + cute.ceil_div(batch, THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream,
            use_pdl=True,
        )  # fmt: skip

    # --- kernel ---

    @cute.kernel
    def kernel(
        self, given: NewRows, tokens: Int32, lines: Int32, parts: Int32, seqlen_q: Int32, seqlen_new: Int32,
        q_step: Int32, page_shift: Int32,
    ):  # fmt: skip
        c = self.config
        # Let the decode kernel start now. It waits for the end of this kernel before it reads the cache.
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        thread, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        batches = given.cache_seqlens.shape[0]
        capacity = given.k.shape[1]
        if cutlass.const_expr(c.paged):
            capacity = given.block_table.shape[1] << page_shift
        if index < tokens * parts:
            token = self.token_of(given, index // parts, batches, seqlen_q, seqlen_new)
            place = place_of(c, index % parts * THREADS + thread, lines, given.k_new.shape[1 if c.varlen else 2])
            chunk = self.chunk_of(given, token, place, q_step)
            self.write(given, token, place, chunk, capacity, page_shift)
        else:
            batch = (index - tokens * parts) * THREADS + thread
            if batch < batches:
                count = seqlen_new
                if cutlass.const_expr(c.varlen):
                    count = given.cu_seqlens_q[batch + 1] - given.cu_seqlens_q[batch]
                given.new_seqlens[batch] = cutlass.min(
                    cutlass.max(given.cache_seqlens[batch], Int32(0)) + count, capacity
                )

    def token_of(self, given, row, batches, seqlen_q, seqlen_new):
        """Find token number `row` of the call. Without varlen each sequence has max(seqlen_q, seqlen_new) tokens."""
        if self.config.varlen:
            batch = sequence_of(row, batches, given.cu_seqlens_q)
            start = given.cu_seqlens_q[batch]
            number, there = row - start, row < given.cu_seqlens_q[batch + 1]
            is_new, is_query = there, there
        else:
            most = cutlass.max(seqlen_q, seqlen_new)
            batch, number, start = row // most, row % most, Int32(0)
            is_new, is_query = number < seqlen_new, number < seqlen_q
        return Token(batch, start, number, cutlass.max(given.cache_seqlens[batch], Int32(0)), is_new, is_query)

    def chunk_of(self, given, token, place, q_step):
        """Load the thread's chunk and apply rotary embedding. Return it as four registers, and in float32."""
        c = self.config
        there = (place.is_key | place.is_value) & token.is_new
        values, keys = (new_row(c, new, token, place.head) for new in (given.v_new, given.k_new))
        source = ptx.select(place.is_value, values, keys)
        if c.rotary:
            source = ptx.select(place.is_query, new_row(c, given.q, token, place.head), source)
            there = there | (place.is_query & token.is_query)
        words = ptx.load_if(source + Int64(c.output_bytes * place.column), there, 4)
        values = floats(c.dtype, words)
        if not c.rotary:
            return words, values
        step = ptx.select(place.is_query, q_step, Int32(1))
        position = token.length + token.number * step
        turns = there & (place.is_key | place.is_query) & (place.column < 2 * given.rotary_cos.shape[1])
        turned = self.turned(source, values, place.column, position, turns, given.rotary_cos, given.rotary_sin)
        values = [ptx.select(turns, new, old) for new, old in zip(turned, values, strict=True)]
        made = [ptx.pack(c.dtype, values[i], values[i + 1]) for i in range(0, CHUNK, 2)]
        # Values that are not rotated keep their bits, even NaNs.
        return [ptx.select(turns, new, old) for new, old in zip(made, words, strict=True)], values

    def turned(self, source, values, column, position, turns, rotary_cos, rotary_sin):
        """Rotate the values of a chunk by the angles of a position. Positions past the table use its last row."""
        c = self.config
        row = cutlass.min(position, rotary_cos.shape[0] - 1)
        half = rotary_cos.shape[1]
        if c.rotary == "interleaved":
            cos, sin = (self.angles(table, row, column >> 1, CHUNK // 2, turns) for table in (rotary_cos, rotary_sin))
            made = []
            for i in range(CHUNK // 2):
                a, b = values[2 * i], values[2 * i + 1]
                made += [ptx.fma(a, cos[i], -(b * sin[i])), ptx.fma(a, sin[i], b * cos[i])]
            return made
        first = column < half
        other = ptx.select(first, column + half, column - half)
        cos, sin = (
            self.angles(table, row, ptx.select(first, column, column - half), CHUNK, turns)
            for table in (rotary_cos, rotary_sin)
        )
        partners = floats(c.dtype, ptx.load_if(source + Int64(c.output_bytes * other), turns, 4))
        sign = ptx.select(first, Float32(-1.0), Float32(1.0))
        return [
            ptx.fma(x, cos[i], partner * (sin[i] * sign))
            for i, (x, partner) in enumerate(zip(values, partners, strict=True))
        ]

    def angles(self, table, row, column, count: int, turns):
        """Load consecutive cosines or sines of a row of a table, in float32."""
        c = self.config
        kind, size = (c.table_dtype, 4) if c.table_dtype else (c.dtype, c.output_bytes)
        at = table.iterator.toint() + (Int64(row) * Int64(table.stride[0]) + Int64(column)) * Int64(size)
        each = min(4, count * size // 4)
        words = [w for i in range(0, count * size // 4, each) for w in ptx.load_if(at + Int64(4 * i), turns, each)]
        return floats(kind, words)

    def write(self, given, token, place, chunk, capacity, page_shift):
        """Write the chunk to the cache, or to the rotated copy of Q."""
        c = self.config
        words, values = chunk
        if c.rotary:
            at = new_row(c, given.q_out, token, place.head) + Int64(c.output_bytes * place.column)
            ptx.store_if(at, place.is_query & token.is_query, words)
        position = token.length + token.number
        fits = (place.is_key | place.is_value) & token.is_new & (position < capacity)
        position = ptx.select(fits, position, Int32(0))
        page, row = token.batch, position
        if c.paged:
            page, row = (
                given.block_table[token.batch, position >> page_shift],
                position & ((Int32(1) << page_shift) - 1),
            )
            fits = fits & (page >= 0) & (page < given.k.shape[0])
        in_v, in_k = (cache_row(c, cache, page, row, place.head) for cache in (given.v, given.k))
        at = ptx.select(place.is_value, in_v, in_k) + Int64(c.cache_bytes * place.column // c.packed)
        if c.kv_dtype:
            head = ptx.select(fits, place.head, Int32(0))
            descale = ptx.select(place.is_value, given.v_descale[token.batch, head], given.k_descale[token.batch, head])
            scale = ptx.divide(Float32(1.0), descale)
        if c.smooth:
            values = self.smoothed(values, given.k_mean, token, place, place.is_key & fits)
        if c.block_chunks:
            byte, words = quantised(c, values, descale, scale)
            in_v, in_k = (cache_row(c, scales, page, row, place.head) for scales in (given.v_scales, given.k_scales))
            block = place.column // (CHUNK * c.block_chunks)
            first = fits & (place.column % (CHUNK * c.block_chunks) == 0)
            ptx.store_byte_if(ptx.select(place.is_value, in_v, in_k) + Int64(block), first, byte)
        elif c.kv_dtype:
            words = [ptx.pack_bytes(c.kv_dtype, [x * scale for x in values[i : i + 4]]) for i in (0, 4)]
        ptx.store_if(at, fits, words)

    def smoothed(self, values, k_mean, token, place, there):
        """Subtract the head's mean from a chunk of keys; return other chunks unchanged."""
        batch, head = (ptx.select(there, number, Int32(0)) for number in (token.batch, place.head))
        at = Int64(batch) * Int64(k_mean.stride[0]) + Int64(head) * Int64(k_mean.stride[1]) + Int64(place.column)
        address = k_mean.iterator.toint() + at * Int64(4)
        mean = [word for half in range(2) for word in ptx.load_if(address + Int64(16 * half), there, 4)]
        return [x - ptx.from_bits(word) for x, word in zip(values, mean, strict=True)]


def quantised(config, values, descale, inverse):
    """Quantise a thread's chunk; return the scale of its block as a byte, and the registers of quantised values.

    inverse: 1 / descale. Neighbouring threads have the chunks of a block. If a value is not finite, the scale of its
    block is NaN. verify/block_scaled.py describes the formats.
    """
    largest = functools.reduce(functools.partial(ptx.max_bits, "fp32"), [ptx.bits(x) & FINITE for x in values])
    for offset in range(config.block_chunks.bit_length() - 1):
        other = cute.arch.shuffle_sync_bfly(largest, offset=1 << offset)
        largest = ptx.max_bits("fp32", largest, other)
    scaled = ptx.from_bits(largest) * inverse
    finite = (ptx.bits(scaled) & FINITE) < INFINITY
    if config.kv_dtype == "mxfp8":
        bits = ptx.bits(ptx.divide(scaled, Float32(LARGEST["mxfp8"])))
        byte = cutlass.min((bits + MANTISSA) >> 23, Int32(254))
        factor = ptx.from_bits((254 - byte) << 23) * inverse
        words = [ptx.pack_bytes("e4m3", [x * factor for x in values[i : i + 4]]) for i in (0, 4)]
        nan = 0xFF
    else:
        ratio = ptx.divide(scaled, Float32(LARGEST["nvfp4"]))
        byte = ptx.pack_bytes("e4m3", [ratio] + [Float32(0.0)] * 3)
        factor = ptx.divide(Float32(1.0), ptx.widened("fp16", ptx.widen_e4m3(byte)[0]) * descale)
        factor = ptx.select((ptx.bits(factor) & FINITE) < INFINITY, factor, Float32(0.0))
        words = [functools.reduce(operator.or_, [in_e2m1(x * factor) << (4 * i) for i, x in enumerate(values)])]
        nan = 0x7F
    return ptx.select(finite, byte, Int32(nan)), [ptx.select(finite, word, Int32(0)) for word in words]


def in_e2m1(x):
    """Round x to the nearest e2m1 value, at most 6; ties go to the even value. Needs no cvt instruction."""
    sign = ptx.unsigned_shift(ptx.bits(x), 28) & 8
    size = cute.arch.fmin(ptx.from_bits(ptx.bits(x) & FINITE), Float32(LARGEST["nvfp4"]))
    small = ptx.bits(size + 2.0**22) & 7  # in steps of 0.5, because the sum is rounded to them
    bits = ptx.bits(size)
    large = ((bits + 0x1FFFFF + ((bits >> 22) & 1)) >> 22) - 252  # the exponent and one bit of the mantissa, rounded
    return ptx.select(bits < ONE, small, large) | sign


@cute.jit
def sequence_of(row, batches, cu_seqlens_q):
    """Find the last sequence that begins at this row or before it."""
    low, high = Int32(0), batches
    while high - low > 1:
        middle = (low + high) >> 1
        before = cu_seqlens_q[middle] <= row
        low = ptx.select(before, middle, low)
        high = ptx.select(before, high, middle)
    return low


def place_of(config, item, lines, num_heads_kv) -> ChunkPlace:
    """Find where a chunk is in its token. item: the chunk's number. Past the last chunk, is_key etc. are false."""
    line = item // config.chunks
    is_value = (line >= num_heads_kv) & (line < 2 * num_heads_kv)
    is_query = (line >= 2 * num_heads_kv) & (line < lines)
    before = ptx.select(is_query, 2 * num_heads_kv, ptx.select(is_value, num_heads_kv, Int32(0)))
    return ChunkPlace(line - before, item % config.chunks * CHUNK, line < num_heads_kv, is_value, is_query)


def new_row(config, tensor, token, head):
    """Compute the byte address of a token's row in one head of `tensor`: q, q_out, k_new or v_new."""
    return row_address(config, tensor, _At(token.batch, token.start_q, head), token.number)


@dataclass(frozen=True)
class _At:
    """The fields of scheduler.Work that row_address reads."""

    batch: Any
    start_q: Any
    head: Any


def cache_row(config, cache, page, row, head):
    """Compute the byte address of a row of a page, in one head of the cache."""
    at = Int64(page) * Int64(cache.stride[0]) + Int64(row) * Int64(cache.stride[1])
    return cache.iterator.toint() + (at + Int64(head) * Int64(cache.stride[2])) * Int64(config.cache_bytes)


def floats(dtype: str, words):
    """Convert registers, which hold one or two values each, to float32."""
    if dtype == "fp32":
        return [ptx.from_bits(word) for word in words]
    return [ptx.widened(dtype, half) for word in words for half in (word & 0xFFFF, ptx.upper(word))]
