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
from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.emulate.machine import Geometry, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.numbers import decode, encode  # noqa: E402
from tritonhook.emulate.ptx.decode import decode as decode_ptx  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.sass.decode import decode as decode_sass  # noqa: E402
from tritonhook.emulate.sass.kernel import read_sass_kernel  # noqa: E402
from tritonhook.emulate.tma import TensorMap, register  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import reading_toolchain  # noqa: E402

HEADS, HEADS_KV, QUERIES, KEYS, DIM = 3, 1, 100, 150, 64
NO_BOUND = 1 << 30


def divisor(value: int) -> bytes:
    """A divisor as the DSL's host code prepares it: itself, a factor of 2^32, two shifts (Granlund and Montgomery)."""
    bits = (value - 1).bit_length()
    factor = (2**32 * (2**bits - value) // value + 1) % 2**32
    return struct.pack("<iIBB2x", value, factor, min(bits, 1), max(bits - 1, 0))


class Call:
    """One call of an attention kernel, in the memory of one run: tensors, descriptors, and the kernel's parameters."""

    def __init__(self, config: Config, tensors, memory: Memory, offsets):
        self.config, self.memory, self.offsets = config, memory, offsets
        self.element = 1 if config.fp8 else 2
        kind = np.uint8 if config.fp8 else np.uint16
        places = [memory.allocate(encode(one, config.dtype).astype(kind).tobytes()) for one in tensors]
        self.o = memory.allocate(2 * QUERIES * HEADS * DIM)
        self.tiles = -(-QUERIES // config.tile_m)
        self.parameters = bytearray(offsets[-1])
        columns = min(DIM, 128 // self.element)
        q, k, v = places
        rows = config.rows_per_warp, config.tile_n, config.tile_n
        for number, (place, count, heads, box) in enumerate(
            zip((q, k, v), (QUERIES, KEYS, KEYS), (HEADS, HEADS_KV, HEADS_KV), rows, strict=True)
        ):
            self.put(2 * number, self.descriptor(place.address, count, heads, (columns, box, 1, 1)))
        strides = QUERIES * HEADS * DIM, HEADS * DIM, DIM
        self.put(6, struct.pack("<Q4i3q", self.o.address, 1, QUERIES, HEADS, DIM, *strides))
        total = self.tiles * HEADS
        group = 2  # the last group has one
        numbers = [HEADS, HEADS_KV, self.tiles, group, total, QUERIES, KEYS]
        first = 7 + 3 * config.fp8
        for number in range(3 if config.fp8 else 0):
            heads = HEADS if number == 0 else HEADS_KV
            ones = memory.allocate(np.ones(heads, np.float32).tobytes())
            self.put(7 + number, struct.pack("<Q2i2q", ones.address, 1, heads, heads, 1))
        for number, value in enumerate(numbers):
            self.put(first + number, struct.pack("<i", value))
        for number, value in enumerate((group * self.tiles, group, 1, HEADS, HEADS // HEADS_KV)):
            self.put(first + 7 + 2 * number, divisor(value))
            self.put(first + 8 + 2 * number, struct.pack("<i", value))
        first += 10
        scale = math.log2(math.e) / math.sqrt(DIM)
        for number, word in enumerate(struct.unpack("<4i", struct.pack("<2f2i", scale, 0, NO_BOUND, NO_BOUND))):
            self.put(first + 7 + number, struct.pack("<i", word))
        self.geometry = Geometry((total, 1, 1), (config.threads, 1, 1), tuple(range(total)))

    def put(self, number: int, data: bytes) -> None:
        at = self.offsets[number]
        self.parameters[at : at + len(data)] = data

    def descriptor(self, address: int, rows: int, heads: int, box) -> bytes:
        size = self.element
        strides = size, heads * DIM * size, DIM * size, rows * heads * DIM * size
        return register(
            self.memory, TensorMap(address, size, (DIM, rows, heads, 1), strides, box, min(128, DIM * size))
        )

    def stored(self):
        return np.frombuffer(self.memory.contents(self.o), np.uint16).reshape(QUERIES, HEADS, DIM)


def of_ptx(config, kernel, tensors):
    offsets = [offset for _, offset in kernel.parameters.variables]
    memory = Memory(kernel.shared.size + (96 << 10), kernel.local.size)
    call = Call(config, tensors, memory, [*offsets, kernel.parameters.size])
    parameters = memory.allocate(bytes(call.parameters))
    variables = {one.name: memory.allocate(one.contents) for one in kernel.module}
    machine = Machine(call.geometry, memory)
    machine.run(decode_ptx(kernel, machine, parameters, variables, 96 << 10)[0])
    return call.stored()


def of_code(config, kernel, offsets, tensors):
    memory = Memory(kernel.shared + (96 << 10), kernel.stack)
    call = Call(config, tensors, memory, offsets)
    parameters = bytes(call.parameters)
    address = memory.allocate(parameters).address
    machine = Machine(call.geometry, memory)
    machine.run(decode_sass(kernel, machine, kernel.constants(machine.geometry, parameters, address))[0])
    return call.stored()


@pytest.mark.parametrize(("dtype", "most"), [("bf16", 4e-3), ("e4m3", 4e-2)])
def test_forward_is_what_float64_says(dtype, most):
    """The first of these has split keys; the second one the instructions that only sm_12x has: block-scaled products of
    fp8, and ldmatrix of transposed bytes."""
    out = {} if dtype == "bf16" else {"out_dtype": "bf16"}
    config = plan(Shape("sm_120a", dtype, DIM, 1, HEADS, HEADS_KV, QUERIES, KEYS, **out)).config
    made = compile_offline(config)
    kernel = read_kernel(Ptx(made.ptx))
    draw = np.random.default_rng(0)
    shapes = (QUERIES, HEADS, DIM), (KEYS, HEADS_KV, DIM), (KEYS, HEADS_KV, DIM)
    tensors = [decode(encode(draw.standard_normal(shape), dtype), dtype) for shape in shapes]

    stored = of_ptx(config, kernel, tensors)

    q, k, v = tensors
    scores = np.einsum("qhd,kd->hqk", q, k[:, 0]) / math.sqrt(DIM)
    powers = np.exp(scores - scores.max(2, keepdims=True))
    wanted = np.einsum("hqk,kd->qhd", powers / powers.sum(2, keepdims=True), v[:, 0])
    assert np.abs(decode(stored, "bf16") - wanted).max() < most

    cubin = Cubin.from_bytes(made.cubin if isinstance(made.cubin, bytes) else made.cubin.data)
    (name,) = cubin.kernels
    code = read_sass_kernel(cubin, reading_toolchain().disassemble(cubin, [name])[name])
    offsets = [*(offset for _, offset in kernel.parameters.variables), kernel.parameters.size]
    assert (of_code(config, code, offsets, tensors) == stored).all()
