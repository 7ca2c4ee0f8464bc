"""The MMA policies for FP8 inputs: O^T = V^T P^T, so that neither P nor V moves between lanes.

In an m16n8 accumulator of S lane 4g+t holds columns 2t and 2t+1 of a row, but a register of an FP8 operand holds four
keys. So the 32 keys of a step are numbered such that a lane's operand consists of its own probabilities:

    k = 16h + 4t + i  is key  16h + 8 (i / 2) + (2t + i % 2 + 4 (i / 2)) % 8

ldmatrix gets the rows of V in that order. The last term rotates odd blocks of eight keys by four rows, to avoid bank
conflicts: the rows of eight lanes then differ modulo 8, so the 128-byte swizzle puts them into different banks. The
same rotation applies to K, where the lanes of odd n8 columns read rows (r + 4) % 8. So in odd n8 columns the scores of
lane t belong to the keys that lane t ^ 2 would have; masks must take this into account.

ldmatrix of transposed bytes loads V^T as an A operand (m is head_dim, k the keys) without further moves. P^T is the B
operand: two registers per eight queries. The accumulators are O^T: lane 4g+t has columns g and g+8 of head_dim, for the
queries 2t and 2t+1. The epilogue transposes them to rows of O with movmatrix.

Probabilities are multiplied by 2^bias_bits, to use the range of FP8. A maximum may grow by lazy_bits before O is
rescaled; with both, probabilities stay below the largest FP8 value.
"""

from typing import Any

import cutlass.cute as cute
from cutlass import Float32

from ..config import BIAS_AND_LAZY_BITS, PANEL_BYTES
from . import inline_ptx as ptx
from .mma import Mma

KEYS = 32  # keys of an MMA step of P V
CHUNK_BYTES = 16  # bytes that ldmatrix reads at a lane's address: 16 columns of head_dim


class Mma8(Mma):
    """The policy for sm_12x: ldmatrix of bytes, and an MMA without scales or with all scales 1."""

    step_columns = KEYS // 8
    o_lane_words = 1

    def __init__(self, config, block_scaled: bool = False):
        super().__init__(config)
        self.scales = ptx.UNIT_SCALES if block_scaled else None
        self.out_blocks = -(-config.head_dim // 16)
        self.spare_registers = config.head_dim <= 128
        self.bias_bits, self.lazy_bits = BIAS_AND_LAZY_BITS[config.dtype]
        self.chunks = config.panel_bytes // CHUNK_BYTES  # 16-byte chunks in a row of a panel

    def mma(self, a, b, c):
        return ptx.mma_m16n8k32(self.config.dtype, a, b, c, self.scales)

    # --- accumulators ---

    def new_output(self):
        """Make O^T in registers, filled with zeros: [m16 of head_dim, n8 of queries, 4] fp32.

        n8 column r of queries consists of row number r of every lane in S.
        """
        acc_o = cute.make_rmem_tensor((self.out_blocks, self.rows, 4), Float32)
        acc_o.fill(0.0)
        return acc_o

    def scale_row(self, acc_o, row: int, factor):
        factors = self.of_queries(factor)
        for block in range(self.out_blocks):
            for i in range(4):
                acc_o[block, row, i] = acc_o[block, row, i] * factors[i % 2]

    def of_queries(self, factor):
        """Return the factors of queries 2t and 2t+1. In `factor`, lane 4g + t has the factor of row g of S."""
        lane = cute.arch.lane_idx()
        return [ptx.shuffle(factor, source) for source in self.lanes_of_queries(lane)]

    def output_groups(self):
        """List (m16, n8) of each group of four values of O."""
        return [(block, row) for block in range(self.out_blocks) for row in range(self.rows)]

    def group_factors(self, of_rows):
        """List the factors of the four values of each of output_groups. of_rows: one factor per row of S."""
        moved = [self.of_queries(factor) for factor in of_rows]
        return [[moved[row][i % 2] for i in range(4)] for _, row in self.output_groups()]

    def lanes_of_queries(self, lane):
        """Compute a lane whose row of S is query 2t, and a lane whose row is query 2t+1."""
        first = (lane & 3) << 3
        return first, first + 4

    def row_words(self, acc_o, row: int, factor):
        """Multiply a thread's part of one row of O by factor: two values per n8 column, in 1 or 2 registers."""
        self.scale_row(acc_o, row, factor)
        words = []
        for block in range(self.out_blocks):
            values = self.in_order([acc_o[block, row, i] for i in range(4)])
            words += [self.transposed(values[0], values[1]), self.transposed(values[2], values[3])]
        return words

    def in_order(self, values):
        """Return a lane's four values in this order: columns g, g, g+8, g+8 of queries 2t, 2t+1, 2t, 2t+1."""
        return values

    def transposed(self, left, right):
        """Transpose over the warp: a lane gives column g of queries 2t, 2t+1 and gets columns 2t, 2t+1 of query g."""
        dtype = self.config.out_dtype
        if dtype != "fp32":
            return ptx.transpose_8x8(ptx.pack(dtype, left, right))
        left, right = ptx.bits(left), ptx.bits(right)
        low, high = (ptx.transpose_8x8(ptx.permute_bytes(left, right, digits)) for digits in (0x5410, 0x7632))
        return [ptx.permute_bytes(low, high, digits) for digits in (0x5410, 0x7632)]

    # --- addresses ---

    def key_offsets(self, lane):
        """Compute the offsets of a lane's first key within an n8 column of scores: for even and for odd columns."""
        t = lane & 3
        return 2 * t, 2 * (t ^ 2)

    def lane_offsets(self, lane):
        """Compute a lane's byte offsets in Q and K (per step of a panel) and in V (per 16-byte chunk of a panel)."""
        steps, bytes_ = range(self.panel_steps), self.config.panel_bytes
        q_row, k_row, v_row = lane & 15, self.k_row(lane), self.v_row(lane)
        q_chunk, k_chunk = (lane >> 4) ^ self.exchange(lane), ((lane >> 3) & 1) ^ self.exchange(k_row)
        q = [q_row * bytes_ + ((q_chunk ^ (2 * k)) << 4) for k in steps]
        k = [k_row * bytes_ + ((k_chunk ^ (2 * k)) << 4) for k in steps]
        v = [v_row * bytes_ + ((self.exchange(v_row) ^ c) << 4) for c in range(min(self.chunks, self.out_blocks))]
        if self.config.two_level:  # few registers are left: let ptxas compute the offsets again at each use
            return q, k, v
        return tuple([ptx.kept(x, lane) for x in offsets] for offsets in (q, k, v))

    def exchange(self, row):
        """Compute the number that TMA's swizzle XORs with the chunk numbers of a row."""
        return row & 7 if self.config.panel_bytes == PANEL_BYTES else (row >> 1) & 3

    def k_row(self, lane):
        """Compute the row of K at a lane's ldmatrix address. Lanes 0-15 take an even n8 column, lanes 16-31 an odd."""
        odd = lane >> 4
        return ((lane & 7) ^ (odd << 2)) + (odd << 3)

    def v_row(self, lane):
        """Compute the row of V at a lane's ldmatrix address: the key that the module numbers k = lane."""
        odd = (lane >> 1) & 1
        within = (((lane >> 2) & 3) << 1) | (lane & 1)
        return ((lane >> 4) << 4) + (odd << 3) + (within ^ (odd << 2))

    # --- O += P V ---

    def p_operand(self, probs, step: int):
        """Make the B operands of 32 keys from four n8 columns of S, for the two n8 columns of queries of a block."""
        operands = []
        for r in range(2):
            own = [[column[2 * r], column[2 * r + 1]] for column in probs]
            operands.append([ptx.pack_bytes(self.config.dtype, own[i] + own[i + 1]) for i in (0, 2)])
        return operands

    def load_v(self, address, offset: int):
        """Load an A operand: 16 columns of head_dim and 32 keys of V^T."""
        return ptx.ldmatrix_bytes(address, offset)

    def add_values(self, acc_o, p, v_base, v_offsets, step: int):
        """Add V^T P^T to O^T for one step of 32 keys. p: B operands, per block and n8 column of queries."""
        for block in range(self.out_blocks):
            v = self.v_operand(block, step, v_base, v_offsets)
            for row in range(self.rows):
                c = [acc_o[block, row, i] for i in range(4)]
                d = self.mma(v, p[row // 2][row % 2], c)
                for i in range(4):
                    acc_o[block, row, i] = d[i]

    def add_tile(self, acc_o, p, v_base, v_offsets):
        """Sum V^T P^T of a tile in separate accumulators, then add it to O^T. p: for each step as in add_values."""
        for block in range(self.out_blocks):
            sums: list[Any] = [None] * self.rows
            for step, operands in enumerate(p):
                v = self.v_operand(block, step, v_base, v_offsets)
                for row in range(self.rows):
                    sums[row] = self.mma(v, operands[row // 2][row % 2], sums[row])
            for row in range(self.rows):
                for i in range(4):
                    acc_o[block, row, i] = acc_o[block, row, i] + sums[row][i]

    def v_operand(self, block: int, step: int, v_base, v_offsets):
        """Load the A operand of 16 columns of head_dim and the 32 keys of a step."""
        panel, within = divmod(block, self.chunks)
        start = (panel * self.config.tile_n + step * KEYS) * self.config.panel_bytes
        return self.load_v(v_base + v_offsets[within], start)


class Mma8StandIn(Mma8):
    """The policy for sm_90a: byte loads with the same result as ldmatrix of bytes, and the MMA without scales.

    It is slow and only for tests: they check every lane address on a GPU that does not have ldmatrix of bytes.
    """

    def load_v(self, address, offset: int):
        lane = cute.arch.lane_idx()
        g, first = lane >> 2, (lane & 3) << 2
        words = []
        for matrix in range(2):
            rows = [ptx.shuffle(address, first + (16 * matrix + i)) + g for i in range(4)]
            for column in (0, 8):
                a, b, c, d = (ptx.load_byte(row, offset + column) for row in rows)
                words.append(a | (b << 8) | (c << 16) | (d << 24))
        return words


class Mma8Portable(Mma8):
    """The policy for every target: ldmatrix of 16-bit pairs, transposed, byte permutes, and the MMA without scales.

    A pair is two columns of head_dim: rows g and g+8 of the A operand are columns 2g and 2g+1 of V. The epilogue
    restores the order of the accumulators.
    """

    def v_row(self, lane):
        """Compute the row of V at a lane's ldmatrix address. Matrix i has keys 8i to 8i+7; odd i: rotated by 4 rows."""
        return (lane & 24) + ((lane & 7) ^ ((lane & 8) >> 1))

    def load_v(self, address, offset: int):
        pairs = ptx.ldmatrix(address, offset, transpose=True)
        return [ptx.permute_bytes(pairs[i], pairs[i + 1], digits) for i in (0, 2) for digits in (0x6420, 0x7531)]

    def in_order(self, values):
        """Fetch column g from lane group g / 2 (its first column if g is even), and column g+8 from group g / 2 + 4."""
        lane = cute.arch.lane_idx()
        odd = ((lane >> 2) & 1) != 0
        ordered = [None] * 4
        for half in range(2):
            source = (16 * half + ((lane >> 3) << 2)) + (lane & 3)
            for query in range(2):
                even_column, odd_column = (ptx.shuffle(values[2 * i + query], source) for i in range(2))
                ordered[2 * half + query] = ptx.select(odd, odd_column, even_column)
        return ordered
