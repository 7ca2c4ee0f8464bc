"""Epilogue: from accumulators to O and LSE in global memory. Rows past the sequence are not written."""

import cutlass
import cutlass.cute as cute
from cutlass import Int64

from . import inline_ptx as ptx
from .softmax import finish


@cute.jit
def store(
    config: cutlass.Constexpr,
    policy: cutlass.Constexpr,
    softmax: cutlass.Constexpr,
    acc_o,
    given: cutlass.Constexpr,
    work: cutlass.Constexpr,
    rows: cutlass.Constexpr,
    lane,
    factor,
):
    """Write a warp's rows of O and LSE. rows: row numbers of this thread; factor: multiplies O, None means 1."""
    factors, lses = finish(softmax, given.sinks[work.head] if config.sinks else None)
    if cutlass.const_expr(factor is not None):
        factors = [f * factor for f in factors]
    for r in cutlass.range_constexpr(policy.rows):
        row = rows[r]
        words = policy.row_words(acc_o, r, factors[r])
        whole = 0 if config.output_bytes == 4 or policy.o_lane_words == 2 else config.head_dim // 32
        chunks = [transpose_quad(words[4 * i : 4 * i + 4], lane) for i in range(whole)]
        if row < work.seqlen_q:
            address = row_address(config, given.o, work, row)
            for i in cutlass.range_constexpr(len(chunks)):
                # Lane t of the quad has all 8 values of n8 column 4i + t.
                ptx.store_16(address + Int64((4 * i + (lane & 3)) * 16), chunks[i])
            if cutlass.const_expr(policy.o_lane_words == 2):
                for n in cutlass.range_constexpr(config.head_dim // 16):
                    ptx.store_8(address + Int64(32 * n + 8 * (lane & 3)), words[2 * n : 2 * n + 2])
            else:
                for n in cutlass.range_constexpr(4 * len(chunks), config.head_dim // 8):
                    store_column(config, address, n, lane, words[n])
            if cutlass.const_expr(config.lse):
                store_lse(config, given.lse, work, row, lane, lses[r])


@cute.jit
def store_lse(config: cutlass.Constexpr, mLSE, work: cutlass.Constexpr, row, lane, lse):
    if lane & 3 == 0:
        if cutlass.const_expr(config.varlen):
            mLSE[work.head, work.start_q + row] = lse
        else:
            mLSE[work.batch, work.head, row] = lse


def store_column(config, address, n: int, lane, word):
    """Write a thread's two values of one n8 column of O."""
    if config.output_bytes == 4:
        ptx.store_8(address + Int64(32 * n + 8 * (lane & 3)), word)
    else:
        ptx.store_4(address + Int64(16 * n + 4 * (lane & 3)), word)


def transpose_quad(words, lane):
    """Transpose 4x4 words across the four lanes of a quad: lane t gets word t of lanes 0 to 3."""
    for bit in (1, 2):
        upper = (lane & bit) != 0
        moved = list(words)
        for i in range(4):
            if i & bit:
                continue
            j = i | bit
            sent = ptx.select(upper, words[i], words[j])
            came = cute.arch.shuffle_sync_bfly(sent, offset=bit)
            moved[i] = ptx.select(upper, came, words[i])
            moved[j] = ptx.select(upper, words[j], came)
        words = moved
    return words


def row_address(config, mO, work, row):
    """Compute the byte address of a row of a tensor shaped like O, in 64 bits: B * S * H * D may be above 2^31."""
    element = Int64(config.output_bytes)
    if config.varlen:
        at = Int64(work.start_q + row) * Int64(mO.stride[0]) + Int64(work.head) * Int64(mO.stride[1])
    else:
        at = Int64(work.batch) * Int64(mO.stride[0]) + Int64(row) * Int64(mO.stride[1])
        at = at + Int64(work.head) * Int64(mO.stride[2])
    return mO.iterator.toint() + at * element
