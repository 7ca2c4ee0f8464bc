"""The MMA policies for 16-bit queries over block-scaled caches: NVFP4 and MXFP8. The scales of a tile follow the tile.

NVFP4 (e2m1, an e4m3 scale for 16 columns): the product of a value and its scale has six bits, so FP16 represents it.
The conversion without `cvt` gives 2^-14 of the product, which FP16 represents, too. With 16 rows and head_dim 128, the
loop over tiles of 32 keys in a paged cache has 866 instructions for sm_90a. For sm_120a it has 853 with the same
conversion and 714 with `cvt`, so sm_120a uses `cvt` (ptxas 13.4.59). A 16-bit element of ldmatrix holds four values. Of
each 32 columns of head_dim:

    K   lane 4g + t gets columns 8t to 8t + 7 of key g, which share a scale.
    V   lane 4g + t gets columns 4g to 4g + 3 of keys 2t and 2t + 1. Each column goes to another n8 column of O. So lane
        4g + t has columns 8t to 8t + 7 of O.

Values i and i + 4 of a word of V become one register: the two keys of an n8 column of O. Without `cvt` K is converted
in the same way. This changes the order of head_dim's columns; S does not depend on it, but Q must have the same order.
Rows of fewer than 128 bytes share a row of a panel: chunk c of key 8n + r is chunk n * row_chunks + c of panel row r.

MXFP8 (e4m3, an e8m0 scale for 32 columns): the scale is a power of two that may be outside of FP16's range. So the part
of S from 32 columns is multiplied by it in fp32. V is converted to BF16, times 2^-60, and P is BF16, too.
"""

import operator

import cutlass.cute as cute
from cutlass import Float32

from ..config import PANEL_BYTES
from . import inline_ptx as ptx
from .mma_fp8_cache import MmaFp8Cache

FIRST_OF_PAIRS, SECOND_OF_PAIRS = 0x5410, 0x7632  # selectors of prmt: lower, upper halves of two registers
EVEN_BYTES = 0x2404  # selector of prmt with a zero register: bytes 0 and 2 become the upper bytes of the halves
ODD_BYTES = 0xFF00FF00 - (1 << 32)
MXFP8_SHIFT = 0x1E001E00  # added to two BF16 scales it multiplies them by 2^60; in_bf16 multiplies values by 2^-120
BF16_INFINITY = 0x7F807F80


class MmaScaledCache(MmaFp8Cache):
    """Base class for both formats: load the scales of a lane's keys into registers."""

    def scale_words(self, base, first_key: int, rows: int):
        """Load the scales of `rows` neighbouring keys: a list of registers for each key. base: see scale_offsets."""
        each = self.config.scale_bytes // 4
        words = ptx.load_shared_words(base, self.config.data_bytes + first_key * 4 * each, rows * each)
        return [words[row * each : (row + 1) * each] for row in range(rows)]

    def scale_offsets(self, lane):
        """Compute the byte offsets, in a group of 8 keys, of the scales of key g, and of keys 2t and 2t + 1."""
        return (lane >> 2) * self.config.scale_bytes, (lane & 3) * (2 * self.config.scale_bytes)


class MmaNvfp4Cache(MmaScaledCache):
    """The policy for NVFP4 caches."""

    q_lane_bytes, q_steps = 16, 2
    o_lane_bytes = 32

    def lane_offsets(self, lane):
        """Return None for Q, and for K and for V byte offsets of chunks 0-3, chunks 4-7 and scales, and a selector."""
        row, matrix = lane & 7, lane >> 3
        first = row * PANEL_BYTES + ((matrix ^ row) << 4)
        chunks = [ptx.kept(x, lane) for x in (first, first ^ 64)]
        of_keys, of_pairs = self.scale_offsets(lane)
        # The selectors pick the lane's scales. K: bytes 0, 2, 4, 6 or bytes 1, 3, 5, 7 of a key. V: bytes 0 and 2, or 1
        # and 3, of two keys a and b, in the order a, b, a, b.
        k_selector = 0x6420 + ((lane >> 1) & 1) * 0x1111
        v_selector = 0x6240 + (lane >> 4) * 0x1111
        return None, (*chunks, of_keys, k_selector), (*chunks, of_pairs, v_selector)

    def q_pairs(self, words):
        """Split four registers of a row of Q into the operands of two steps, in the order of K's columns."""
        if self.config.has_cvt_e2m1:
            return [words[:2], words[2:]]
        first, second, third, last = words
        low, high = (
            [ptx.permute_bytes(a, b, halves) for halves in (FIRST_OF_PAIRS, SECOND_OF_PAIRS)]
            for a, b in ((first, third), (second, last))
        )
        return [low, high]

    def chunks_of(self, base, offsets, transpose: bool):
        """Return a function that maps a group of 8 keys and a chunk to a register. It loads four chunks at once."""
        loaded = {}

        def word(keys: int, chunk: int):
            number, within = divmod(keys * self.config.row_chunks + chunk, 4)
            if number not in loaded:
                start = number // 2 * 8 * PANEL_BYTES
                loaded[number] = ptx.ldmatrix(base + offsets[number % 2], start, transpose=transpose)
            return loaded[number][within]

        return word

    def k_values(self, word):
        """Convert eight values of K to four registers, two for each step."""
        return ptx.cvt_e2m1(word) if self.config.has_cvt_e2m1 else ptx.widen_e2m1(word)

    def v_values(self, word):
        """Convert four values of each of two keys of V to four registers. Each has both keys of one n8 column of O."""
        if not self.config.has_cvt_e2m1:
            return ptx.widen_e2m1(word)
        even, odd = (ptx.cvt_e2m1(pairs, 2) for pairs in ptx.pair_halves(word))
        return [even[0], odd[0], even[1], odd[1]]

    def add_scores(self, scores, q_of, k_base, k_offsets):
        """Add Q K^T, divided by the config's k_factor, to scores."""
        word = self.chunks_of(k_base, k_offsets, transpose=False)
        scales = [self.scales_of_keys(k_base + k_offsets[2], k_offsets[3], n) for n in range(self.columns)]
        for chunk in range(self.config.k_steps // 2):
            q = [q_of(step) for step in (2 * chunk, 2 * chunk + 1)]
            for first in range(0, self.columns, self.key_columns):
                keys = []
                for n in range(first, first + self.key_columns):
                    scale = ptx.twice(scales[n][chunk // 2], chunk % 2)
                    keys.append([ptx.multiply("fp16", x, scale) for x in self.k_values(word(n, chunk))])
                for i in range(2):
                    self.add_keys(scores, q[i], [k[2 * i : 2 * i + 2] for k in keys], first)

    def scales_of_keys(self, base, selector, n: int):
        """Load the scales of the lane's columns for key g of n8 column n: one register for two chunks."""
        (words,) = self.scale_words(base, 8 * n, 1)
        pairs = [(words[i], words[min(i + 1, len(words) - 1)]) for i in range(0, len(words), 2)]
        return [half for pair in pairs for half in ptx.widen_e4m3(ptx.permute_bytes(*pair, selector))]

    def add_values(self, acc_o, p, v_base, v_offsets, step: int):
        """Add P V, divided by v_factor, to O for one step of 16 keys. p: the A operand of each block."""
        word = self.chunks_of(v_base, v_offsets, transpose=True)
        groups = 2 * step, 2 * step + 1
        scales = [self.scales_of_pairs(v_base + v_offsets[2], v_offsets[3], keys) for keys in groups]
        for chunk in range(self.config.k_steps // 2):
            v = [
                [ptx.multiply("fp16", x, of[chunk]) for x in self.v_values(word(keys, chunk))]
                for keys, of in zip(groups, scales, strict=True)
            ]
            self.add_columns(acc_o, p, [[v[0][i], v[1][i]] for i in range(4)], 4 * chunk)

    def scales_of_pairs(self, base, selector, keys: int):
        """Load the scales of the lane's columns for keys 2t and 2t + 1 of group `keys`: one register per chunk."""
        first, second = self.scale_words(base, 8 * keys, 2)
        return [
            half
            for a, b in zip(first, second, strict=True)
            for half in ptx.widen_e4m3(ptx.permute_bytes(a, b, selector))
        ]

    def row_parts(self, acc_o, row: int):
        """List a thread's parts of a float32 row of O: (byte offset from the lane's first column, values)."""
        block, values = self.row_of(row)
        return [
            (128 * chunk + 16 * half, [acc_o[block, 4 * chunk + n, i] for n in range(4)])
            for chunk in range(self.config.k_steps // 2)
            for half, i in enumerate(values)
        ]


class MmaNvfp4CacheColumns(MmaNvfp4Cache):
    """The policy for NVFP4 caches and up to 8 rows: S^T = K Q^T and O^T = V^T P^T.

    Queries are the columns of an MMA; keys of K, or columns of V, are its rows. The B operands that MmaNvfp4Cache makes
    for two n8 columns form one A operand without moves. So there are half as many MMAs, scores and values of O. In an
    n8 column of S lane 4g + t has key g for queries 2t and 2t + 1; P is transposed for the next MMA. Of each 32 columns
    of O this lane has columns 4g to 4g + 3.
    """

    key_columns = 2
    o_lane_bytes = 16

    def __init__(self, config):
        super().__init__(config)
        self.blocks, self.rows = 1, 2

    def row_of(self, row: int):
        return 0, (row,)

    def row_numbers(self, first, lane):
        return [first + (lane & 3) * 2 + r for r in range(self.rows)]

    def q_row_numbers(self, first, lane):
        return [first + (lane >> 2)]

    def key_offsets(self, lane):
        return (lane >> 2,)

    def key_of(self, value: int) -> int:
        return 0

    def row_of_lane(self, lane):
        return lane >> 2

    def row_max(self, x):
        return ptx.over_quads(cute.arch.fmax, x)

    def row_sum(self, x):
        return ptx.over_quads(operator.add, x)

    def new_output(self):
        """Make O in registers: [1, n8, 2] fp32, zero."""
        acc_o = cute.make_rmem_tensor((1, self.out_columns, 2), Float32)
        acc_o.fill(0.0)
        return acc_o

    def add_keys(self, scores, q, keys, n: int):
        before = None if scores[0][n] is None else scores[0][n] + scores[0][n + 1]
        made = self.mma(rows_of(keys), q[0], before)
        scores[0][n : n + 2] = made[:2], made[2:]

    def add_columns(self, acc_o, p, values, n: int):
        for i in range(0, len(values), 2):
            places = [(0, n + i + k // 2, k % 2) for k in range(4)]
            made = ptx.mma_m16n8k16(self.p_dtype, rows_of(values[i : i + 2]), p[0], [acc_o[at] for at in places])
            for at, value in zip(places, made, strict=True):
                acc_o[at] = value

    def p_operand(self, probs, step: int):
        return [ptx.transpose_8x8(ptx.pack(self.p_dtype, *two)) for two in probs]

    def row_parts(self, acc_o, row: int):
        return [
            (128 * chunk, [acc_o[0, 4 * chunk + n, row] for n in range(4)]) for chunk in range(self.config.k_steps // 2)
        ]


def rows_of(columns):
    """Join the B operands of two n8 columns to one A operand of 16 rows."""
    (a, b), (c, d) = columns
    return [a, c, b, d]


class MmaMxfp8Cache(MmaScaledCache):
    """The policy for MXFP8 caches."""

    p_dtype = "bf16"

    def lane_offsets(self, lane):
        q, k, v = super().lane_offsets(lane)
        pairs = self.scale_offsets(lane)[1]
        return q, (*k, pairs), (*v, pairs)

    def add_scores(self, scores, q_of, k_base, k_offsets):
        """Add Q K^T to scores. One ldmatrix loads the columns of one scale."""
        scales = [self.scale_words(k_base + k_offsets[-1], 8 * n, 2) for n in range(self.columns)]
        for pair in range(self.config.k_steps // 2):
            panel, within = divmod(pair, self.panel_steps)
            q = [q_of(step) for step in (2 * pair, 2 * pair + 1)]
            for column in range(self.columns // 2):
                for half, words in enumerate(self.load_k(k_base + k_offsets[within], panel, column)):
                    n = 2 * column + half
                    k = [ptx.widen_e4m3(word) for word in words]
                    factors = [ptx.from_bits(self.exponent(key, pair) << 23) for key in scales[n]]
                    for block in range(self.blocks):
                        made = self.mma(q[1][block], k[1], self.mma(q[0][block], k[0], None))
                        before = scores[block][n]
                        scores[block][n] = [
                            x * factors[i % 2] if before is None else ptx.fma(x, factors[i % 2], before[i])
                            for i, x in enumerate(made)
                        ]

    def exponent(self, words, block: int):
        """Extract the e8m0 scale of block number `block` of 32 columns."""
        return (words[block // 4] >> (8 * (block % 4))) & 0xFF

    def add_values(self, acc_o, p, v_base, v_offsets, step: int):
        """Add P V, divided by v_factor, to O for one step of 16 keys. p: the A operand of each block."""
        scales = [self.scale_words(v_base + v_offsets[-1], 16 * step + 8 * half, 2) for half in range(2)]
        for pair in range(self.config.k_steps // 2):
            panel, within = divmod(pair, self.panel_steps)
            start = panel * self.config.tile_n * PANEL_BYTES + step * self.step_bytes
            words = ptx.ldmatrix(v_base + v_offsets[within], start, transpose=True)
            factors = [self.scale_of_pair(keys, pair) for keys in scales]
            for half in range(2):
                made = [
                    [ptx.multiply("bf16", x, factor) for x in in_bf16(word)]
                    for word, factor in zip(words[2 * half : 2 * half + 2], factors, strict=True)
                ]
                for odd in range(2):
                    self.add_column(acc_o, p, [made[0][odd], made[1][odd]], 2 * (2 * pair + half) + odd)

    def scale_of_pair(self, keys, block: int):
        """Compute 2^60 times the scales of two keys for a block of 32 columns, in BF16; infinity on overflow."""
        word, byte = divmod(block, 4)
        upper_bytes = ptx.permute_bytes(keys[0][word], keys[1][word], 0x4000 + byte * 0x1010)
        return ptx.min_halves(((upper_bytes >> 1) & BF16_INFINITY) + MXFP8_SHIFT, BF16_INFINITY)


def in_bf16(word):
    """Convert four e4m3 values, times 2^-120, exactly to two registers of BF16: the even and the odd bytes."""
    return [
        ptx.choose_bits(x, (x >> 4) & 0x07F007F0, 0x80008000)
        for x in (ptx.permute_bytes(word, 0, EVEN_BYTES), word & ODD_BYTES)
    ]
