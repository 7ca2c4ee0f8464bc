"""Tensor-core work of one warp: how Q, K, P and V become MMA operands. Kernels have a policy and know no fragments.

`Mma16` is for 16-bit inputs: S = Q K^T and O = P V with m16n8k16. In an m16n8 accumulator lane 4g+t holds columns 2t
and 2t+1 of rows g (values 0, 1) and g+8 (values 2, 3), where the next MMA wants its A operand: P stays in place.

A tile in shared memory is made of panels, 64 columns (128 bytes) wide. TMA's 128-byte swizzle exchanges the 16-byte
chunks of a row: chunk c of row r stands at c ^ (r % 8). ldmatrix reads eight rows at a time, one per lane, so that the
row part of the exchange depends on the lane only, and four offsets per lane reach every chunk of every panel.
"""

import cutlass.cute as cute
from cutlass import Float32

from . import instructions as ptx

PANEL_BYTES = 128  # of one row
STEP_ROWS = 16  # rows or columns of an MMA step
STEP_BYTES = STEP_ROWS * PANEL_BYTES
STEPS_PER_PANEL = 4


class Mma16:
    """bf16 or fp16, fp32 accumulators. All methods emit code for one warp; `config` is known at compile time."""

    def __init__(self, config):
        self.config = config
        self.blocks = config.rows_per_warp // 16
        self.rows = 2 * self.blocks  # rows of the accumulators that a thread has a part of
        self.columns = config.tile_n // 8
        self.out_columns = 2 * config.k_steps

    # --- accumulators ---

    def new_output(self):
        """O in registers: [block, n8, 4] fp32, zero."""
        output = cute.make_rmem_tensor((self.blocks, self.out_columns, 4), Float32)
        output.fill(0.0)
        return output

    def output_columns(self):
        """The (block, n8) of all groups of four values of the output."""
        return [(block, n) for block in range(self.blocks) for n in range(self.out_columns)]

    def row_of(self, row: int):
        """The (block, values) of a thread's row: rows 2b and 2b+1 are g and g+8 of block b."""
        return row // 2, (2 * (row % 2), 2 * (row % 2) + 1)

    def scale_row(self, output, row: int, factor):
        block, values = self.row_of(row)
        for n in range(self.out_columns):
            for i in values:
                output[block, n, i] = output[block, n, i] * factor

    # --- addresses ---

    def lane_offsets(self, lane):
        """Byte offsets that a lane adds for Q and V, and for K, for the four steps of a panel."""
        swizzle = lane & 7
        low = (lane & 15) * PANEL_BYTES
        low_chunk = ((lane >> 4) ^ swizzle) << 4
        high = ((lane & 7) + ((lane >> 4) << 3)) * PANEL_BYTES
        high_chunk = (((lane >> 3) & 1) ^ swizzle) << 4
        steps = range(STEPS_PER_PANEL)
        lows = [low + (low_chunk ^ (32 * k)) for k in steps]
        highs = [high + (high_chunk ^ (32 * k)) for k in steps]
        return [ptx.kept(x, lane) for x in lows], [ptx.kept(x, lane) for x in highs]

    # --- S = Q K^T ---

    def load_q(self, base, offsets, step: int):
        """A operands of all blocks for one step along head_dim. Q: rows_per_warp rows in panels of its own."""
        panel, within = divmod(step, STEPS_PER_PANEL)
        start = panel * self.config.rows_per_warp * PANEL_BYTES
        address = base + offsets[within]
        return [ptx.ldmatrix(address, start + block * STEP_BYTES) for block in range(self.blocks)]

    def load_k(self, address, panel: int, column: int):
        """B operands of two n8 columns of keys, for one step; `address` has the lane's offset in it."""
        start = panel * self.config.tile_n * PANEL_BYTES + column * STEP_BYTES
        words = ptx.ldmatrix(address, start)
        return words[:2], words[2:]

    def new_scores(self):
        return [[None] * self.columns for _ in range(self.blocks)]

    def add_scores(self, scores, q_of, k_base, k_offsets):
        """scores += Q K^T. q_of: step along head_dim -> A operands."""
        dtype = self.config.dtype
        for step in range(self.config.k_steps):
            panel, within = divmod(step, STEPS_PER_PANEL)
            q = q_of(step)
            address = k_base + k_offsets[within]
            for column in range(self.columns // 2):
                for half, k in enumerate(self.load_k(address, panel, column)):
                    n = 2 * column + half
                    for block in range(self.blocks):
                        scores[block][n] = ptx.mma_m16n8k16(dtype, q[block], k, scores[block][n])

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
            panel, within = divmod(column, STEPS_PER_PANEL)
            start = panel * self.config.tile_n * PANEL_BYTES + step * STEP_BYTES
            words = ptx.ldmatrix(v_base + v_offsets[within], start, transpose=True)
            for half in range(2):
                n = 2 * column + half
                for block in range(self.blocks):
                    c = [output[block, n, i] for i in range(4)]
                    d = ptx.mma_m16n8k16(dtype, p[block], words[2 * half : 2 * half + 2], c)
                    for i in range(4):
                        output[block, n, i] = d[i]


def policy_of(config):
    """The MMA policy for a config's dtype and target."""
    return Mma16(config)
