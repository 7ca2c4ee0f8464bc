"""Attention kernels for sm_120a, emulated: their PTX and their machine code against float64, and one against the other.

No sm_12x card has run these kernels for us, so that this is what there is: see docs/explanation/emulation.md.
"""

import math
import struct

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
np = pytest.importorskip("numpy")

from sm120_attn.compile.compiler import compile_offline  # noqa: E402
from sm120_attn.config import Config  # noqa: E402
from sm120_attn.planner import Shape, plan  # noqa: E402
from tests.sm120_attn.support.emulated import Arguments, of_code, of_ptx  # noqa: E402
from tritonhook.emulate.machine import Geometry  # noqa: E402
from tritonhook.emulate.numbers import decode, encode  # noqa: E402
from tritonhook.emulate.tma import TensorMap, register  # noqa: E402

HEADS, HEADS_KV, QUERIES, KEYS, DIM = 3, 1, 100, 150, 64
NO_BOUND = 1 << 30


def divisor(value: int) -> bytes:
    """A divisor as the DSL's host code prepares it: itself, a factor of 2^32, two shifts (Granlund and Montgomery)."""
    bits = (value - 1).bit_length()
    factor = (2**32 * (2**bits - value) // value + 1) % 2**32
    return struct.pack("<iIBB2x", value, factor, min(bits, 1), max(bits - 1, 0))


def place_attention(config: Config, tensors, into: Arguments):
    """Put the arguments of an attention kernel. Returns the grid, and what reads O."""
    element, kind = (1, np.uint8) if config.fp8 else (2, np.uint16)
    tiles, group = -(-QUERIES // config.tile_m), 2  # the last group has one
    total = tiles * HEADS
    rows = config.rows_per_warp, config.tile_n, config.tile_n
    for one, box in zip(tensors, rows, strict=True):
        count, heads, _ = one.shape
        place = into.memory.allocate(encode(one, config.dtype).astype(kind).tobytes())
        strides = element, heads * DIM * element, DIM * element, count * heads * DIM * element
        columns = min(DIM, 128 // element), box, 1, 1
        extents = DIM, count, heads, 1
        tiling = TensorMap(place.address, element, extents, strides, columns, min(128, DIM * element))
        into.put(register(into.memory, tiling))
        into.number += 1  # what follows a descriptor is not read
    o = into.memory.allocate(2 * QUERIES * HEADS * DIM)
    into.put(struct.pack("<Q4i3q", o.address, 1, QUERIES, HEADS, DIM, QUERIES * HEADS * DIM, HEADS * DIM, DIM))
    for heads in (HEADS, HEADS_KV, HEADS_KV) if config.fp8 else ():
        into.descale(np.ones((1, heads), np.float32))
    into.numbers(HEADS, HEADS_KV, tiles, group, total, QUERIES, KEYS)
    for value in (group * tiles, group, 1, HEADS, HEADS // HEADS_KV):
        into.put(divisor(value))
        into.numbers(value)
    into.numbers(math.log2(math.e) / math.sqrt(DIM), 0.0, NO_BOUND, NO_BOUND)
    geometry = Geometry((total, 1, 1), (config.threads, 1, 1), tuple(range(total)))
    return geometry, lambda: [np.frombuffer(into.memory.contents(o), np.uint16).reshape(QUERIES, HEADS, DIM)]


@pytest.mark.parametrize(("dtype", "most"), [("bf16", 4e-3), ("e4m3", 4e-2)])
def test_forward_is_what_float64_says(dtype, most):
    """The first of these has split keys; the second one the instructions that only sm_12x has: block-scaled products of
    fp8, and ldmatrix of transposed bytes."""
    out = {} if dtype == "bf16" else {"out_dtype": "bf16"}
    config = plan(Shape("sm_120a", dtype, DIM, 1, HEADS, HEADS_KV, QUERIES, KEYS, **out)).config
    made = compile_offline(config)
    draw = np.random.default_rng(0)
    shapes = (QUERIES, HEADS, DIM), (KEYS, HEADS_KV, DIM), (KEYS, HEADS_KV, DIM)
    tensors = [decode(encode(draw.standard_normal(shape), dtype), dtype) for shape in shapes]

    def place(into: Arguments):
        return place_attention(config, tensors, into)

    (stored,) = of_ptx(made, place)

    q, k, v = tensors
    scores = np.einsum("qhd,kd->hqk", q, k[:, 0]) / math.sqrt(DIM)
    powers = np.exp(scores - scores.max(2, keepdims=True))
    wanted = np.einsum("hqk,kd->qhd", powers / powers.sum(2, keepdims=True), v[:, 0])
    assert np.abs(decode(stored, "bf16") - wanted).max() < most

    assert (of_code(made, place)[0] == stored).all()
