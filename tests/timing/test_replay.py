"""Packing the arguments of a repeated launch, without a GPU; and the clock from the GPU's counters."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook._util.schema import as_schema
from tritonhook.capture.launches.record import Buffer, Descriptor, Launch, Packed, Pointer, Scalar, Scratch
from tritonhook.capture.launches.schema import LaunchFields
from tritonhook.capture.launches.tensor_map import encoded
from tritonhook.device.cuda_driver import Driver, LaunchConfig, argument_pointers, launch_config
from tritonhook.device.sm_clock import STAMP, clock_mhz
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.timing.replay import LoadedKernel, pack

LAUNCH = as_schema(
    {
        "grid": [4],
        "block": [128],
        "parameters": [
            {"kind": "pointer", "buffer": 0, "offset": 16},
            {"kind": "pointer", "buffer": None},
            {"type": "i32", "value": -3},
            {"type": "fp16", "value": 1.5},
            {"kind": "scratch", "size": 256},
            {"kind": "scratch"},
            {"kind": "packed", "data": "00000000000000000700000000000000", "pointers": [[0, 0, 4]]},
            {
                "kind": "descriptor",
                "buffer": 0,
                "offset": 32,
                "tiling": {"element": 6, "shape": [4, 2], "strides": [16], "box": [4, 1], "steps": [1, 1], "fill": 1},
            },
        ],
        "buffers": [{"size": 64, "dtype": "float32"}],
    },
    LaunchFields,
).launch


def test_arguments_are_packed_as_the_kernel_gets_them() -> None:
    asked: list[int] = []
    driver = Driver(Encoder())
    packed = pack(LAUNCH, [0x1000], lambda size: asked.append(size) or 0x2000, driver.tensor_map)
    descriptor = packed.pop()
    assert [bytes(value) for value in packed] == [
        struct.pack("<Q", 0x1010),
        bytes(8),
        struct.pack("<i", -3),
        struct.pack("<e", 1.5),
        struct.pack("<Q", 0x2000),
        bytes(8),
        struct.pack("<QQ", 0x1004, 7),
    ]
    assert asked == [256]
    pointers = argument_pointers(packed)
    assert ctypes.string_at(pointers[2], 4) == struct.pack("<i", -3)

    assert (len(bytes(descriptor)), ctypes.addressof(descriptor) % 64) == (128, 0)
    assert bytes(descriptor)[:11] == bytes([0xFF] * 10 + [0xDF]), "a small tensor, with this driver"


def test_a_descriptor_that_host_code_made_has_its_bits_and_not_the_drivers() -> None:
    (parameter,) = (one for one in LAUNCH.parameters if isinstance(one, Descriptor))
    tiling = replace(parameter.tiling, strides=(16,), fill=0, by_host=True)
    launch = replace(LAUNCH, parameters=(replace(parameter, tiling=tiling),))
    (made,) = pack(launch, [0x1000], lambda size: 0, Driver(Encoder()).tensor_map)
    assert bytes(made) == encoded(tiling, 0x1020).ljust(128, b"\0")


class Encoder:
    """libcuda, of which only descriptors are asked; it fills their bytes with ones."""

    def cuTensorMapEncodeTiled(self, made, element, rank, address, shape, strides, box, steps, *rest) -> int:
        given = element, rank, address.value, list(shape), strides[0], list(box), list(steps), rest
        assert given == (6, 2, 0x1020, [4, 2], 16, [4, 1], [1, 1], (0, 0, 0, 1))
        made[:] = [0xFF] * 128
        return 0

    def cuDriverGetVersion(self, number) -> int:
        number._obj.value = 13010
        return 0


class NotingDriver:
    """Keeps each launch: its configuration, and the bytes of its arguments."""

    def __init__(self, sizes: tuple[int, ...] | None) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.sizes, self.asked = sizes, set[str]()

    def load(self, image: bytes) -> int:
        return 11

    def function(self, module: int, name: str) -> int:
        return 12

    def set_dynamic_shared(self, function: int, size: int) -> None:
        self.asked.add(f"{size} bytes")

    def allow_large_clusters(self, function: int) -> None:
        self.asked.add("large clusters")

    def parameter_sizes(self, function: int) -> tuple[int, ...] | None:
        return self.sizes

    def tensor_map(self, tiling: object, address: int) -> ctypes.c_uint64:
        return ctypes.c_uint64(address)

    def launch_config(self, function: int, config: LaunchConfig, pointers: Any) -> None:
        given = [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, self.sizes or (), strict=True)]
        numbers = {attribute.id for attribute in config.attributes[: config.count]}
        self.launches.append((struct.unpack("<7I", bytes(config)[:28]), config.stream, numbers, given))


TILING = next(one for one in LAUNCH.parameters if isinstance(one, Descriptor)).tiling
POINTERS = (Pointer("a", 1, 4), Pointer("b", 0, 2), Pointer("c", None, 3))
PARAMETERS = (*POINTERS, Scalar("d", "i16", -2), Packed("e", "00" * 8, ((0, 1, 8),)), Descriptor("f", 1, 16, TILING))
ARGUMENTS = [*(struct.pack("<Q", n) for n in (0x2004, 0x1002, 0)), struct.pack("<h", -2), struct.pack("<Q", 0x2008)]
ARGUMENTS.append(struct.pack("<Q", 0x2010))


@pytest.mark.parametrize(
    ("shared", "cluster", "flags", "asked", "attributes"),
    [
        (0, (1, 1, 1), (False, False), set(), set()),
        (1, (2, 2, 2), (True, False), {"1 bytes"}, {4, 5, 2}),
        (0, (1, 9, 1), (False, True), {"large clusters"}, {4, 5, 6}),
        (64, (4, 2, 2), (False, False), {"64 bytes", "large clusters"}, {4, 5}),
    ],
)
def test_a_loaded_kernel_is_launched_as_recorded(
    shared: int, cluster: tuple[int, int, int], flags: tuple[bool, bool], asked: set[str], attributes: set[int]
) -> None:
    driver: Any = NotingDriver((8, 8, 8, 2, 8, 8))
    buffers = (Buffer(64, "float32"), Buffer(64, "float32"))
    launch = Launch("k", (8, 4, 2), (128, 2, 3), PARAMETERS, buffers, cluster, shared)
    launch = replace(launch, cooperative=flags[0], pdl=flags[1])
    memory: Any = SimpleNamespace(launch=launch, addresses=[0x1000, 0x2000], stream=lambda: 5, scratch=None)
    LoadedKernel(b"image", "k", memory, driver).launch()
    assert driver.launches == [((8, 4, 2, 128, 2, 3, shared), 5, attributes, ARGUMENTS)] and driver.asked == asked


def test_a_kernel_that_takes_other_arguments_is_not_launched() -> None:
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (Scratch(48), Scratch(0)))
    memory: Any = SimpleNamespace(launch=launch, addresses=[], scratch=lambda size: 0x30)
    driver: Any = NotingDriver((8, 4))
    with pytest.raises(UsageError, match=r"^name: takes 2 parameters of 8, 4 bytes; the record has 2 of 8, 8; "):
        LoadedKernel(b"", "name", memory, driver)


def test_launch_attributes_lie_where_the_driver_looks() -> None:
    """CUlaunchConfig and CUlaunchAttribute of cuda.h: 56 and 72 bytes, the value 8 bytes in."""
    assert ctypes.sizeof(LaunchConfig) == 56
    config = launch_config((8, 2, 1), (256, 1, 1), 4096, (2, 1, 1), cooperative=True, pdl=True)
    raw = bytes(config)
    assert struct.unpack_from("<7I", raw) == (8, 2, 1, 256, 1, 1, 4096)
    assert struct.unpack_from("<I", raw, 48)[0] == config.count == 4
    attributes = ctypes.string_at(ctypes.addressof(config.attributes.contents), 4 * 72)
    found = {struct.unpack_from("<I", attributes, i * 72)[0]: attributes[i * 72 + 8 : i * 72 + 20] for i in range(4)}
    assert struct.unpack("<3I", found[4]) == (2, 1, 1)
    assert {number: struct.unpack_from("<I", found[number])[0] for number in (2, 5, 6)} == {2: 1, 5: 1, 6: 1}
    assert launch_config((1, 1, 1), (32, 1, 1), 0).count == 0
    assert launch_config((1, 1, 1), (32, 1, 1), 228 << 10).count == 0
    (oversized,) = launch_config((1, 1, 1), (32, 1, 1), (228 << 10) + 16).attributes[:1]
    assert (oversized.id, oversized.value[0]) == (18, 3)


def test_the_clock_is_all_cycles_over_all_time() -> None:
    pair = ((1000, 500, 3), (1000 + 1980 * 50, 500 + 50_000, 3))
    assert clock_mhz([pair, pair]) == pytest.approx(1980)
    elsewhere = ((0, 0, 3), (10**9, 100, 4))
    assert clock_mhz([pair, elsewhere]) == pytest.approx(1980), "counters of two SMs cannot be compared"
    assert clock_mhz([elsewhere]) is None
    assert clock_mhz([]) is None
    assert clock_mhz([((0, 0, 1), (10**9, 10, 1))]) is None, "no GPU runs at 100 GHz"


def test_the_stamp_is_ptx_that_ptxas_takes(tools) -> None:
    ptx = Ptx(STAMP)
    assert ptx.entries == ("tritonhook_stamp",)
    for target in ("sm_75", "sm_90a", "sm_120a"):
        assert tools.assemble_or_raise(ptx, (f"--gpu-name={target}",)).cubin.kernels == ("tritonhook_stamp",)
