"""The MMA policies for FP8 inputs: O^T = V^T P^T, so that neither P nor V is moved between lanes.

In an m16n8 accumulator of S lane 4g+t holds columns 2t and 2t+1 of a row, while a register of an FP8 operand holds four
keys. So the keys of a step of 32 are numbered such that a lane's own probabilities make up its operand:

    k = 16h + 4t + i  is key  16h + 8 (i / 2) + (2t + i % 2 + 4 (i / 2)) % 8

The rows of V are given to ldmatrix in that order. The last term turns odd blocks of eight keys by four rows: eight
lanes' rows are then different modulo 8, which the 128-byte swizzle makes different banks. For K it means that the lanes
of odd n8 columns ask for the rows (r + 4) % 8, and masks that lane t has the keys of lane t ^ 2 there.

ldmatrix of transposed bytes gives V^T as an A operand (m is head_dim, k the keys) with no further move, and P^T is the
B operand: two registers per eight queries. The accumulators are O^T: lane 4g+t has columns g and g+8 of head_dim, of
the queries 2t and 2t+1. Rows of O come back by movmatrix in the epilogue.

Probabilities are 2^bias_bits times as large as usual, to use the range of FP8: with lazy_bits, by which a maximum may
grow before it is followed, they must stay below the largest value.
"""

import cutlass.cute as cute
from cutlass import Float32

from ..config import BIAS_AND_LAZY_BITS, PANEL_BYTES
from . import inline_ptx as ptx
from .mma import Mma

KEYS = 32  # of an MMA step of P V
CHUNK_BYTES = 16  # a lane's part of ldmatrix: 16 columns of head_dim


class Mma8(Mma):
    """For sm_12x: ldmatrix of bytes; the MMA with unit scales, or the plain one."""

    step_columns = KEYS // 8

    def __init__(self, config, block_scaled: bool = False):
        super().__init__(config)
        self.scales = ptx.UNIT_SCALES if block_scaled else None
        self.out_blocks = -(-config.head_dim // 16)
        self.bias_bits, self.lazy_bits = BIAS_AND_LAZY_BITS[config.dtype]
        self.chunks = config.panel_bytes // CHUNK_BYTES  # of a panel's row

    def mma(self, a, b, c):
        return ptx.mma_m16n8k32(self.config.dtype, a, b, c, self.scales)

    # --- accumulators ---

    def new_output(self):
        """O^T in registers: [m16 of head_dim, n8 of queries, 4] fp32, zero. Queries n8 r are the rows r of S."""
        output = cute.make_rmem_tensor((self.out_blocks, self.rows, 4), Float32)
        output.fill(0.0)
        return output

    def scale_row(self, output, row: int, factor):
        factors = self.of_queries(factor)
        for block in range(self.out_blocks):
            for i in range(4):
                output[block, row, i] = output[block, row, i] * factors[i % 2]

    def of_queries(self, factor):
        """`factor` is of row g of S in lane 4g + t; here it is needed for the queries 2t and 2t+1."""
        lane = cute.arch.lane_idx()
        return [ptx.shuffle(factor, source) for source in self.lanes_of_queries(lane)]

    def output_groups(self):
        """The (m16, n8) of all groups of four values of the output."""
        return [(block, row) for block in range(self.out_blocks) for row in range(self.rows)]

    def group_factors(self, of_rows):
        """For each of these groups the factors of its four values, from one per row of S."""
        moved = [self.of_queries(factor) for factor in of_rows]
        return [[moved[row][i % 2] for i in range(4)] for _, row in self.output_groups()]

    def lanes_of_queries(self, lane):
        """Lanes that have the queries 2t and 2t+1 as their row of S."""
        first = (lane & 3) << 3
        return first, first + 4

    def row_words(self, output, row: int, factor):
        """A thread's part of one row of O, times factor: two values of each n8 column, as one or two registers."""
        self.scale_row(output, row, factor)
        words = []
        for block in range(self.out_blocks):
            values = self.in_order([output[block, row, i] for i in range(4)])
            words += [self.transposed(values[0], values[1]), self.transposed(values[2], values[3])]
        return words

    def in_order(self, values):
        """The four values of a lane, of columns g, g, g+8, g+8 and queries 2t, 2t+1, 2t, 2t+1."""
        return values

    def transposed(self, left, right):
        """From column g, queries 2t and 2t+1 to query g, columns 2t and 2t+1."""
        dtype = self.config.out_dtype
        if dtype != "fp32":
            return ptx.transpose_8x8(ptx.pack(dtype, left, right))
        left, right = ptx.bits(left), ptx.bits(right)
        low, high = (ptx.transpose_8x8(ptx.permute_bytes(left, right, digits)) for digits in (0x5410, 0x7632))
        return [ptx.permute_bytes(low, high, digits) for digits in (0x5410, 0x7632)]

    # --- addresses ---

    def key_offsets(self, lane):
        """Offset of a lane's first key within its eight, for even and for odd n8 columns."""
        t = lane & 3
        return 2 * t, 2 * (t ^ 2)

    def lane_offsets(self, lane):
        """Byte offsets that a lane adds for Q, for K (steps of a panel), and for V (16-byte chunks of a panel)."""
        steps, bytes_ = range(self.panel_steps), self.config.panel_bytes
        q_row, k_row, v_row = lane & 15, self.k_row(lane), self.v_row(lane)
        q_chunk, k_chunk = (lane >> 4) ^ self.exchange(lane), ((lane >> 3) & 1) ^ self.exchange(k_row)
        q = [q_row * bytes_ + ((q_chunk ^ (2 * k)) << 4) for k in steps]
        k = [k_row * bytes_ + ((k_chunk ^ (2 * k)) << 4) for k in steps]
        v = [v_row * bytes_ + ((self.exchange(v_row) ^ c) << 4) for c in range(min(self.chunks, self.out_blocks))]
        return tuple([ptx.kept(x, lane) for x in offsets] for offsets in (q, k, v))

    def exchange(self, row):
        """What TMA's swizzle combines a row's chunks with."""
        return row & 7 if self.config.panel_bytes == PANEL_BYTES else (row >> 1) & 3

    def k_row(self, lane):
        """Row of K that a lane gives to ldmatrix: lanes 0 to 15 for an even n8 column, 16 to 31 for the odd one."""
        odd = lane >> 4
        return ((lane & 7) ^ (odd << 2)) + (odd << 3)

    def v_row(self, lane):
        """Row of V that a lane gives: that of k = lane."""
        odd = (lane >> 1) & 1
        within = (((lane >> 2) & 3) << 1) | (lane & 1)
        return ((lane >> 4) << 4) + (odd << 3) + (within ^ (odd << 2))

    # --- O += P V ---

    def p_operand(self, probabilities, step: int):
        """B operands of 32 keys, for the two n8 columns of queries of a block, from four n8 columns of S."""
        operands = []
        for r in range(2):
            own = [[column[2 * r], column[2 * r + 1]] for column in probabilities]
            operands.append([ptx.pack_bytes(self.config.dtype, own[i] + own[i + 1]) for i in (0, 2)])
        return operands

    def load_v(self, address, offset: int):
        """A operand: 16 columns of head_dim and 32 keys of V^T."""
        return ptx.ldmatrix_bytes(address, offset)

    def add_values(self, output, p, v_base, v_offsets, step: int):
        """O^T += V^T P^T for one step of 32 keys. p: B operands, per block and n8 column of queries."""
        for block in range(self.out_blocks):
            panel, within = divmod(block, self.chunks)
            start = (panel * self.config.tile_n + step * KEYS) * self.config.panel_bytes
            v = self.load_v(v_base + v_offsets[within], start)
            for row in range(self.rows):
                c = [output[block, row, i] for i in range(4)]
                d = self.mma(v, p[row // 2][row % 2], c)
                for i in range(4):
                    output[block, row, i] = d[i]


class Mma8StandIn(Mma8):
    """For sm_90a: what ldmatrix of bytes does, done by single loads from the same lane addresses; the plain MMA.

    Slow, and never timed: it lets every lane address be executed on a GPU that has not the instruction.
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
    """For every target: ldmatrix of 16-bit pairs, transposed, and byte permutes; the plain MMA.

    A pair is two columns of head_dim, so that rows g and g+8 of the A operand are columns 2g and 2g+1 of V, and the
    accumulators are brought in order in the epilogue.
    """

    def v_row(self, lane):
        """Row of V that a lane gives: matrix i has the keys 8i to 8i+7, the odd ones turned by four rows."""
        return (lane & 24) + ((lane & 7) ^ ((lane & 8) >> 1))

    def load_v(self, address, offset: int):
        pairs = ptx.ldmatrix(address, offset, transpose=True)
        return [ptx.permute_bytes(*pairs[i : i + 2], digits) for i in (0, 2) for digits in (0x6420, 0x7531)]

    def in_order(self, values):
        """Column g is in lane group g / 2, as its first column if g is even; column g+8 four groups on."""
        lane = cute.arch.lane_idx()
        odd = ((lane >> 2) & 1) != 0
        ordered = [None] * 4
        for half in range(2):
            source = (16 * half + ((lane >> 3) << 2)) + (lane & 3)
            for query in range(2):
                even_column, odd_column = (ptx.shuffle(values[2 * i + query], source) for i in range(2))
                ordered[2 * half + query] = ptx.select(odd, odd_column, even_column)
        return ordered
