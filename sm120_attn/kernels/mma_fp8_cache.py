"""The MMA policy for 16-bit queries over an FP8 cache: S = Q K^T and O = P V with m16n8k16, in FP16.

K and V are converted in registers; FP16 represents every e4m3 value. S has the same layout as with 16-bit keys. Only
the order of head_dim's columns differs. It does not affect S, and is restored when O is written:

    K   one ldmatrix reads 16 columns as if they were 8 of 16 bits: lane 4g + t gets columns 4t to 4t + 3 of key g.
        So the MMA's k-columns 2t, 2t+1, 2t+8, 2t+9 are columns 4t to 4t + 3 of a step, in Q too.
    V   the transposing ldmatrix gives lane 4g + t columns 2g and 2g + 1 of keys 2t and 2t + 1. The even columns of 16
        become one n8 column of O, the odd columns another. So lane 4g + t has columns 4t to 4t + 3 of O.
"""

import functools

import cutlass
from cutlass import Int32

from ..config import PANEL_BYTES
from . import inline_ptx as ptx
from .mma_16bit import Mma16

PAIRS = 0x3120  # selector of prmt: bytes 0, 2, 1, 3


class MmaFp8Cache(Mma16):
    """The policy for e4m3 caches. Queries are scaled by a power of two and converted to FP16: see q_factor."""

    dtype = "fp16"
    q_lane_bytes, q_halves = 8, (0, 2)
    o_lane_bytes = 16
    o_lane_words = 2

    # --- Q ---

    def lane_offsets(self, lane):
        """Compute a lane's byte offsets as in Mma16, except that it reads columns 4t to 4t + 3 of a row of Q."""
        g, t = lane >> 2, lane & 3
        q = [g * PANEL_BYTES + (((2 * k + (t >> 1)) ^ g) << 4) + ((t & 1) << 3) for k in range(self.panel_steps)]
        return q, *super().lane_offsets(lane)[1:]

    def load_q(self, base, offsets, step: int):
        """Load the A operands of all blocks for one step from a tile that TMA has written to shared memory."""
        panel, within = divmod(step, self.panel_steps)
        start = panel * self.config.rows_per_warp * PANEL_BYTES
        found = []
        for block in range(self.blocks):
            rows = [
                ptx.load_shared(base + offsets[within], start + block * self.step_bytes + half * 8 * PANEL_BYTES, 2)
                for half in range(2)
            ]
            found.append([ptx.bits(rows[i % 2][i // 2]) for i in range(4)])
        return found

    def q_factor(self, words):
        """Compute a power of two and its inverse, such that the largest value of Q times the inverse is 2^14 to 2^15.

        words: all registers of Q of this thread. All rows of the warp have the same factor. The error from rounding to
        FP16 is then below 2^-29 of the largest value of Q.
        """
        dtype = self.config.dtype
        halves = functools.reduce(functools.partial(ptx.max_bits, dtype), [word & 0x7FFF7FFF for word in words])
        largest = ptx.bits(ptx.widened(dtype, cutlass.max(halves & 0xFFFF, ptx.upper(halves))))
        # The exponent of the largest value, limited so that both results are normal numbers.
        exponent = cutlass.min(cutlass.max(ptx.warp_max(largest) >> 23, Int32(64)), Int32(191))
        return ptx.from_bits((exponent - 14) << 23), ptx.from_bits((268 - exponent) << 23)

    def in_fp16(self, word, factor):
        """Multiply two values of Q by a factor and convert them to FP16."""
        low, high = (ptx.widened(self.config.dtype, half) for half in (word & 0xFFFF, ptx.upper(word)))
        return ptx.pack("fp16", low * factor, high * factor)

    # --- S and O ---

    def add_scores(self, scores, q_of, k_base, k_offsets):
        """Add Q K^T to scores. One ldmatrix loads two steps along head_dim."""
        for pair in range(-(-self.config.k_steps // 2)):
            panel, within = divmod(pair, self.panel_steps)
            steps = [step for step in (2 * pair, 2 * pair + 1) if step < self.config.k_steps]
            q = [q_of(step) for step in steps]
            for column in range(self.columns // 2):
                for half, words in enumerate(self.load_k(k_base + k_offsets[within], panel, column)):
                    n = 2 * column + half
                    for i in range(len(steps)):
                        k = ptx.widen_e4m3(words[i])
                        for block in range(self.blocks):
                            scores[block][n] = self.mma(q[i][block], k, scores[block][n])

    def add_values(self, acc_o, p, v_base, v_offsets, step: int):
        """Add P V to O for one step of 16 keys. p: the A operand of each block."""
        for pair in range(-(-self.config.k_steps // 2)):
            panel, within = divmod(pair, self.panel_steps)
            start = panel * self.config.tile_n * PANEL_BYTES + step * self.step_bytes
            words = ptx.ldmatrix(v_base + v_offsets[within], start, transpose=True)
            for half in range(2):
                chunk = 2 * pair + half
                if chunk == self.config.k_steps:
                    break
                first, second = (ptx.widen_e4m3(ptx.permute_bytes(w, w, PAIRS)) for w in words[2 * half : 2 * half + 2])
                for odd in range(2):
                    self.add_column(acc_o, p, [first[odd], second[odd]], 2 * chunk + odd)

    def row_words(self, acc_o, row: int, factor):
        """Multiply a thread's part of one row of O by factor; pack its four values of each 16 columns in two words."""
        block, values = self.row_of(row)
        dtype = self.config.dtype
        return [
            ptx.pack(dtype, acc_o[block, 2 * chunk, i] * factor, acc_o[block, 2 * chunk + 1, i] * factor)
            for chunk in range(self.config.k_steps)
            for i in values
        ]

    def row_parts(self, acc_o, row: int):
        """List a thread's parts of a float32 row of O: (byte offset from the lane's first column, values)."""
        block, (low, high) = self.row_of(row)
        return [
            (64 * chunk, [acc_o[block, 2 * chunk + odd, i] for i in (low, high) for odd in range(2)])
            for chunk in range(self.config.k_steps)
        ]
