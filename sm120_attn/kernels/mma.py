"""Tensor-core work of one warp: how Q, K, P and V become MMA operands. Kernels have a policy and know no fragments.

`Mma` is what all policies share: Q and K, of which an MMA takes 32 bytes of a row at a time, whatever they hold.

`Mma16` is for 16-bit inputs: S = Q K^T and O = P V with m16n8k16. `Mma8`, for FP8, is in mma_fp8.py. In an m16n8
accumulator lane 4g+t holds columns 2t and 2t+1 of rows g (values 0, 1) and g+8 (values 2, 3), where the next MMA wants
its A operand: P stays in place.

A tile in shared memory is made of panels, 128 bytes (64 columns, or 128 with FP8) wide. TMA's 128-byte swizzle
exchanges the 16-byte chunks of a row: chunk c of row r stands at c ^ (r % 8). ldmatrix reads eight rows at a time, one
per lane, so that the row part of the exchange depends on the lane only, and four offsets per lane reach every chunk of
every panel. Up to 64 columns of FP8 have a panel of 64 bytes, two rows to 128 bytes, and TMA's 64-byte swizzle, which
puts chunk c of row r to c ^ (r / 2 % 4): eight rows have eight different places in it as well.
"""

import cutlass.cute as cute
from cutlass import Float32

from ..config import MMA_BYTES, PANEL_BYTES
from . import inline_ptx as ptx

STEP_ROWS = 16  # rows of an ldmatrix of four 8x8 matrices, two by two


class Mma:
    """S = Q K^T with fp32 accumulators. All methods emit code for one warp; `config` is known at compile time."""

    def __init__(self, config):
        self.config = config
        self.blocks = config.rows_per_warp // 16
        self.rows = 2 * self.blocks  # rows of the accumulators of S that a thread has a part of
        self.columns = config.tile_n // 8
        self.panel_steps = config.panel_bytes // MMA_BYTES  # along head_dim
        self.step_bytes = STEP_ROWS * config.panel_bytes

    def row_of(self, row: int):
        """The (block, values) of a thread's row of S: rows 2b and 2b+1 are g and g+8 of block b."""
        return row // 2, (2 * (row % 2), 2 * (row % 2) + 1)

    def load_q(self, base, offsets, step: int):
        """A operands of all blocks for one step along head_dim. Q: rows_per_warp rows in panels of its own."""
        panel, within = divmod(step, self.panel_steps)
        start = panel * self.config.rows_per_warp * self.config.panel_bytes
        address = base + offsets[within]
        return [ptx.ldmatrix(address, start + block * self.step_bytes) for block in range(self.blocks)]

    def load_k(self, address, panel: int, column: int):
        """B operands of two n8 columns of keys, for one step; `address` has the lane's offset in it."""
        start = panel * self.config.tile_n * self.config.panel_bytes + column * self.step_bytes
        words = ptx.ldmatrix(address, start)
        return words[:2], words[2:]

    def new_scores(self):
        return [[None] * self.columns for _ in range(self.blocks)]

    def add_scores(self, scores, q_of, k_base, k_offsets):
        """scores += Q K^T. q_of: step along head_dim -> A operands."""
        for step in range(self.config.k_steps):
            panel, within = divmod(step, self.panel_steps)
            q = q_of(step)
            address = k_base + k_offsets[within]
            for column in range(self.columns // 2):
                for half, k in enumerate(self.load_k(address, panel, column)):
                    n = 2 * column + half
                    for block in range(self.blocks):
                        scores[block][n] = self.mma(q[block], k, scores[block][n])


class Mma16(Mma):
    """bf16 or fp16; probabilities up to 2^8, which costs neither of them any accuracy."""

    step_columns = 2  # n8 columns of keys that an MMA of P V takes
    bias_bits, lazy_bits = 0.0, 8.0  # see softmax

    def __init__(self, config):
        super().__init__(config)
        self.out_columns = 2 * config.k_steps

    def mma(self, a, b, c):
        return ptx.mma_m16n8k16(self.config.dtype, a, b, c)

    # --- accumulators ---

    def new_output(self):
        """O in registers: [block, n8, 4] fp32, zero."""
        output = cute.make_rmem_tensor((self.blocks, self.out_columns, 4), Float32)
        output.fill(0.0)
        return output

    def output_groups(self):
        """The (block, n8) of all groups of four values of the output."""
        return [(block, n) for block in range(self.blocks) for n in range(self.out_columns)]

    def group_factors(self, of_rows):
        """For each of these groups the factors of its four values, from one per row of S."""
        return [[of_rows[2 * block + i // 2] for i in range(4)] for block, _ in self.output_groups()]

    def scale_row(self, output, row: int, factor):
        block, values = self.row_of(row)
        for n in range(self.out_columns):
            for i in values:
                output[block, n, i] = output[block, n, i] * factor

    def row_words(self, output, row: int, factor):
        """A thread's part of one row of O, times factor: two 16-bit values of each n8 column."""
        block, (low, high) = self.row_of(row)
        dtype = self.config.dtype
        return [
            ptx.pack(dtype, output[block, n, low] * factor, output[block, n, high] * factor)
            for n in range(self.out_columns)
        ]

    # --- addresses ---

    def key_offsets(self, lane):
        """Offset of a lane's first key within its eight, for n8 columns in turn."""
        return (2 * (lane % 4),)

    def lane_offsets(self, lane):
        """Byte offsets that a lane adds for Q, K and V, for the four steps of a panel."""
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

    # --- O += P V ---

    def p_operand(self, probabilities, step: int):
        """A operand of 16 keys from the probabilities of two n8 columns, each four Float32."""
        dtype = self.config.dtype
        left, right = probabilities
        return [
            ptx.pack(dtype, left[0], left[1]),
            ptx.pack(dtype, left[2], left[3]),
            ptx.pack(dtype, right[0], right[1]),
            ptx.pack(dtype, right[2], right[3]),
        ]

    def add_values(self, output, p, v_base, v_offsets, step: int):
        """O += P V for one step of 16 keys. p: A operands per block."""
        dtype = self.config.dtype
        for column in range(self.config.k_steps):
            panel, within = divmod(column, self.panel_steps)
            start = panel * self.config.tile_n * PANEL_BYTES + step * self.step_bytes
            words = ptx.ldmatrix(v_base + v_offsets[within], start, transpose=True)
            for half in range(2):
                n = 2 * column + half
                for block in range(self.blocks):
                    c = [output[block, n, i] for i in range(4)]
                    d = ptx.mma_m16n8k16(dtype, p[block], words[2 * half : 2 * half + 2], c)
                    for i in range(4):
                        output[block, n, i] = d[i]


def policy_of(config):
    """The MMA policy for a config's dtype and target: the only place where it is chosen."""
    if not config.fp8:
        return Mma16(config)
    from .mma_fp8 import Mma8, Mma8Portable, Mma8StandIn

    if config.fp8_mma == "portable":
        return Mma8Portable(config)
    if config.arch == "sm_90a":  # has neither the byte-wise ldmatrix nor the block-scaled MMA
        return Mma8StandIn(config)
    return Mma8(config, block_scaled=config.fp8_mma == "native")
