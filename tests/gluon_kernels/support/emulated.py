"""Launches of the compiled Blackwell attention with arrays, for the emulator."""

from __future__ import annotations

import numpy as np

from tritonhook.capture.launches.record import Buffer, Descriptor, Launch, Pointer, Scalar, Scratch, Tiling
from tritonhook.emulate.numbers import decode, encode

FORMATS = {"fp8e5": "e5m2", "fp8e4nv": "e4m3", "fp16": "f16", "bf16": "bf16"}
SIZES = {"e5m2": 1, "e4m3": 1, "f16": 2, "bf16": 2}
_ELEMENTS = {1: 0, 2: 1}  # CUtensorMapDataType of unsigned numbers, by bytes


def codes(values, dtype):
    """What tensors of a dtype hold."""
    kind = FORMATS[dtype]
    return encode(values, kind).astype(f"u{SIZES[kind]}")


class Problem:
    """One head of attention of random numbers. q, k, v: float64, as the kernel's dtype has them."""

    def __init__(self, config, queries: int, keys: int, seed: int = 0) -> None:
        self.config, self.queries, self.keys = config, queries, keys
        draw = np.random.default_rng(seed)
        shapes = [(rows, config.head_dim) for rows in (queries, keys, keys)]
        self.inputs = [codes(draw.standard_normal(shape), config.dtype) for shape in shapes]
        self.q, self.k, self.v = (decode(one, FORMATS[config.dtype]) for one in self.inputs)

    def launch(self, kernel) -> tuple[Launch, list[bytes]]:
        """Make a launch of one CTA, and the contents of its buffers: q, k, v, o, lse. kernel: as Triton compiles it."""
        config = self.config
        out = np.zeros((self.queries, config.head_dim), f"u{SIZES[FORMATS[config.out_dtype]]}")
        arrays = [*self.inputs, out, np.zeros(self.queries, np.float32)]
        numbers = [1, 1, 1, self.queries, self.keys, self.keys - self.queries]
        parameters = [Scalar("scale", "fp32", config.head_dim**-0.5), Pointer("lse", 4)]
        parameters += [Scalar(str(number), "i32", value) for number, value in enumerate(numbers)]
        for number, about in enumerate(kernel.metadata.tensordesc_meta):
            parameters += self._descriptor(number, arrays[number], about)
        parameters += [Scratch(), Scratch()]
        buffers = tuple(Buffer(one.nbytes, str(one.dtype)) for one in arrays)
        threads, shared = 32 * kernel.metadata.num_warps, kernel.metadata.shared
        launch = Launch(config.name, (1, 1, 1), (threads, 1, 1), tuple(parameters), buffers, shared=shared)
        return launch, [one.tobytes() for one in arrays]

    def _descriptor(self, number, array, about):
        rows, columns = array.shape
        size = array.itemsize
        strides = [rows * columns, rows * columns, columns]
        tiling = Tiling(
            _ELEMENTS[size],
            (columns, rows, 1, 1),
            tuple(size * stride for stride in reversed(strides)),
            tuple(reversed(about["block_size"])),
            (1, 1, 1, 1),
            swizzle=about["swizzle"],
        )
        shape = [Scalar("shape", "i32", extent) for extent in (1, 1, rows, columns)]
        return [
            Descriptor(f"x{number}", number, 0, tiling),
            *shape,
            *(Scalar("stride", "i64", s) for s in (*strides, 1)),
        ]

    @property
    def scores(self):
        """Scaled, float64; -inf where a query does not see a key."""
        scores = self.q @ self.k.T * self.config.head_dim**-0.5
        if self.config.causal:
            hidden = np.arange(self.keys)[None] > np.arange(self.queries)[:, None] + self.keys - self.queries
            scores[hidden] = -np.inf
        return scores

    @property
    def powers(self):
        """exp(scores - their row's largest)."""
        return np.exp(self.scores - self.scores.max(1, keepdims=True))

    def error(self, o) -> float:
        """How far O is from float64 in the worst row, relative to that row's largest value; NaN if O has one."""
        exact = self.powers / self.powers.sum(1, keepdims=True) @ self.v
        return float((np.abs(o - exact).max(1) / np.abs(exact).max(1)).max())

    @property
    def error_of_low_precision(self) -> float:
        """That of an attention whose probabilities and O are rounded, and nothing else."""
        times = 2.0**self.config.exp_bits
        rounded = decode(codes(self.powers * times, self.config.dtype), FORMATS[self.config.dtype]) / times
        o = rounded @ self.v / self.powers.sum(1, keepdims=True)
        return self.error(decode(codes(o, self.config.out_dtype), FORMATS[self.config.out_dtype]))

    def errors(self, contents) -> tuple[float, float]:
        """Return the error of O (see `error`) and the largest error of lse."""
        out = FORMATS[self.config.out_dtype]
        found = decode(np.frombuffer(contents[3], f"u{SIZES[out]}").reshape(self.q.shape), out)
        lse = self.scores.max(1) + np.log(self.powers.sum(1))
        return self.error(found), float(np.abs(np.frombuffer(contents[4], np.float32) - lse).max())
