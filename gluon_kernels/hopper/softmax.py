"""The softmax of the Hopper attention: mask, maxima, exponentials, sums, and the scaling of O.

A row uses the maximum of its first block as a guess for all blocks. Later blocks are not searched for a maximum unless
a sum of exponentials grows too large. Then the warp computes the softmax of that block again with the true maximum, and
scales O and the sums to it. The maximum of few keys is a bad guess, so a causal row that sees few keys of its first
block increases it.

Sums are kept per thread and added across the four lanes of a row at the end of the tile. With fp8 and head_dim below
256, the rounded probabilities of a block are added up in fp16, two per instruction, and the blocks in fp32.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..device.triton_compat import aggregate
from .barriers import flag_sums, get_flag
from .layouts import ROWS, beside, by_lane
from .operands import to_probs

# The maximum of fewer than FEW_KEYS keys is a bad guess, so it is increased: exponentials get 2^MARGIN_BITS smaller.
FEW_KEYS = gl.constexpr(32)
MARGIN_BITS = gl.constexpr(3)


@aggregate
class View:
    """Positions that decide which keys a consumer's rows see."""

    row: gl.tensor  # numbers of the rows
    open_blocks: gl.tensor  # number of leading key blocks that every row sees completely


@gluon.jit
def first_softmax(p, scores, view, block):
    """Compute the softmax of a tile's first block: (probs, row_max, row_sum).

    The maximum of few keys is increased by MARGIN_BITS: later keys are likely to have larger scores, and then a block
    must be computed twice.
    """
    scores = visible(p, scores, view, block)
    row_max = gl.max(scores, 1)
    if p.options.causal:
        seen = view.row + (p.causal_offset + 1 - block * p.options.block_n)
        row_max += gl.where(seen < FEW_KEYS, MARGIN_BITS / p.score_scale, 0.0)
    probs, row_sum = probs_of(p, scores, row_max)
    return probs, row_max, row_sum


@gluon.jit
def probs_of(p, scores, row_max):
    """Compute the rounded probabilities of a block, and [rows, 4], each lane's sums of its own probabilities."""
    exponentials = exp2_of(p, scores, row_max)
    probs = to_probs(p, exponentials)
    if p.options.half_sums:
        rounded = gl.convert_layout(probs, exponentials.type.layout, assert_trivial=True)
        return probs, gl.sum(half_sums(by_lane(rounded)).to(gl.float32), 3).reshape([ROWS, 4])
    else:
        return probs, lane_sums(exponentials)


@gluon.jit
def half_sums(x):
    """Add up axis 1 of [rows, columns, 4, 2] in fp16, neighbours of the last axis in one instruction."""
    if x.shape[1] == 1:
        return x
    else:
        even, odd = x.reshape([ROWS, x.shape[1] // 2, 2, 4, 2]).permute(0, 1, 3, 4, 2).split()
        return add_halves(half_sums(even), half_sums(odd))


@gluon.jit
def add_halves(a, b):
    return gl.inline_asm_elementwise(
        "add.rn.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=gl.float16, is_pure=True, pack=2
    )


@gluon.jit
def next_softmax(p, me: gl.constexpr, scores, acc_o, row_max, row_sum):
    """Compute the softmax of a later block; search for a new maximum only if the old one is too small.

    The old maximum is too small if a thread's sum of exponentials shows that one of them may be too large for its type.
    Returns acc_o, scaled to the new maxima, and probs, row_max and row_sum.
    """
    probs, added = probs_of(p, scores, row_max)
    new_sum = row_sum + added
    most = gl.where(row_max == -float("inf"), -1.0, p.options.most_lane_sum)
    flag_sums(me, added, beside(most, added))
    if get_flag(me) != 0:
        row_max, shrink = raise_max(p, row_max, gl.max(scores, 1))
        probs, added = probs_of(p, scores, row_max)
        new_sum = shrunk(row_sum, shrink) + added
        acc_o = scale_rows(acc_o, shrink)
    return acc_o, probs, row_max, new_sum


@gluon.jit
def raise_max(p, row_max, block_max):
    """Compute (row_max, shrink): the new maximum and the factor for O, 1 where the maximum stays."""
    new_max = gl.maximum(row_max, block_max)
    new_max = gl.where((new_max - row_max) * p.score_scale > 0, new_max, row_max)
    return new_max, gl.exp2((row_max - finite(new_max)) * p.score_scale)


@gluon.jit
def exp2_of(p, scores, row_max):
    """Compute each score's exponential, divided by the exponential of its row's maximum."""
    return gl.exp2(scores * p.score_scale - (finite(row_max) * p.score_scale)[:, None])


@gluon.jit
def finite(row_max):
    """Replace row_max by 0 for a row that has seen no key yet."""
    return gl.where(row_max == -float("inf"), 0.0, row_max)


@gluon.jit
def lane_sums(x):
    """Compute [rows, 4]: the sums of each lane's own columns. Moves no data between threads."""
    return gl.sum(gl.sum(by_lane(x), 3), 1)


@gluon.jit
def shrunk(row_sum, shrink):
    return row_sum * beside(shrink, row_sum)


@gluon.jit
def scale_rows(acc_o, factor):
    return acc_o * gl.convert_layout(factor, gl.SliceLayout(1, acc_o.type.layout))[:, None]


@gluon.jit
def visible(p, scores, view, block):
    """Replace the scores by -inf where a row does not see the key."""
    if block >= view.open_blocks:
        scores = mask(p, scores, view.row, block)
    return scores


@gluon.jit
def mask(p, scores, row, block):
    """Replace the scores by -inf where a row does not see the key.

    A column is 8 * group + 2 * lane + i. Group and i are constants for each register, so only the limit of a row takes
    registers, two per thread.
    """
    x = by_lane(scores)
    layout: gl.constexpr = x.type.layout
    group_layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    lane_layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout)))
    i_layout: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    group = gl.arange(0, p.options.block_n // 8, group_layout)[None, :][:, :, None][:, :, :, None]
    lane = gl.arange(0, 4, lane_layout)[None, :][:, None, :][:, :, :, None]
    i = gl.arange(0, 2, i_layout)[None, :][:, None, :][:, :, None, :]
    limit = p.seqlen_k - block * p.options.block_n - 2 * lane
    if p.options.causal:
        row_layout: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
        last = gl.convert_layout(row, row_layout, assert_trivial=True) + (
            p.causal_offset + 1 - block * p.options.block_n
        )
        limit = gl.minimum(limit, last[:, None][:, :, None][:, :, :, None] - 2 * lane)
    x = gl.where(8 * group + i < limit, x, -float("inf"))
    return gl.convert_layout(x.reshape(scores.shape), scores.type.layout, assert_trivial=True)


@gluon.jit
def whole_blocks(p, first_row):
    """Count the leading key blocks of a tile that need no mask for the rows from `first_row` on."""
    seen = p.seqlen_k
    if p.options.causal:
        seen = gl.minimum(seen, first_row + 1 + p.causal_offset)
    return seen // p.options.block_n  # 0 or less: all blocks need the mask
