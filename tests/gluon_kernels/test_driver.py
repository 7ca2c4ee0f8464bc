"""Launches without Triton: are the parameters in memory those of the kernel, and does a call write its addresses?"""

import ctypes
import re
import struct
from types import SimpleNamespace

import pytest

from gluon_kernels import driver
from gluon_kernels.driver import Field, Launch, Unsupported, added_by_triton, fields
from gluon_kernels.hopper.config import default_config
from gluon_kernels.mma.config import default_config as mma_config

TENSORS = ("q", "k", "v", "o", "lse")


class Tensor:
    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


class FakeDriver:
    """libcuda that keeps what was launched and encoded. `sizes`: of the kernel's parameters; `result`: of calls."""

    def __init__(self, sizes=(), result=0):
        self.sizes, self.result, self.launched, self.encoded, self.functions = list(sizes), result, [], [], set()

    def cuFuncGetParamInfo(self, function, index, offset, size):
        self.functions.add(function)
        size._obj.value = self.sizes[index]
        return self.result

    def cuTensorMapEncodeTiled(self, place, *arguments):
        ctypes.memmove(place, bytes(range(128)), 128)
        self.encoded.append([place % 64, *(x if isinstance(x, int) else list(x) for x in arguments)])
        return self.result

    def cuTensorMapReplaceAddress(self, place, address):
        ctypes.memmove(place.value, struct.pack("Q", address), 8)
        return 0

    def cuLaunchKernel(self, function, *arguments):
        self.functions.add(function.value)
        *numbers, stream, parameters, extra = arguments
        assert extra is None
        data = [ctypes.string_at(place, size) for place, size in zip(parameters, self.sizes, strict=True)]
        alignments = [place % 64 for place in parameters]
        self.launched.append(([n.value for n in numbers], stream, data, alignments))
        return self.result


def ptx_sizes(ptx):
    """Bytes of the entry's parameters, in order."""
    entry = re.search(r"\.entry \w+\((.*?)\)", ptx, re.S)[1]
    sizes = {"b8": 1, "u32": 4, "f32": 4, "u64": 8, "b32": 4, "b64": 8}
    found = []
    for line in entry.split(","):
        kind = re.search(r"\.(b8|u32|f32|u64|b32|b64)\b", line)[1]
        length = re.search(r"\[(\d+)\]", line)
        found.append(sizes[kind] * (int(length[1]) if length else 1))
    return found


def arguments_of(signature):
    """A launch's arguments for a signature: each tensor has an address of its own."""
    made = {}
    for i, (name, kind) in enumerate(signature.items()):
        if kind.startswith("tensordesc"):
            made[name] = SimpleNamespace(base=Tensor(i), shape=[1, 2, 3, 4 + i], strides=[9, 8, 7, 1])
        elif kind.startswith("*"):
            made[name] = Tensor(0x1000 * (i + 1))
        elif kind != "constexpr":
            made[name] = float(i) if kind == "fp32" else i
    return made


@pytest.fixture
def compiled(request, triton_cache):
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.offline import compile_offline

    kernel = compile_offline(request.param)
    asm, metadata = kernel.asm, kernel.metadata
    return SimpleNamespace(src=kernel.src, asm=asm, metadata=metadata, function=77)


KERNELS = [default_config(90, "bf16", 64, "top-left", 1024), default_config(90, "fp8e4nv", 64, None, 512)]
MMA = mma_config(90, "bf16", 64, None, 4096)


def named(signature):
    roles = {name: name.removesuffix("_desc") for name in signature}
    return {name: role for name, role in roles.items() if role in TENSORS}


@pytest.mark.parametrize(
    "compiled",
    [KERNELS[0], pytest.param(KERNELS[1], marks=pytest.mark.nightly), MMA],
    ids=lambda c: f"{c.KERNEL}-{c.dtype}",
    indirect=True,
)
def test_parameters_are_those_of_the_kernel_and_a_call_writes_its_addresses(compiled, monkeypatch):
    sizes = ptx_sizes(compiled.asm["ptx"])
    cuda = FakeDriver(sizes)
    monkeypatch.setattr(driver, "driver", lambda: cuda)
    monkeypatch.setattr(driver, "tensor_map", lambda descriptor, metadata: bytes(120) + struct.pack("Q", 5))
    signature = compiled.src.signature
    arguments = arguments_of(signature)
    launch = Launch(compiled, (7,), arguments, named(signature), TENSORS)
    for addresses in ((11, 12, 13, 14, 15), (21, 22, 23, 24, 25)):
        launch(addresses, 99)
        numbers, stream, data, alignments = cuda.launched[-1]
        threads = 32 * compiled.metadata.num_warps
        assert (numbers, stream) == ([7, 1, 1, threads, 1, 1, compiled.metadata.shared], 99)
        assert [len(one) for one in data] == sizes == [len(one) for one in data]
        assert all(at == 0 for at, size in zip(alignments, sizes, strict=True) if size == 128)
        expected = expected_words(signature, arguments, dict(zip(TENSORS, addresses, strict=True)))
        assert [one[:8] for one in data[: len(expected)]] == expected
        assert all(one == bytes(8) for one in data[len(expected) :]) and len(data) == len(expected) + 2


def expected_words(signature, arguments, addresses):
    """The first eight bytes of each parameter."""
    words = []
    for name, kind in signature.items():
        value, role = arguments.get(name), name.removesuffix("_desc")
        if kind.startswith("tensordesc"):
            words.append(struct.pack("Q", addresses[role]))
            words += [struct.pack("i", size) for size in value.shape]
            words += [struct.pack("q", stride) for stride in value.strides]
        elif kind.startswith("*"):
            words.append(struct.pack("Q", addresses.get(role, value.address)))
        elif kind != "constexpr":
            words.append(struct.pack("f" if kind == "fp32" else "i", value))
    return words


def test_a_kernel_with_other_parameters_is_left_to_triton(monkeypatch):
    monkeypatch.setattr(driver, "driver", lambda: FakeDriver([8, 4, 8]))
    expected = [Field(bytes(8), 8), Field(bytes(4), 4)]
    assert len(added_by_triton(0, 3, expected)) == 1
    for wrong in ([Field(bytes(8), 8), Field(bytes(8), 8)], [Field(bytes(8), 8)]):
        with pytest.raises(Unsupported, match="the kernel's parameters have"):
            added_by_triton(0, 3, wrong)
    with pytest.raises(Unsupported, match="argument x: its type u1"):
        list(fields({"x": "u1"}, (), {"x": True}, {}))
