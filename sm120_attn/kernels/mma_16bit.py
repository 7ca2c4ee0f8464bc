"""The MMA policy for 16-bit inputs: S = Q K^T and O = P V with m16n8k16.

In an m16n8 accumulator lane 4g+t holds columns 2t and 2t+1 of rows g (values 0, 1) and g+8 (values 2, 3). The next MMA
reads its A operand from the same lanes and registers, so P does not move between lanes.
"""

import cutlass.cute as cute
from cutlass import Float32

from ..config import OPERAND_BYTES, PANEL_BYTES
from . import inline_ptx as ptx
from .mma import Mma


class Mma16(Mma):
    """The policy for bf16 and fp16. Probabilities may grow to 2^8; this loses no accuracy in either dtype."""

    step_columns = 2  # n8 columns of keys that one MMA of P V takes
    bias_bits, lazy_bits = 0.0, 8.0  # see softmax.py
    # Position of a lane's part of a row of Q: bytes from one lane of a quad to the next, and the first columns of the
    # two halves of an A operand.
    q_lane_bytes, q_halves = 4, (0, 8)
    q_steps = 1  # MMA steps whose columns of Q a lane loads at once
    o_lane_bytes = 8  # bytes from one lane of a quad to the next in a float32 row of O
    key_columns = 1  # n8 columns of keys that one MMA of Q K^T takes
    o_lane_words = 1  # registers of row_words that a lane stores next to each other in O

    def __init__(self, config):
        super().__init__(config)
        self.out_columns = 2 * config.k_steps

    @property
    def dtype(self):
        """The type of the operands."""
        return self.config.dtype

    @property
    def p_dtype(self):
        """The type of P and V."""
        return self.dtype

    def mma(self, a, b, c):
        return ptx.mma_m16n8k16(self.dtype, a, b, c)

    def q_pairs(self, words):
        """Split a lane's registers of a row of Q into the two registers of each of q_steps steps."""
        return [words]

    # --- accumulators ---

    def new_output(self):
        """Make O in registers: [block, n8, 4] fp32, zero."""
        acc_o = cute.make_rmem_tensor((self.blocks, self.out_columns, 4), Float32)
        acc_o.fill(0.0)
        return acc_o

    def output_groups(self):
        """List (block, n8) of each group of four values of O."""
        return [(block, n) for block in range(self.blocks) for n in range(self.out_columns)]

    def group_factors(self, of_rows):
        """List the factors of the four values of each of output_groups. of_rows: one factor per row of S."""
        return [[of_rows[2 * block + i // 2] for i in range(4)] for block, _ in self.output_groups()]

    def scale_row(self, acc_o, row: int, factor):
        block, values = self.row_of(row)
        for n in range(self.out_columns):
            for i in values:
                acc_o[block, n, i] = acc_o[block, n, i] * factor

    def row_words(self, acc_o, row: int, factor):
        """Multiply a thread's part of one row of O by factor, and pack two 16-bit values for each n8 column."""
        block, (low, high) = self.row_of(row)
        dtype = self.config.dtype
        return [
            ptx.pack(dtype, acc_o[block, n, low] * factor, acc_o[block, n, high] * factor)
            for n in range(self.out_columns)
        ]

    def row_of_lane(self, lane):
        """Compute the lane's index among the lanes that share a row of S."""
        return lane & 3

    def row_sum(self, x):
        """Compute the sum over the lanes that share a row of S."""
        return ptx.quad_sum(x)

    def row_parts(self, acc_o, row: int):
        """List a thread's parts of a float32 row of O: (byte offset from the lane's first column, values)."""
        block, (low, high) = self.row_of(row)
        return [(32 * n, [acc_o[block, n, low], acc_o[block, n, high]]) for n in range(self.out_columns)]

    # --- addresses ---

    def key_offsets(self, lane):
        """Compute the offset of a lane's first key within an n8 column of scores; the same in all columns."""
        return (2 * (lane % 4),)

    def lane_offsets(self, lane):
        """Compute a lane's byte offsets in Q, K and V, for each of the four steps of a panel."""
        swizzle = lane & 7
        low = (lane & 15) * PANEL_BYTES
        low_chunk = ((lane >> 4) ^ swizzle) << 4
        high = ((lane & 7) + ((lane >> 4) << 3)) * PANEL_BYTES
        high_chunk = (((lane >> 3) & 1) ^ swizzle) << 4
        steps = range(self.panel_steps)
        lows = [low + (low_chunk ^ (32 * k)) for k in steps]
        highs = [high + (high_chunk ^ (32 * k)) for k in steps]
        lows, highs = ([ptx.kept(x, lane) for x in offsets] for offsets in (lows, highs))
        return lows, highs, lows

    # --- operands of Q that a kernel has put into shared memory ---

    def load_operands(self, base, step: int):
        """Load the A operands of one step, for all blocks, that store_operands has stored. base: the lane's address."""
        return [
            [ptx.bits(x) for x in ptx.load_shared(base, (step * self.blocks + block) * OPERAND_BYTES, 4)]
            for block in range(self.blocks)
        ]

    def store_operands(self, base, step: int, operands):
        """Store the A operands of one step, for all blocks, to shared memory. base: the lane's address."""
        for block, words in enumerate(operands):
            at = (step * self.blocks + block) * OPERAND_BYTES
            ptx.store_shared(base, at, [ptx.from_bits(word) for word in words])

    # --- O += P V ---

    def p_operand(self, probs, step: int):
        """Make the A operand of 16 keys from the probabilities of two n8 columns, four Float32 each."""
        dtype = self.p_dtype
        left, right = probs
        return [
            ptx.pack(dtype, left[0], left[1]),
            ptx.pack(dtype, left[2], left[3]),
            ptx.pack(dtype, right[0], right[1]),
            ptx.pack(dtype, right[2], right[3]),
        ]

    def add_values(self, acc_o, p, v_base, v_offsets, step: int):
        """Add P V to O for one step of 16 keys. p: the A operand of each block."""
        for column in range(self.config.k_steps):
            panel, within = divmod(column, self.panel_steps)
            start = panel * self.config.tile_n * PANEL_BYTES + step * self.step_bytes
            words = ptx.ldmatrix(v_base + v_offsets[within], start, transpose=True)
            for half in range(2):
                self.add_column(acc_o, p, words[2 * half : 2 * half + 2], 2 * column + half)

    def add_keys(self, scores, q, keys, n: int):
        """Add Q K^T of one step to the n8 columns of scores from n on. keys: B operands of these columns."""
        for column, k in enumerate(keys, n):
            for block in range(self.blocks):
                scores[block][column] = self.mma(q[block], k, scores[block][column])

    def add_columns(self, acc_o, p, values, n: int):
        """Add P V to the n8 columns of O from n on. values: B operands of these columns."""
        for column, v in enumerate(values, n):
            self.add_column(acc_o, p, v, column)

    def add_column(self, acc_o, p, v, n: int):
        """Add P V to one n8 column of O. v: the B operand."""
        for block in range(self.blocks):
            d = ptx.mma_m16n8k16(self.p_dtype, p[block], v, [acc_o[block, n, i] for i in range(4)])
            for i in range(4):
                acc_o[block, n, i] = d[i]
