"""Mma: base class of the MMA policies of all dtypes.

A policy makes operands of tensor-core instructions from Q, K, P and V, for one warp. Kernels use a policy, so that
their code does not depend on register layouts. Mma handles Q and K: for every dtype, an MMA reads 32 bytes of a row.
`Mma16` (in mma_16bit.py) and `Mma8` (in mma_fp8.py) add P, V and the output. `policy_of` in attention.py chooses the
policy.

A tile in shared memory is made of panels, 128 bytes wide (64 columns, or 128 with FP8). TMA's 128-byte swizzle permutes
the 16-byte chunks of a row: chunk c of row r is at c ^ (r % 8). ldmatrix reads eight rows at a time, one per lane. So
the row's part of the permutation depends on the lane only, and four offsets per lane reach every chunk of every panel.
FP8 tiles of up to 64 columns have panels of 64 bytes, two rows to 128 bytes, and TMA's 64-byte swizzle, which puts
chunk c of row r at c ^ (r / 2 % 4): eight rows are in different banks there, too.
"""

from typing import Any

from ..config import MMA_BYTES
from . import inline_ptx as ptx

STEP_ROWS = 16  # rows that one ldmatrix reads: four 8x8 matrices, two by two


class Mma:
    """Compute S = Q K^T with fp32 accumulators. Methods emit code for one warp; `config` is constant in a kernel."""

    # Whether registers are left for code that saves instructions: OnlineSoftmax.starts, and the shift in Ring.phase.
    spare_registers = False

    def __init__(self, config):
        self.config = config
        self.blocks = config.rows_per_warp // 16
        self.rows = 2 * self.blocks  # number of rows of S of which a thread holds values
        self.columns = config.tile_n // 8
        self.panel_steps = config.panel_bytes // MMA_BYTES  # MMA steps along head_dim in one panel
        self.step_bytes = STEP_ROWS * config.panel_bytes

    def row_of(self, row: int):
        """Return block and values of a thread's row of S. Rows 2b and 2b+1 are rows g and g+8 of MMA block b."""
        return row // 2, (2 * (row % 2), 2 * (row % 2) + 1)

    def row_numbers(self, first, lane):
        """Compute the numbers of a thread's rows of S. first: the number of the warp's first row."""
        return [first + lane // 4 + 16 * (r // 2) + 8 * (r % 2) for r in range(self.rows)]

    def q_row_numbers(self, first, lane):
        """Compute the numbers of the rows of Q of which a thread holds values. first: as in row_numbers."""
        return self.row_numbers(first, lane)

    def key_of(self, value: int) -> int:
        """Compute the key of value number `value` in an n8 column of scores, relative to the lane's first key."""
        return value % 2

    def row_max(self, x):
        """Compute the maximum over the lanes that share a row of S."""
        return ptx.quad_max(x)

    def load_q(self, base, offsets, step: int):
        """Load the A operands of all blocks for one step along head_dim. A warp's Q has panels of its own."""
        panel, within = divmod(step, self.panel_steps)
        start = panel * self.config.rows_per_warp * self.config.panel_bytes
        address = base + offsets[within]
        return [ptx.ldmatrix(address, start + block * self.step_bytes) for block in range(self.blocks)]

    def load_k(self, address, panel: int, column: int):
        """Load the B operands of two n8 columns of keys, for one step. `address` includes the lane's offset."""
        start = panel * self.config.tile_n * self.config.panel_bytes + column * self.step_bytes
        words = ptx.ldmatrix(address, start)
        return words[:2], words[2:]

    def mma(self, a, b, c):
        """Compute D = A B + C with the MMA instruction of the inputs' dtype."""
        raise NotImplementedError

    def new_scores(self, starts=None):
        """Make S: [block][n8][value]. starts: for each row, the initial values of an n8 column; None: zero."""
        if starts is None:
            return [[None] * self.columns for _ in range(self.blocks)]
        columns: list[list[Any]] = [[] for _ in range(self.blocks)]
        for r, values in enumerate(starts):
            columns[self.row_of(r)[0]] += values
        return [[column] * self.columns for column in columns]

    def add_scores(self, scores, q_of, k_base, k_offsets):
        """Add Q K^T to scores. q_of: function from a step along head_dim to its A operands."""
        for step in range(self.config.k_steps):
            panel, within = divmod(step, self.panel_steps)
            q = q_of(step)
            address = k_base + k_offsets[within]
            for column in range(self.columns // 2):
                for half, k in enumerate(self.load_k(address, panel, column)):
                    n = 2 * column + half
                    for block in range(self.blocks):
                        scores[block][n] = self.mma(q[block], k, scores[block][n])
