"""Scores of queries with their own keys, computed as several partial sums that are added in fp32.

The tensor cores add up fp8 products with about 13 bits. That is too few for many products of one sign, which occur when
a query equals its own key. The own keys are in the first block that a tile visits. At that time no registers hold O or
probabilities yet, so the scores with the own keys can be computed a second time, in parts.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from .layouts import ROWS, mma_layout


@gluon.jit
def with_own_sums(p, me: gl.constexpr, scores, slot):
    """Return the scores of a tile's first block. With own_sums > 1, recompute the scores with the rows' own keys."""
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
    """Replace the left (half 0) or right (half 1) columns of the scores by `other`. Moves no data."""
    left, right = scores.reshape([ROWS, 2, ROWS]).permute(0, 2, 1).split()
    other = gl.convert_layout(other, left.type.layout, assert_trivial=True)
    x = gl.join(other, right) if half == 0 else gl.join(left, other)
    return gl.convert_layout(x.permute(0, 2, 1).reshape(scores.shape), scores.type.layout, assert_trivial=True)


@gluon.jit
def own_scores_mma(p, me: gl.constexpr, slot, part: gl.constexpr):
    """Issue Q K of the rows and their own keys, over one of own_sums column parts. Shared memory holds Q and K."""
    columns: gl.constexpr = p.options.head_dim // p.options.own_sums
    q = p.q_smem.index(me).reshape([ROWS, p.options.head_dim]).slice(part * columns, columns, 1)
    k = p.k_smem.index(slot).reshape([p.options.block_n, p.options.head_dim])
    k = k.slice(me * ROWS, ROWS, 0).slice(part * columns, columns, 1)
    zero = gl.zeros([ROWS, ROWS], gl.float32, mma_layout(ROWS, p.q_desc.dtype))
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)
