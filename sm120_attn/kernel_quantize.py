"""bf16, fp16 or fp32 to FP8, with one scale for each head of each sequence.

    descale = amax / largest          what the FP8 values are to be multiplied with: amax over the head, in float32
    y       = fp8(x * (largest / amax))   both divisions and the product rounded to float32, to nearest; then to FP8

A head whose amax is below 2^-100 counts as zero: descale 1. NaN anywhere in a head makes its descale and all of its
values NaN; an infinity makes its descale infinite, itself NaN and all else 0.

Two passes, as launches that each do the first pass over one group of heads and the second over the group before: what
the second reads is then still in L2, and the partial maxima of a launch are what the next one needs. No atomics, no
memory to be cleared, no waiting between CTAs. A launch begins while the one before it ends (programmatic dependent
launch): its first pass needs nothing of that, and its second waits.

Or, where a CTA's registers hold the head (`whole`), one launch.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass.memory import SmemAllocator

from . import instructions as ptx
from .quantize_config import LARGEST, SMALLEST_AMAX, VECTOR_BYTES, QuantizeConfig

WARP = 32
ABSOLUTE = {"bf16": 0x7FFF7FFF, "fp16": 0x7FFF7FFF, "fp32": 0x7FFFFFFF}


@dataclass(frozen=True)
class Slab:
    """One head of one sequence. source, target: byte addresses of its first row; strides: bytes from row to row."""

    source: Any
    source_stride: Any
    target: Any
    target_stride: Any
    vectors: Any
    descale: Any  # address


class Quantize:
    """The kernel of one QuantizeConfig. `build` makes it; see there for the arguments of the call."""

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
        block = (c.threads, 1, 1)
        if cutlass.const_expr(c.whole):
            self.kernel(*tensors, pieces, chunks, Int32(0), heads, Int32(0)).launch(
                grid=(heads, 1, 1), block=block, stream=stream
            )
        else:
            first = cutlass.min(group, heads)
            self.kernel(*tensors, pieces, chunks, Int32(0), first, Int32(0)).launch(
                grid=(first * chunks, 1, 1), block=block, stream=stream
            )
            for done in cutlass.range(0, heads, group, unroll=1):
                # The second pass over heads from `done`, the first over those that follow.
                begin = cutlass.min(done + group, heads)
                end = cutlass.min(begin + group, heads)
                self.kernel(*tensors, pieces, chunks, begin, end, done).launch(
                    grid=((end - done) * chunks, 1, 1), block=block, stream=stream, use_pdl=True
                )

    # --- kernel ---

    @cute.kernel
    def kernel(
        self, x0: cute.Tensor, x1, x2, y0: cute.Tensor, y1, y2, descale0: cute.Tensor, descale1, descale2,
        starts0, starts1, partials, pieces: Int32, chunks: Int32, begin: Int32, end: Int32, done: Int32,
    ):  # fmt: skip
        """First pass over the heads begin to end, then second over the heads done to begin."""
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        index, _, _ = cute.arch.block_idx()
        room = SmemAllocator().allocate(4 * WARP, 16).toint()
        tensors = (x0, x1, x2), (y0, y1, y2), (descale0, descale1, descale2), (starts0, starts1)
        if cutlass.const_expr(c.whole):
            slab = slab_of(c, *tensors, index)
            held = read(c, slab, Int32(0), thread)
            amax = block_max(c, room, largest(c, held), thread)
            scale = store_descale(c, slab, amax, thread == 0)
            write(c, slab, held, Int32(0), thread, scale)
        else:
            cute.arch.griddepcontrol_launch_dependents()
            firsts = (end - begin) * chunks
            if index < firsts:
                self.first_pass(tensors, partials, room, begin, index, chunks, pieces, thread)
            else:
                cute.arch.griddepcontrol_wait()
                self.second_pass(tensors, partials, room, done, index - firsts, chunks, pieces, thread)

    @cute.jit
    def first_pass(
        self, tensors: cutlass.Constexpr, partials, room, begin, index, chunks, pieces, thread
    ):  # fmt: skip
        c = self.config
        slab = slab_of(c, *tensors, begin + index // chunks)
        chunk = index % chunks
        amax = Int32(0)
        for piece in cutlass.range(chunk * pieces, (chunk + 1) * pieces, unroll=1):
            if piece * c.piece < slab.vectors:
                amax = unsigned_max(amax, largest(c, read(c, slab, piece, thread)))
        amax = block_max(c, room, amax, thread)
        if thread == 0:
            ptx.store_4(partials.iterator.toint() + Int64(4) * Int64(begin * chunks + index), amax)

    @cute.jit
    def second_pass(
        self, tensors: cutlass.Constexpr, partials, room, done, index, chunks, pieces, thread
    ):  # fmt: skip
        c = self.config
        head, chunk = done + index // chunks, index % chunks
        slab = slab_of(c, *tensors, head)
        # A head's partial maxima, of which there are no more than threads.
        at = partials.iterator.toint() + Int64(4) * Int64(head * chunks + thread)
        amax = block_max(c, room, ptx.load_4_if(at, thread < chunks), thread)
        scale = store_descale(c, slab, amax, (thread == 0) & (chunk == 0))
        for piece in cutlass.range(chunk * pieces, (chunk + 1) * pieces, unroll=1):
            if piece * c.piece < slab.vectors:
                write(c, slab, read(c, slab, piece, thread), piece, thread, scale)


# --- a head ------------------------------------------------------------------------------------------------------


def slab_of(c, xs, ys, descales, starts, index) -> Slab:
    """The slab of head number `index`, of all tensors' together."""
    slabs, first = [], Int32(0)
    for i in range(c.tensors):
        heads, count = descales[i].shape[1], descales[i].shape[0] * descales[i].shape[1]
        # Of another tensor the number is out of range, and the slab of no use: of head 0.
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
    """(whether it is in the slab, address in the input, address in the output) of a thread's vectors of a piece."""
    if c.threads % c.row_vectors == 0:  # all of a thread's vectors are in one column
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
    """A thread's vectors of a piece, four registers each; zeros beyond the slab."""
    return [ptx.load_16_if(source, inside) for inside, source, _ in places(c, slab, piece, thread)]


def write(c, slab, vectors, piece, thread, scale):
    for words, (inside, _, target) in zip(vectors, places(c, slab, piece, thread), strict=True):
        ptx.store_if(target, inside, quantized(c, words, scale))


# --- numbers -----------------------------------------------------------------------------------------------------


def largest(c, vectors):
    """The bits of the largest absolute value: of positive numbers they are in the numbers' order, and NaN is above."""
    found = None
    for words in vectors:
        for word in words:
            word = word & ABSOLUTE[c.dtype]
            found = word if found is None else ptx.max_bits(c.dtype, found, word)
    if c.dtype == "fp32":
        return found
    return unsigned_max(found & 0xFFFF, found >> 16)


def unsigned_max(a, b):
    """Of bits of absolute values, which are positive as Int32."""
    return ptx.select(a > b, a, b)


def block_max(c, room, value, thread):
    """The largest of all threads' Int32, which are not negative."""
    value = ptx.warp_max(value)
    lane, warp = thread % WARP, thread // WARP
    ptx.store_shared_4_if(room + 4 * warp, lane == 0, value)
    cute.arch.sync_threads()
    return ptx.warp_max(ptx.load_shared_4_if(room + 4 * lane, lane < c.threads // WARP))


@cute.jit
def store_descale(c: cutlass.Constexpr, slab: cutlass.Constexpr, amax_bits, here):
    """Writes the descale if `here`; gives the scale."""
    amax = ptx.widened(c.dtype, amax_bits)
    tiny = amax < SMALLEST_AMAX  # not of a NaN
    descale = ptx.select(tiny, Float32(1.0), ptx.divide(amax, Float32(LARGEST[c.fp8])))
    if here:
        ptx.store_4(slab.descale, ptx.bits(descale))
    return ptx.select(tiny, Float32(1.0), ptx.divide(Float32(LARGEST[c.fp8]), amax))


def quantized(c, words, scale):
    """One vector's FP8 values, as one or two registers."""
    if c.dtype == "fp32":
        values = [ptx.from_bits(word) for word in words]
    else:
        values = [ptx.widened(c.dtype, half) for word in words for half in (word & 0xFFFF, ptx.upper(word))]
    values = [value * scale for value in values]
    return [ptx.pack_bytes(c.fp8, values[i : i + 4]) for i in range(0, len(values), 4)]
