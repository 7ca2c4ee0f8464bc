"""Device code: bf16, fp16 or fp32 to FP8, with one scale for each head of each sequence.

    descale = amax / largest              x is about y * descale
    y       = fp8(x * (largest / amax))   both divisions and the product are rounded to nearest float32, then to FP8

amax is the largest absolute value of the head, in float32; largest is the largest finite FP8 value.

A head whose amax is below 2^-100 counts as zero and has descale 1. A NaN in a head makes its descale and all of its
values NaN. An infinity makes the descale infinite, becomes NaN, and makes all other values of the head 0.

If a CTA holds a whole head in registers (`whole`), there is one launch. Else there are two passes and two launches. The
first launch, the opening, makes the first pass over as many heads as a part of the L2 cache holds. The main launch does
the rest: the first pass over a later head at the same time as the second pass over an earlier head, whose input is
still in L2.

In the main launch the second pass over a head waits for the first pass over this head. Each CTA takes the next number
when it begins, and the number selects its work. A second pass waits only for first passes with lower numbers. Their
CTAs have begun and do not wait, so there is no deadlock, even if other programs use the GPU. The opening clears the
numbers and the counters. The main launch begins while the opening ends (programmatic dependent launch).
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.memory import SmemAllocator

from .. import inline_ptx as ptx
from .config import LARGEST, SMALLEST_AMAX, VECTOR_BYTES, QuantizeConfig

WARP = 32
ABSOLUTE = {"bf16": 0x7FFF7FFF, "fp16": 0x7FFF7FFF, "fp32": 0x7FFFFFFF}


@dataclass(frozen=True)
class Slab:
    """One head of one sequence: byte addresses of its first row in input and output, row strides in bytes, vectors."""

    source: Any
    source_stride: Any
    target: Any
    target_stride: Any
    vectors: Any
    descale: Any  # byte address


@dataclass(frozen=True)
class Scratch:
    """Memory between the passes: a partial maximum for each chunk of each head, then counters.

    Counter 0: how many CTAs have taken a number. Counter 1 + head: chunks of the head whose first pass is done.
    """

    address: Any
    heads: Any
    chunks: Any

    def partial(self, item):
        return self.address + Int64(4) * Int64(item)

    def counter(self, number):
        return self.address + Int64(4) * (Int64(self.heads * self.chunks) + Int64(number))


class Quantize:
    """The kernel of one QuantizeConfig. See compile/build.py for the arguments of the call."""

    def __init__(self, config: QuantizeConfig):
        self.config = config

    # --- launcher ---

    @cute.jit
    def __call__(
        self, x0, x1, x2, y0, y1, y2, descale0, descale1, descale2, starts0, starts1, partials,
        pieces: Int32, chunks: Int32, group: Int32, stream,
    ):  # fmt: skip
        c = self.config
        tensors = (x0, x1, x2, y0, y1, y2, descale0, descale1, descale2, starts0, starts1, partials)
        heads = descale0.shape[0] * descale0.shape[1]
        if cutlass.const_expr(c.tensors == 3):
            heads = heads + descale1.shape[0] * descale1.shape[1] + descale2.shape[0] * descale2.shape[1]
        type(self).kernel.set_name_prefix(c.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        type(self).opening.set_name_prefix(f"{c.name}_opening", remove_cutlass_symbol=True, keep_mangled_name=False)
        block = (c.threads, 1, 1)
        if cutlass.const_expr(c.whole):
            self.kernel(*tensors, pieces, chunks, Int32(0), heads).launch(
                grid=(heads, 1, 1), block=block, stream=stream
            )
        else:
            opened = cutlass.min(group, heads)
            self.opening(*tensors, pieces, chunks, opened, heads).launch(
                grid=(opened * chunks, 1, 1), block=block, stream=stream
            )
            self.kernel(*tensors, pieces, chunks, opened, heads).launch(
                grid=((2 * heads - opened) * chunks, 1, 1), block=block, stream=stream, use_pdl=True
            )

    # --- kernels ---

    @cute.kernel
    def opening(
        self, x0: cute.Tensor, x1, x2, y0: cute.Tensor, y1, y2, descale0: cute.Tensor, descale1, descale2,
        starts0, starts1, partials, pieces: Int32, chunks: Int32, opened: Int32, heads: Int32,
    ):  # fmt: skip
        """Make the first pass over the heads up to `opened`; clear the counters of the main launch."""
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        room = SmemAllocator().allocate(4 * WARP, 16).toint()
        tensors = (x0, x1, x2), (y0, y1, y2), (descale0, descale1, descale2), (starts0, starts1)
        cute.arch.griddepcontrol_launch_dependents()
        scratch = Scratch(partials.iterator.toint(), heads, chunks)
        step = opened * chunks * c.threads
        for i in cutlass.range(index * c.threads + thread, heads + 1, step, unroll=1):
            ptx.store_4(scratch.counter(i), Int32(0))
        self.first_pass(tensors, scratch, room, index, pieces, thread)

    @cute.kernel
    def kernel(
        self, x0: cute.Tensor, x1, x2, y0: cute.Tensor, y1, y2, descale0: cute.Tensor, descale1, descale2,
        starts0, starts1, partials, pieces: Int32, chunks: Int32, opened: Int32, heads: Int32,
    ):  # fmt: skip
        """Make the second pass over all heads, and the first pass over heads from `opened` on; if `whole`, both."""
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        room = SmemAllocator().allocate(4 * WARP, 16).toint()
        tensors = (x0, x1, x2), (y0, y1, y2), (descale0, descale1, descale2), (starts0, starts1)
        if cutlass.const_expr(c.whole):
            slab = slab_of(c, tensors, index)
            held = read(c, slab, Int32(0), thread)
            amax = block_max(c, room, largest(c, held), thread)
            scale = store_descale(c, slab, amax, thread == 0)
            write(c, slab, held, Int32(0), thread, scale)
        else:
            scratch = Scratch(partials.iterator.toint(), heads, chunks)
            firsts = (heads - opened) * chunks
            if firsts == 0:
                self.second_pass(tensors, scratch, room, index, opened, pieces, thread, opening_runs=True)
            else:
                cute.arch.griddepcontrol_wait()
                number = self.take_number(scratch, room, thread)
                # First and second passes alternate; after the last first pass, only second passes remain.
                both = number < 2 * firsts
                if both & ((number & 1) == 1):
                    item = opened * chunks + (number >> 1)
                    self.first_pass(tensors, scratch, room, item, pieces, thread)
                    if thread == 0:
                        ptx.count_up(scratch.counter(1 + item // chunks))
                else:
                    item = ptx.select(both, number >> 1, number - firsts)
                    self.second_pass(tensors, scratch, room, item, opened, pieces, thread, opening_runs=False)

    @cute.jit
    def take_number(self, scratch: cutlass.Constexpr, room, thread):
        if thread == 0:
            ptx.store_shared_4_if(room, thread == 0, ptx.take_one(scratch.counter(0)))
        cute.arch.sync_threads()
        number = ptx.load_shared_4_if(room, thread >= 0)
        cute.arch.sync_threads()  # `room` is used again
        return number

    @cute.jit
    def first_pass(self, tensors: cutlass.Constexpr, scratch: cutlass.Constexpr, room, item, pieces, thread):
        """Find the largest value of one chunk. item: number of the chunk among the chunks of all heads."""
        c = self.config
        slab = slab_of(c, tensors, item // scratch.chunks)
        chunk = item % scratch.chunks
        amax = Int32(0)
        for piece in cutlass.range(chunk * pieces, (chunk + 1) * pieces, unroll=1):
            if piece * c.piece < slab.vectors:
                amax = unsigned_max(amax, largest(c, read(c, slab, piece, thread)))
        amax = block_max(c, room, amax, thread)
        if thread == 0:
            ptx.store_4(scratch.partial(item), amax)

    @cute.jit
    def second_pass(
        self, tensors: cutlass.Constexpr, scratch: cutlass.Constexpr, room, item, opened, pieces, thread,
        opening_runs: cutlass.Constexpr,
    ):  # fmt: skip
        """Wait for the first pass over a head, then quantise a chunk of it. Its first piece is loaded before the wait.

        opening_runs: whether the opening may still run.
        """
        c = self.config
        head, chunk = item // scratch.chunks, item % scratch.chunks
        slab = slab_of(c, tensors, head)
        begin = chunk * pieces
        held = read(c, slab, begin, thread)
        if cutlass.const_expr(opening_runs):
            cute.arch.griddepcontrol_wait()
        elif head >= opened:
            if thread == 0:
                ptx.wait_for_count(scratch.counter(1 + head), scratch.chunks)
            cute.arch.sync_threads()
        # A head has at most as many partial maxima as the CTA has threads.
        found = ptx.load_4_if(scratch.partial(head * scratch.chunks + thread), thread < scratch.chunks)
        amax = block_max(c, room, found, thread)
        scale = store_descale(c, slab, amax, (thread == 0) & (chunk == 0))
        write(c, slab, held, begin, thread, scale)
        for piece in cutlass.range(begin + 1, begin + pieces, unroll=1):
            if piece * c.piece < slab.vectors:
                write(c, slab, read(c, slab, piece, thread), piece, thread, scale)


# --- a head ------------------------------------------------------------------------------------------------------


def slab_of(c, tensors, index) -> Slab:
    """Select the slab of head number `index` among the heads of all tensors."""
    xs, ys, descales, starts = tensors
    slabs, first = [], Int32(0)
    for i in range(c.tensors):
        heads, count = descales[i].shape[1], descales[i].shape[0] * descales[i].shape[1]
        # The index is in the range of one tensor. For the others compute head 0; their slab is not selected below.
        within = ptx.select((index >= first) & (index < first + count), index - first, Int32(0))
        start = starts[min(i, 1)] if c.varlen else None
        slabs.append((index >= first, slab_in(c, xs[i], ys[i], descales[i], start, within // heads, within % heads)))
        first = first + count
    slab = slabs[0][1]
    for here, other in slabs[1:]:
        fields = zip(slab.__dict__.values(), other.__dict__.values(), strict=True)
        slab = Slab(*(ptx.select(here, b, a) for a, b in fields))
    return slab


def slab_in(c, x, y, descale, starts, batch, head) -> Slab:
    element = Int64(VECTOR_BYTES // c.elements)
    if c.varlen:
        start = starts[batch]
        rows = starts[batch + 1] - start
        row_axis, head_axis = 0, 1
        first = [Int64(start) * Int64(t.stride[0]) + Int64(head) * Int64(t.stride[1]) for t in (x, y)]
    else:
        rows, row_axis, head_axis = x.shape[1], 1, 2
        first = [Int64(batch) * Int64(t.stride[0]) + Int64(head) * Int64(t.stride[head_axis]) for t in (x, y)]
    return Slab(
        x.iterator.toint() + first[0] * element, Int64(x.stride[row_axis]) * element,
        y.iterator.toint() + first[1], Int64(y.stride[row_axis]),
        rows * c.row_vectors,
        descale.iterator.toint() + (Int64(batch) * Int64(descale.shape[1]) + Int64(head)) * Int64(4),
    )  # fmt: skip


def places(c, slab, piece, thread):
    """Yield for each of a thread's vectors of a piece: whether it is in the slab, its input and output address."""
    if c.threads % c.row_vectors == 0:  # all vectors of a thread are in one column
        rows = c.threads // c.row_vectors
        at = piece * c.piece + thread
        row = piece * (c.vectors * rows) + thread // c.row_vectors
        source, target = addresses(c, slab, row, thread % c.row_vectors)
        for i in range(c.vectors):
            inside = at + i * c.threads < slab.vectors
            yield inside, source + i * (slab.source_stride * rows), target + i * (slab.target_stride * rows)
        return
    for i in range(c.vectors):
        at = piece * c.piece + i * c.threads + thread
        yield at < slab.vectors, *addresses(c, slab, at // c.row_vectors, at % c.row_vectors)


def addresses(c, slab, row, column):
    source = slab.source + Int64(row) * slab.source_stride + Int64(column * VECTOR_BYTES)
    return source, slab.target + Int64(row) * slab.target_stride + Int64(column * c.elements)


def read(c, slab, piece, thread):
    """Load a thread's vectors of a piece, four registers each; zeros past the slab."""
    return [ptx.load_if(source, inside, 4) for inside, source, _ in places(c, slab, piece, thread)]


def write(c, slab, vectors, piece, thread, scale):
    for words, (inside, _, target) in zip(vectors, places(c, slab, piece, thread), strict=True):
        ptx.store_if(target, inside, quantized(c, words, scale))


# --- numbers -----------------------------------------------------------------------------------------------------


def largest(c, vectors):
    """Compute the bits of the largest absolute value. Bits of positive floats sort like the floats; NaN is largest."""
    found: Any = None
    for words in vectors:
        for word in words:
            word = word & ABSOLUTE[c.dtype]
            found = word if found is None else ptx.max_bits(c.dtype, found, word)
    if c.dtype == "fp32":
        return found
    return unsigned_max(found & 0xFFFF, found >> 16)


def unsigned_max(a, b):
    """Compute the larger of two absolute values from their bits, which are positive as Int32."""
    return ptx.select(a > b, a, b)


def block_max(c, room, value, thread):
    """Compute the largest Int32 of all threads. No value may be negative."""
    value = ptx.warp_max(value)
    lane, warp = thread % WARP, thread // WARP
    ptx.store_shared_4_if(room + 4 * warp, lane == 0, value)
    cute.arch.sync_threads()
    return ptx.warp_max(ptx.load_shared_4_if(room + 4 * lane, lane < c.threads // WARP))


@cute.jit
def store_descale(c: cutlass.Constexpr, slab: cutlass.Constexpr, amax_bits, here):
    """Compute descale and scale; write the descale if `here`, and return the scale."""
    amax = ptx.widened(c.dtype, amax_bits)
    tiny = amax < SMALLEST_AMAX  # false for NaN
    descale = ptx.select(tiny, Float32(1.0), ptx.divide(amax, Float32(LARGEST[c.fp8])))
    if here:
        ptx.store_4(slab.descale, ptx.bits(descale))
    return ptx.select(tiny, Float32(1.0), ptx.divide(Float32(LARGEST[c.fp8]), amax))


def quantized(c, words, scale):
    """Convert one vector to FP8 values, in one or two registers."""
    if c.dtype == "fp32":
        values = [ptx.from_bits(word) for word in words]
    else:
        values = [ptx.widened(c.dtype, half) for word in words for half in (word & 0xFFFF, ptx.upper(word))]
    values = [value * scale for value in values]
    return [ptx.pack_bytes(c.fp8, values[i : i + 4]) for i in range(0, len(values), 4)]
