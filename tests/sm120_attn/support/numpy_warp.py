"""The instructions of one warp in numpy: they do to 32 lanes at once what PTX says, on real bytes.

Registers are arrays of 32 uint32. Shared memory is an array of bytes with TMA's swizzle.
"""

import numpy as np

from sm120_attn.kernels import inline_ptx

LANE = np.arange(32)
G, T = LANE // 4, LANE % 4


def e4m3(code: int) -> float:
    """The value of an e4m3 byte: sign, 4 bits of exponent (bias 7), 3 of mantissa; all ones is NaN."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    value = (8 + mantissa) / 8 * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -value if code & 128 else value


DECODE = np.array([e4m3(code) for code in range(256)])


def encode(values):
    """The nearest e4m3 byte; values that are too large become 448."""
    positive = DECODE[:127]
    right = np.clip(np.searchsorted(positive, np.abs(values)), 1, 126)
    nearest = np.where(np.abs(values) - positive[right - 1] < positive[right] - np.abs(values), right - 1, right)
    return (nearest + 128 * (np.asarray(values) < 0)).astype(np.uint8)


def bytes_of(register):
    return np.ascontiguousarray(register, dtype=np.uint32).view(np.uint8).reshape(32, 4)


def register_of(four_bytes):
    return np.ascontiguousarray(four_bytes, dtype=np.uint8).view(np.uint32).reshape(32)


class Instructions:
    """The functions of inline_ptx.py that the FP8 policies use, for all 32 lanes at once."""

    def __init__(self):
        self.memory = np.full(1 << 16, 0x7F, np.uint8)  # NaN: bytes that were not written must not be read

    def write_tile(self, base: int, tile, fill: int = 0):
        """Write rows of bytes as TMA does: in panels of 128 bytes, or of 64 where that is enough.

        TMA's swizzle combines bits 4 to 6 of an address with bits 7 to 9, or bits 4 and 5 with 7 and 8.
        """
        rows, columns = tile.shape
        wide, exchanged = (128, 7) if columns > 64 else (64, 3)
        for panel in range(-(-columns // wide)):
            for r in range(rows):
                line = np.full(wide, fill, np.uint8)
                line[: min(wide, columns - wide * panel)] = tile[r, wide * panel : wide * panel + wide]
                for chunk in range(0, wide, 16):
                    at = (panel * rows + r) * wide + chunk
                    at = base + (at ^ ((at >> 7 & exchanged) << 4))
                    self.memory[at : at + 16] = line[chunk : chunk + 16]

    def rows_at(self, addresses, offset: int):
        """The 16 bytes that each lane points at."""
        assert not ((addresses + offset) % 16).any()
        return self.memory[(addresses + offset)[:, None] + np.arange(16)]

    def ldmatrix(self, address, offset: int, transpose: bool = False):
        pairs = self.rows_at(address, offset).reshape(4, 8, 8, 2)  # matrix, row, column, byte
        if transpose:
            pairs = pairs.transpose(0, 2, 1, 3)
        return [register_of(m.reshape(8, 4, 4).reshape(32, 4)) for m in pairs]

    def ldmatrix_bytes(self, address, offset: int):
        matrices = self.rows_at(address, offset).reshape(2, 16, 16)
        rows = 4 * T[:, None] + np.arange(4)
        return [register_of(m[rows, G[:, None] + shift]) for m in matrices for shift in (0, 8)]

    def store_shared(self, address, offset: int, values):
        words = np.stack([np.asarray(x, np.float32) for x in values], -1).view(np.uint8)
        self.memory[(address + offset)[:, None] + np.arange(words.shape[-1])] = words

    def load_shared(self, address, offset: int, count: int):
        words = np.ascontiguousarray(self.memory[(address + offset)[:, None] + np.arange(4 * count)])
        return list(words.view(np.float32).astype(np.float64).T)

    def load_byte(self, address, offset: int):
        return self.memory[address + offset].astype(np.int64)

    UNIT_SCALES = inline_ptx.UNIT_SCALES

    def mma_m16n8k32(self, dtype, a, b, c, scales):
        assert dtype == "e4m3"
        left, right, sums = np.zeros((16, 32)), np.zeros((32, 8)), np.zeros((16, 8))
        for number, register in enumerate(a):
            values = DECODE[bytes_of(register)]
            for i in range(4):
                left[G + 8 * (number % 2), 16 * (number // 2) + 4 * T + i] = values[:, i]
        for number, register in enumerate(b):
            values = DECODE[bytes_of(register)]
            for i in range(4):
                right[16 * number + 4 * T + i, G] = values[:, i]
        for i in range(4 if c is not None else 0):
            sums[G + 8 * (i // 2), 2 * T + i % 2] = c[i]
        scale = 1.0 if scales is None else 2.0 ** (2 * ((scales & 255) - 127))
        d = left @ right * scale + sums
        return [d[G + 8 * (i // 2), 2 * T + i % 2] for i in range(4)]

    def pack(self, dtype, low, high):
        return np.stack([low, high], -1)  # a pair of 16-bit values, not rounded

    def pack_bytes(self, dtype, values):
        return register_of(np.stack([encode(v) for v in values], -1))

    def permute_bytes(self, low, high, selector):
        both = np.concatenate([bytes_of(low), bytes_of(high)], -1)
        return register_of(both[:, [selector >> 4 * i & 7 for i in range(4)]])

    def transpose_8x8(self, word):
        halves = word if word.ndim == 2 else bytes_of(word).view(np.uint16).reshape(32, 2)
        turned = np.ascontiguousarray(halves.reshape(8, 8).T).reshape(32, 2)
        return turned if word.ndim == 2 else register_of(turned.view(np.uint8).reshape(32, 4))

    def bits(self, x):
        return np.asarray(x, np.float32).view(np.int32)

    def from_bits(self, x):
        return np.ascontiguousarray(x, dtype=np.uint32).view(np.float32)

    def shuffle(self, x, lane):
        return x[np.broadcast_to(lane, 32)]

    def kept(self, x, lane):
        return x

    def select(self, condition, if_true, if_false):
        return np.where(condition, if_true, if_false)

    # --- of the softmax ---

    def fma(self, a, b, c):
        return a * b + c

    def exp2(self, x):
        return np.exp2(x)

    def log2(self, x):
        with np.errstate(divide="ignore"):
            return np.log2(x)

    def reciprocal(self, x):
        with np.errstate(divide="ignore"):
            return 1 / x

    def quad_max(self, x):
        return np.repeat(x.reshape(8, 4).max(1), 4)

    def quad_sum(self, x):
        return np.repeat(x.reshape(8, 4).sum(1), 4)
