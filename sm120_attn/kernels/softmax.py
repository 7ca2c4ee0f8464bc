"""Online softmax of one warp: running maxima and sums per row, and when the output must be rescaled. No layouts.

All in bits: scores times `scale` (softmax scale * log2 e) are exponents of 2. A row's maximum may grow by up to the
policy's lazy_bits before sums and output are rescaled to it: until then probabilities are at most 2^lazy_bits instead
of 1, and the rescaling of O, one multiplication per output value, is left out of nearly all tiles. (FlashAttention-4
has the idea.)

With bias_bits probabilities are 2^bias_bits times as large, and so are sums and output. The maximum is kept that much
lower, which is all there is to it: log2 of the sum and the maximum still add up to the LSE.
"""

import functools

import cutlass.cute as cute
from cutlass import Float32

from . import inline_ptx as ptx

# The maximum of a row that has seen nothing. Finite, so that -inf minus it is -inf and not NaN.
NOTHING_SEEN = -1.0e30
LN_2 = 0.6931471805599453
LOG2_E = 1.4426950408889634


class OnlineSoftmax:
    """State of the rows of one warp. `maximum` is in bits, less bias_bits; `total` a thread's part of a row's sum."""

    def __init__(self, policy, scale):
        self.policy = policy
        self.scale = scale
        self.limit = policy.lazy_bits + policy.bias_bits
        self.maximum = cute.make_rmem_tensor((policy.rows,), Float32)
        self.total = cute.make_rmem_tensor((policy.rows,), Float32)
        self.maximum.fill(NOTHING_SEEN)
        self.total.fill(0.0)

    def see(self, scores, output):
        """Take the tile's scores into the maxima; rescale totals and output where a maximum grew by much."""
        self.rescale_if_grown(self.largest(scores), output)

    def largest(self, scores):
        """The largest of this thread's own scores per row."""
        found = []
        for r in range(self.policy.rows):
            block, values = self.policy.row_of(r)
            mine = [scores[block][n][i] for n in range(self.policy.columns) for i in values]
            found.append(functools.reduce(cute.arch.fmax, mine))
        return found

    def has_grown(self, largest):
        """Whether some maximum of the warp's rows grew by much.

        This is asked of each thread's own part of a row: the maximum of the whole row, which takes shuffles, is only
        needed if some thread says yes.
        """
        growth = [ptx.fma(largest[r], self.scale, -self.maximum[r]) for r in range(self.policy.rows)]
        return cute.arch.vote_any_sync(functools.reduce(cute.arch.fmax, growth) > self.limit)

    @cute.jit
    def rescale_if_grown(self, largest, output):
        if self.has_grown(largest):
            self.rescale(largest, output)

    def rescale(self, largest, output):
        for r in range(self.policy.rows):
            bits = ptx.quad_max(largest[r]) * self.scale
            self.rescale_row(r, bits - self.policy.bias_bits if self.policy.bias_bits else bits, output)

    def rescale_row(self, r: int, bits, output):
        larger = cute.arch.fmax(self.maximum[r], bits)
        factor = ptx.exp2(self.maximum[r] - larger)
        self.maximum[r] = larger
        self.total[r] = self.total[r] * factor
        self.policy.scale_row(output, r, factor)

    def join_row(self, r: int, maximum, total, output):
        """Sum and maximum of the same row over other keys; scales the output, and returns the other output's factor."""
        larger = cute.arch.fmax(self.maximum[r], maximum)
        mine, theirs = ptx.exp2(self.maximum[r] - larger), ptx.exp2(maximum - larger)
        self.maximum[r] = larger
        self.total[r] = ptx.fma(total, theirs, self.total[r] * mine)
        self.policy.scale_row(output, r, mine)
        return theirs

    def exponentials(self, scores, block: int, n: int):
        """exp2 of four scores of one n8 column, added to the totals."""
        made = [None] * 4
        for r in (2 * block, 2 * block + 1):
            _, values = self.policy.row_of(r)
            for i in values:
                made[i] = ptx.exp2(ptx.fma(scores[block][n][i], self.scale, -self.maximum[r]))
                self.total[r] = self.total[r] + made[i]
        return made


def finish(softmax):
    """Per row the factor for the output, and the LSE in natural units: 0 and -inf for rows that saw no key."""
    factors, lses = [], []
    for r in range(softmax.policy.rows):
        total = ptx.quad_sum(softmax.total[r])
        empty = total == 0.0
        factors.append(ptx.select(empty, Float32(0.0), ptx.reciprocal(total)))
        lse = (softmax.maximum[r] + ptx.log2(total)) * LN_2
        lses.append(ptx.select(empty, Float32(-float("inf")), lse))
    return factors, lses


def soft_cap(scores, policy, into):
    """tanh of the scores, where score * into = 2 log2(e) x, and x is what tanh is taken of.

    tanh(x) = 1 - 2 / (1 + exp(2x)): two MUFU instructions, but right to 1e-7, where tanh.approx is to 5e-4 only.
    """
    one, minus_two = Float32(1.0), Float32(-2.0)
    for block in range(policy.blocks):
        for n in range(policy.columns):
            scores[block][n] = [
                ptx.fma(ptx.reciprocal(1.0 + ptx.exp2(s * into)), minus_two, one) for s in scores[block][n]
            ]
