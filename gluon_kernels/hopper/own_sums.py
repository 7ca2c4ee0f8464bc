"""Scores of queries with their own keys, from several sums that are added in fp32.

The tensor cores add up fp8 products with about 13 bits, which is too few for many products of one sign, as a query that
equals its own key has. Own keys are in a tile's first block. When its scores are made no registers hold O or
probabilities yet, so those of own keys are computed once more, in parts.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from .layouts import ROWS, mma_layout


@gluon.jit
def with_own_sums(p, me: gl.constexpr, scores, slot):
    """Return the scores of a tile's first block; with own_sums, sum those of the rows' own keys again."""
    if p.options.own_sums > 1:
        own = warpgroup_mma_wait(0, deps=(own_scores_mma(p, me, slot, 0),))
        for part in gl.static_range(1, p.options.own_sums):
            own, more = warpgroup_mma_wait(0, deps=(own, own_scores_mma(p, me, slot, part)))
            own += more
        scores = with_half(scores, me, own)
        if p.options.keep_q:
            p.q.mark_empty(me)
    return scores


@gluon.jit
def with_half(scores, half: gl.constexpr, other):
    """Replace the left (0) or right half of the scores' columns by `other`. Moves no data."""
    left, right = scores.reshape([ROWS, 2, ROWS]).permute(0, 2, 1).split()
    other = gl.convert_layout(other, left.type.layout, assert_trivial=True)
    x = gl.join(other, right) if half == 0 else gl.join(left, other)
    return gl.convert_layout(x.permute(0, 2, 1).reshape(scores.shape), scores.type.layout, assert_trivial=True)


@gluon.jit
def own_scores_mma(p, me: gl.constexpr, slot, part: gl.constexpr):
    """Compute Q K of the rows' own keys, of one of own_sums column parts. Both are read from shared memory."""
    columns: gl.constexpr = p.options.head_dim // p.options.own_sums
    q = p.q_smem.index(me).reshape([ROWS, p.options.head_dim]).slice(part * columns, columns, 1)
    k = p.k_smem.index(slot).reshape([p.options.block_n, p.options.head_dim])
    k = k.slice(me * ROWS, ROWS, 0).slice(part * columns, columns, 1)
    zero = gl.zeros([ROWS, ROWS], gl.float32, mma_layout(ROWS, p.q_desc.dtype))
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
