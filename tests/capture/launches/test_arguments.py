"""How arguments of launches are described, TMA descriptors among them, with fake tensors and without a GPU."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_tensors import Storage, Tensor

from tritonhook.capture.launches import live_tensors, tensor_map
from tritonhook.capture.launches.arguments import Arguments, Unrecordable
from tritonhook.capture.launches.record import (
    Buffer,
    Descriptor,
    Launch,
    Packed,
    Pointer,
    Scalar,
    Scratch,
    Tiling,
    to_document,
)
from tritonhook.capture.launches.recorder import of_inductor
from tritonhook.capture.launches.schema import from_json
from tritonhook.errors import CaptureError
from tritonhook.timing.replay import pack


class HostDescriptor:
    """As Triton's TensorDescriptor. newer: as from Triton 3.7 on."""

    def __init__(self, base: Tensor, shape: tuple[int, ...] = (20, 40), newer: bool = True, padding: str = "nan"):
        self.base, self.shape, self.strides, self.padding = base, shape, (48, 1), padding
        if newer:
            self.round_f32_to_tf32 = False


ABOUT = {"swizzle": 2, "elem_size": 2, "elem_type": 10, "block_size": [8, 32], "fp4_padded": False}


def described(descriptor: HostDescriptor, *abouts: dict[str, Any]) -> Arguments:
    given = Arguments("k", abouts)
    given.add("x", "tensordesc<bf16[8,32]>", descriptor)
    return given


def test_a_descriptor_that_the_host_makes_is_recorded_with_what_it_says() -> None:
    base = Tensor(Storage(1 << 20, 4096), "bfloat16", offset=64)
    first, *rest = described(HostDescriptor(base), ABOUT).parameters
    tiling = Tiling(9, (40, 20), (96,), (32, 8), (1, 1), swizzle=2, promotion=2, fill=1)
    assert first == Descriptor("x", 0, 64, tiling), "innermost first, with the driver's numbers"
    assert [(one.type, one.value) for one in rest] == [("i32", 20), ("i32", 40), ("i64", 48), ("i64", 1)]  # type: ignore[union-attr]


def test_rows_of_four_bits_are_twice_as_long() -> None:
    base = Tensor(Storage(1 << 20, 4096), "uint8")
    about = ABOUT | {"elem_size": 1, "elem_type": 14, "fp4_padded": True}
    for newer, passed in ((True, 40), (False, 80)):
        given = described(HostDescriptor(base, newer=newer), about).parameters
        assert isinstance(given[0], Descriptor) and given[0].tiling.shape == (80, 20) and given[0].tiling.bytes == 952
        assert given[2] == Scalar("x.shape.1", "i32", passed)


def test_a_descriptor_that_cannot_be_recorded_names_its_argument() -> None:
    base = Tensor(Storage(1 << 20, 4096), "bfloat16")
    for shape, about, why in (
        ((60, 40), ABOUT, "reaches outside of its tensor's memory"),
        ((20, 40), ABOUT | {"is_im2col": True}, "im2col, which only the driver of a GPU"),
    ):
        with pytest.raises(Unrecordable, match=f"k: argument x is a TMA descriptor .*{why}"):
            described(HostDescriptor(base, shape), about)


def test_packed_rows_begin_before_their_memory() -> None:
    """FlashAttention 4's descriptor of O: its address is 2^30 rows before O."""
    tiling = Tiling(9, (8, 1 << 30, 4, (1 << 31) - 1), (64, 16, 64), (8, 4, 1, 1), (1,) * 4, by_host=True)
    begin, given = 1 << 20, Arguments("k")
    made = given.descriptor("o", begin + 128 - tiling.begin, tiling, Tensor(Storage(begin, 4096), "bfloat16"))
    assert made == Descriptor("o", 0, 128 - tiling.begin, tiling)
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (made,), tuple(given.buffers))
    assert from_json(json.dumps(to_document(launch)).encode(), "x") == launch
    address = 1 << 13  # of another buffer: the sum wraps around
    (packed,) = pack(launch, [address], lambda _: 0, lambda *_: None)
    assert int.from_bytes(bytes(packed)[:8], "little") == (address + made.offset) % (1 << 64)
    for offset in (-tiling.begin - 1, 4096 - tiling.begin - 1, 0):
        broken = to_document(replace(launch, parameters=(replace(made, offset=offset),)))
        with pytest.raises(CaptureError, match="reaches outside"):
            from_json(json.dumps(broken).encode(), "x")
    with pytest.raises(Unrecordable, match="reaches outside"):
        given.descriptor("o", begin + 4090 - tiling.begin, tiling, Tensor(Storage(begin, 4096), "bfloat16"))


def test_a_descriptor_before_the_part_that_is_kept_of_a_large_allocation_is_refused() -> None:
    view, tiling = Tensor(Storage(1 << 20, 9 << 30), "bfloat16", offset=4096), Tiling(9, (8, 4), (16,), (8, 4), (1, 1))
    given = Arguments("k")
    assert given.descriptor("x", view.data_ptr(), tiling, view).offset == 0
    with pytest.raises(Unrecordable, match="reaches outside"):
        given.descriptor("x", view.data_ptr() - 16, tiling, view)


def test_packed_rows_of_triton_begin_where_their_memory_does() -> None:
    """As triton/tools/ragged_tma.py makes them."""
    rows = HostDescriptor(Tensor(Storage(1 << 20, 4096), "bfloat16"), (0x7FFF_0000, 0x7FFF_0000, 1 << 30, 40))
    rows.strides = ((1 << 34) - 48, 48, 48, 1)
    made = described(rows, ABOUT | {"block_size": [1, 1, 8, 32]}).parameters[0]
    assert isinstance(made, Descriptor) and (made.offset, made.tiling.begin, made.tiling.bytes) == (0, 0, 80)
    rows.strides = ((1 << 34) - 56, 48, 48, 1)
    with pytest.raises(Unrecordable, match="reaches outside"):
        described(rows, ABOUT | {"block_size": [1, 1, 8, 32]})


class Encoded:
    """As an object of cuda-bindings."""

    def __init__(self, address: int) -> None:
        self.data = address.to_bytes(8, "little") + bytes(range(1, 121))
        self.room = (ctypes.c_ubyte * 128).from_buffer_copy(self.data)

    def getPtr(self) -> int:
        return ctypes.addressof(self.room)


def test_a_descriptor_in_bytes_is_recorded_by_what_it_says_or_byte_by_byte(monkeypatch) -> None:
    begin = 1 << 20
    tensor, other = Tensor(Storage(begin, 4096), "bfloat16"), Encoded(begin + 256)
    tensors = SimpleNamespace(at=lambda addresses: dict.fromkeys([one for one in addresses if begin <= one], tensor))
    monkeypatch.setattr(live_tensors, "LIVE_TENSORS", tensors)
    tiling = Tiling(9, (40, 20), (96,), (32, 8), (1, 1))
    monkeypatch.setattr(tensor_map, "decoded", lambda data: None if data == other.data else (begin + 64, tiling))
    given = Arguments("k")
    for name, one in (("x", Encoded(0)), ("y", other)):
        given.add(name, "nvTmaDesc", one)
    assert given.parameters[0] == Descriptor("x", 0, 64, tiling)
    assert given.parameters[1] == Packed("y", (bytes(8) + other.data[8:]).hex(), ((0, 0, 256),))
    monkeypatch.setattr(tensor_map, "decoded", lambda data: None)
    for wrong, why in (
        (Encoded(0), "memory that belongs to no known tensor"),
        (3, "a int, not a known kind of TMA descriptor"),
    ):
        with pytest.raises(Unrecordable, match=f"k: argument z is .*{why}"):
            given.add("z", "nvTmaDesc", wrong)


def test_the_static_launcher_takes_descriptors_and_scratch(monkeypatch) -> None:
    """Newer torch has more codes of types, descriptors that it encodes at the launch, and scratch memory per block."""
    tensor = Tensor(Storage(1 << 20, 4096), "bfloat16")
    monkeypatch.setattr(
        live_tensors, "LIVE_TENSORS", SimpleNamespace(at=lambda addresses: dict.fromkeys(addresses, tensor))
    )
    kernel = SimpleNamespace(
        **{"name": "k", "arg_tys": "eyMi", "num_warps": 4, "shared": 0, "_has_tensordesc": True},
        **{"has_global_scratch": True, "global_scratch_size": 48, "has_profile_scratch": True},
        _expand_tma_args=lambda given: (*given[:2], Encoded(tensor.data_ptr()), 7),
    )
    launch, _ = of_inductor(kernel, (5, 2, 1), (1.5, 2.5, "a descriptor"))
    first, second, packed, seven, *scratch = launch.parameters
    assert (first, second, seven) == (Scalar("0", "fp16", 1.5), Scalar("1", "bf16", 2.5), Scalar("3", "i32", 7))
    assert isinstance(packed, Packed) and scratch == [Scratch(480), Scratch(0)]


def test_descriptors_are_read_back_and_checked() -> None:
    given = described(HostDescriptor(Tensor(Storage(1 << 20, 4096), "bfloat16")), ABOUT)
    launch = Launch("k", (1, 1, 1), (128, 1, 1), tuple(given.parameters), tuple(given.buffers))
    document = to_document(launch)
    assert from_json(json.dumps(document).encode(), "x") == launch
    assert launch.summary.endswith(
        "x descriptor of [20, 40], boxes of [8, 32], x.shape.0=20, x.shape.1=40, x.stride.0=48, x.stride.1=1"
    )
    other = described(HostDescriptor(Tensor(Storage(1 << 20, 4096), "bfloat16")), ABOUT | {"block_size": [4, 32]})
    assert replace(launch, parameters=tuple(other.parameters)).problem == launch.problem, "of another configuration"
    for change in ({"shape": [40, 60]}, {"box": [32]}, {"element": 16}, {"strides": [-96]}):
        broken = to_document(launch)
        broken["parameters"][0]["tiling"] |= change
        with pytest.raises(CaptureError):
            from_json(json.dumps(broken).encode(), "x")


# --- pointers and numbers ------------------------------------------------------------------------


def test_arguments_are_of_the_kind_that_the_signature_says() -> None:
    given = Arguments("k")
    for kind, value in (("i32", 5.0), ("u1", True), ("fp32", 3), ("f32", 4), ("bf16", 2), ("i64", 1 << 40)):
        given.add("x", kind, value)
    given.add("skipped", "constexpr", object())
    given.add("p", "*fp32", None)
    given.add("t", ("i8", ("constexpr", "fp64"), "constexpr"), (1, (None, 2), None))
    expected = [Scalar("x", kind, value) for kind, value in (("i32", 5), ("u1", 1), ("fp32", 3.0), ("f32", 4.0))]
    expected += [Scalar("x", "bf16", 2.0), Scalar("x", "i64", 1 << 40), Pointer("p", None)]  # type: ignore[list-item]
    expected += [Scalar("t.0", "i8", 1), Scalar("t.1.1", "fp64", 2.0)]
    assert given.parameters == expected and given.buffers == []
    assert [type(one.value) for one in expected if isinstance(one, Scalar)] == [
        *(int, int, float, float, float, int),
        *(int, float),
    ]
    with pytest.raises(ValueError):
        given.add("t", ("i8",), (1, 2))


def test_a_pointer_is_a_view_of_a_buffer() -> None:
    given = Arguments("k")
    shared = Storage(1 << 20, 4096)
    whole, view = Tensor(shared, "torch.float16"), Tensor(shared, "int8", offset=100, count=7)
    wrapped = SimpleNamespace(base=whole, data_ptr=lambda: (1 << 20) + 6)  # Triton's TensorWrapper
    empty = [Storage(0, 512), Storage(0, 512)]
    for number, storage in enumerate(empty):
        storage._cdata = number  # type: ignore[attr-defined]
    for tensor in (whole, view, wrapped, *map(Tensor, empty), Tensor(empty[0], count=3)):
        given.add("x", "*", tensor)
    assert given.parameters == [
        Pointer("x", 0, 0, "float16", (1000,), (1,)),
        Pointer("x", 0, 100, "int8", (7,), (1,)),
        Pointer("x", 0, 6, "float16", (1000,), (1,)),
        *(Pointer("x", number, 0, "float32", (1000,), (1,)) for number in (1, 2)),  # without memory, all begin at 0
        Pointer("x", 1, 0, "float32", (3,), (1,)),
    ]
    assert given.buffers == [Buffer(4096, "float16"), Buffer(512, "float32"), Buffer(512, "float32")]
    assert given.storages[0] == (whole, 0, 4096)


def test_of_a_huge_allocation_only_what_the_tensor_spans_is_a_buffer() -> None:
    for size, buffer, offset in ((8 << 30, (0, 8 << 30), 4096), ((8 << 30) + 1, (4096, 3998 * 2), 0)):
        view = Tensor(Storage(1 << 20, size), "float16", offset=4096)
        view.shape, view.stride = (2, 1000), lambda: (2998, 1)  # type: ignore[assignment,method-assign]
        given = Arguments("k")
        assert given.place(view, view.data_ptr()) == (0, offset)
        assert (given.buffers, given.storages) == ([Buffer(buffer[1], "float16")], [(view, *buffer)])
    given = Arguments("k")
    assert given.place(Tensor(Storage(1 << 20, 64), "quint4"), (1 << 20) + 8) == (0, 8)
    assert given.buffers == [Buffer(64, "uint8")]


@pytest.mark.parametrize(
    ("type_", "rounded", "padding", "element", "fill"),
    [
        (8, False, "nan", 10, 1),
        (9, False, "zero", 8, 0),
        (10, None, "zero", 9, 0),
        (7, False, "nan", 7, 1),
        (7, True, "zero", 11, 0),
    ],
)
def test_a_descriptor_has_the_drivers_element_and_fill(type_, rounded, padding, element, fill) -> None:
    base = Tensor(Storage(1 << 20, 8192), "float32")
    descriptor = HostDescriptor(base, newer=rounded is not None, padding=padding)
    if rounded is not None:
        descriptor.round_f32_to_tf32 = rounded
    first = described(descriptor, ABOUT | {"elem_size": 4, "elem_type": type_}).parameters[0]
    assert isinstance(first, Descriptor)
    tiling = Tiling(element, (40, 20), (192,), (32, 8), (1, 1), swizzle=2, promotion=2, fill=fill)
    assert first.tiling == tiling
    apart = described(descriptor).parameters[1:]
    numbers = [20, 40, 48, 1, fill, *([] if rounded is None else [int(rounded)]), 20, 40, 48, 1]
    assert [(one.value, type(one.value)) for one in apart if isinstance(one, Scalar)] == [(n, int) for n in numbers]
    names = ["shape.0", "shape.1", "stride.0", "stride.1"]
    flags = ["flag"] * (1 if rounded is None else 2)
    assert [one.name for one in apart if isinstance(one, Scalar)] == [f"x.{n}" for n in (*names, *flags, *names)]
