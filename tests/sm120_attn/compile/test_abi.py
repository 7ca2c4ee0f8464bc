"""The bytes of a call, against C's rules and, where the DSL is installed, against the header that it writes itself."""

import ctypes
import re

import pytest

from sm120_attn.compile import abi


class Sized:
    """A size that is passed at each call."""

    def __init__(self, width: int) -> None:
        self.width = width


class Tensor:
    element_type = "bf16"

    def __init__(self, shape: tuple, stride: tuple) -> None:
        self.shape, self.stride = shape, stride


class Int32:
    pass


class Float32:
    pass


class CUstream:
    pass


ROWS = Tensor((Sized(32), Sized(32), Sized(32), 128), (Sized(64), Sized(64), Sized(64), 1))
OFFSETS = Tensor((Sized(32),), (1,))


class CRows(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int32 * 3),
        ("stride", ctypes.c_int64 * 3),
    )


def test_a_tensor_is_the_struct_that_c_would_make() -> None:
    # given
    (slot,) = abi.slots_of(["q"], [ROWS])
    buffer = abi.ArgumentBuffer(abi.Layout([slot]))

    # when
    buffer.fill(abi.tensor_values(slot, 0x7F0000001000, (2, 300, 16, 128), (2**40, 2048, 128, 1)))

    # then
    made = CRows.from_address(buffer.pointers[0])
    assert made.data == 0x7F0000001000
    assert list(made.shape) == [2, 300, 16]
    assert list(made.stride) == [2**40, 2048, 128]


def test_every_argument_has_its_own_pointer_and_the_error_comes_last() -> None:
    # given
    names = ["q", "lse", "cu_seqlens", "rows", "scale", "stream"]
    slots = abi.slots_of(names, [ROWS, None, OFFSETS, Int32(), Float32(), CUstream()])
    buffer = abi.ArgumentBuffer(abi.Layout(slots))

    # when
    buffer.fill([16, 1, 2, 3, 4, 5, 6, 32, 9, -7, 0.25, 2**47])

    # then None has no slot
    assert [slot.name for slot in slots] == ["q", "cu_seqlens", "rows", "scale", "stream"]
    assert len(buffer.pointers) == 6
    assert ctypes.c_int32.from_address(buffer.pointers[2]).value == -7
    assert ctypes.c_float.from_address(buffer.pointers[3]).value == 0.25
    assert ctypes.c_uint64.from_address(buffer.pointers[4]).value == 2**47
    assert all(pointer % 4 == 0 for pointer in buffer.pointers)
    assert buffer.address == ctypes.addressof(buffer.pointers)
    ctypes.c_int32.from_address(buffer.pointers[5]).value = 77
    assert buffer.error.value == 77


def test_the_dsl_writes_the_same_structs_into_its_header(tmp_path) -> None:
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
    import cutlass.cute as cute
    from cuda.bindings.driver import CUstream as Stream

    from sm120_attn.compile import cache
    from sm120_attn.compile.fake_arguments import fake_arguments
    from sm120_attn.config import Config
    from tests.sm120_attn.support.host_function import host

    # given
    config = Config("sm_120a", "e4m3", "bf16", varlen=True, lse=True, cache_rows=64, paged=True, sinks=True)
    arguments = fake_arguments(config)
    function = cute.compile(host, *arguments[:-1], Stream(0), options="--gpu-arch sm_120a")
    names = list(function.execution_args.signature.parameters)

    # when
    cache._runtime_libraries()
    function.export_to_c(str(tmp_path), "kernel")
    header = (tmp_path / "kernel.h").read_text()

    # then
    found = re.findall(r"typedef struct \{\s*void \*data;(.*?)\} kernel_Tensor_(\w+)_t;", header, re.DOTALL)
    theirs = {name: _codes(body) for body, name in found}
    ours = {s.name: s.codes for s in abi.slots_of(names, arguments) if s.rank}
    assert theirs == ours
    (packed,) = re.findall(r"void \*args\[\d+\] = \{(.*?)\};", header, re.DOTALL)
    order = [name.strip().lstrip("&") for name in packed.split(",")]
    assert order == [*(s.name for s in abi.slots_of(names, arguments)), "ret"]


def _codes(body: str) -> str:
    codes = {"int32_t": "i", "int64_t": "q"}
    return "P" + "".join(codes[kind] * int(count) for kind, count in re.findall(r"(int\d+_t) \w+\[(\d+)\]", body))
