"""Online softmax of one warp: running maxima and sums per row, and when O must be rescaled.

A score times `scale` (softmax scale * log2 e) is an exponent of 2, in "bits". A row's maximum may grow by up to the
policy's lazy_bits before sums and O are rescaled to it. Until then probabilities are at most 2^lazy_bits instead of 1.
So nearly all tiles need no rescaling of O, which costs one multiplication per value. FlashAttention-4 does the same.

bias_bits multiplies probabilities, sums and O by 2^bias_bits: row_max is stored lower by bias_bits. The LSE is still
row_max plus log2 of the sum.
"""

import functools
import operator

import cutlass.cute as cute
from cutlass import Float32

from . import inline_ptx as ptx

# The maximum of a row that has seen no key. Finite, so that -inf minus it is -inf and not NaN.
NOTHING_SEEN = -1.0e30
LARGEST_START = 1.0e38  # limit of the initial values of S; scores above it are inexact anyway
LN_2 = 0.6931471805599453
LOG2_E = 1.4426950408889634


class OnlineSoftmax:
    """Softmax state of one warp's rows. row_max: in bits, minus bias_bits. row_sum: this thread's part of the sum."""

    def __init__(self, policy, scale):
        self.policy = policy
        self.scale = scale
        self.limit = policy.lazy_bits + policy.bias_bits
        self.row_max = cute.make_rmem_tensor((policy.rows,), Float32)
        self.row_sum = cute.make_rmem_tensor((policy.rows,), Float32)
        self.row_max.fill(NOTHING_SEEN)
        self.row_sum.fill(0.0)

    def see(self, scores, acc_o):
        """Update the maxima by a tile's scores; rescale sums and O if a maximum has grown by more than the limit."""
        self.rescale_if_grown(self.largest(scores), acc_o)

    def largest(self, scores):
        """Compute the largest of this thread's scores, per row."""
        found = []
        for r in range(self.policy.rows):
            block, values = self.policy.row_of(r)
            mine = [scores[block][n][i] for n in range(self.policy.columns) for i in values]
            found.append(functools.reduce(cute.arch.fmax, mine))
        return found

    def has_grown(self, largest):
        """Check whether the maximum of some row of the warp has grown by more than the limit.

        Each thread compares its own part of a row. The maximum of the whole row takes shuffles, and is needed only if
        some thread finds growth.
        """
        growth = [ptx.fma(largest[r], self.scale, -self.row_max[r]) for r in range(self.policy.rows)]
        return cute.arch.vote_any_sync(functools.reduce(cute.arch.fmax, growth) > self.limit)

    def starts(self):
        """Compute initial values of S such that a score is positive if it exceeds the row's maximum plus the limit.

        Each row has one register per value of an n8 column, because an MMA takes four consecutive registers. The value
        is -(row_max + limit) / scale, refined by one Newton step. If it is out of range, all scores become positive.
        """
        lane, inverse = cute.arch.lane_idx(), ptx.reciprocal(self.scale)
        starts = []
        for r in range(self.policy.rows):
            bits = self.row_max[r] + self.limit
            rough = bits * -inverse
            start = ptx.fma(ptx.fma(rough, self.scale, bits), -inverse, rough)
            start = ptx.select(rough > -LARGEST_START, start, Float32(LARGEST_START))
            _, values = self.policy.row_of(r)
            starts.append([start, *(ptx.kept(start, lane) for _ in values[1:])])
        return starts

    def must_rescale(self, scores, starts):
        """Check whether a maximum has grown beyond the limit. With `starts`, it has if some score is not negative.

        All scores are negative if their bitwise AND is negative. One instruction combines three scores, while a maximum
        takes one instruction per score.
        """
        if starts is None:
            return self.has_grown(self.largest(scores))
        signs = []
        for r in range(self.policy.rows):  # one chain of ANDs per row: a single chain would wait for the last MMA
            block, values = self.policy.row_of(r)
            mine = [ptx.bits(scores[block][n][i]) for n in range(self.policy.columns) for i in values]
            signs.append(functools.reduce(operator.and_, mine))
        return cute.arch.vote_any_sync(functools.reduce(operator.and_, signs) >= 0)

    @cute.jit
    def rescale_if_grown(self, largest, acc_o):
        if self.has_grown(largest):
            self.rescale(largest, acc_o)

    def rescale(self, largest, acc_o):
        for r in range(self.policy.rows):
            bits = self.policy.row_max(largest[r]) * self.scale
            self.rescale_row(r, bits - self.policy.bias_bits if self.policy.bias_bits else bits, acc_o)

    def rescale_row(self, r: int, bits, acc_o):
        larger = cute.arch.fmax(self.row_max[r], bits)
        factor = ptx.exp2(self.row_max[r] - larger)
        self.row_max[r] = larger
        self.row_sum[r] = self.row_sum[r] * factor
        self.policy.scale_row(acc_o, r, factor)

    def join_row(self, r: int, other_max, other_sum, acc_o):
        """Join a row with its maximum and sum over other keys. Rescale acc_o; return a factor for their O."""
        larger = cute.arch.fmax(self.row_max[r], other_max)
        mine, theirs = ptx.exp2(self.row_max[r] - larger), ptx.exp2(other_max - larger)
        self.row_max[r] = larger
        self.row_sum[r] = ptx.fma(other_sum, theirs, self.row_sum[r] * mine)
        self.policy.scale_row(acc_o, r, mine)
        return theirs

    def exponentials(self, scores, block: int, n: int, starts=None):
        """Compute exp2 of the scores of one n8 column; add it to the sums. starts: initial values of S; None: zero."""
        made = [None] * len(scores[block][n])
        for r in (2 * block, 2 * block + 1):
            shift = -self.row_max[r] if starts is None else Float32(self.limit)
            _, values = self.policy.row_of(r)
            for i in values:
                made[i] = ptx.exp2(ptx.fma(scores[block][n][i], self.scale, shift))
                self.row_sum[r] = self.row_sum[r] + made[i]
        return made


def finish(softmax, sink=None):
    """Compute for each row the factor of O and the natural LSE. If it saw no key: factor 0, LSE -inf or the sink."""
    factors, lses = [], []
    for r in range(softmax.policy.rows):
        total = ptx.quad_sum(softmax.row_sum[r])
        factor, lse = finished(softmax.row_max[r], total, sink)
        factors.append(factor)
        lses.append(lse)
    return factors, lses


def finished(row_max, row_sum, sink=None):
    """Compute the factor of a row's O and its LSE from its maximum (in bits) and its sum. sink: a logit, or None."""
    factor = None
    if sink is not None:
        bits = sink * LOG2_E
        larger = cute.arch.fmax(row_max, bits)
        factor = ptx.exp2(row_max - larger)
        row_sum = ptx.fma(row_sum, factor, ptx.exp2(bits - larger))
        row_max = larger
    empty = row_sum == 0.0
    inverse = ptx.reciprocal(row_sum)
    if factor is not None:
        inverse = inverse * factor
    lse = (row_max + ptx.log2(row_sum)) * LN_2
    return ptx.select(empty, Float32(0.0), inverse), ptx.select(empty, Float32(-float("inf")), lse)


def soft_cap(scores, policy, tanh_scale, starts=None):
    """Replace each score by tanh(x), where score * tanh_scale = 2 log2(e) x. starts: see policy.new_scores.

    tanh(x) = 1 - 2 / (1 + exp(2x)): two MUFU instructions with an error of 1e-7; tanh.approx has 5e-4.
    """
    minus_two = Float32(-2.0)
    for r in range(policy.rows):
        block, values = policy.row_of(r)
        one = Float32(1.0) if starts is None else 1.0 + starts[r][0]
        for n in range(policy.columns):
            for i in values:
                x = ptx.reciprocal(1.0 + ptx.exp2(scores[block][n][i] * tanh_scale))
                scores[block][n][i] = ptx.fma(x, minus_two, one)
