"""What the buffers of a launch hold, and whether kernels store the same in them: with torch on the CPU."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.errors import UsageError
from tritonhook.timing import replay
from tritonhook.timing.replay import Buffers, OutputCheck

torch = pytest.importorskip("torch", reason="needs torch")


class Kernel:
    def __init__(self, store: Callable[..., None], buffers: Buffers) -> None:
        self.launch = lambda: store(*buffers.views())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any, str]]:
    """The CPU's memory stands for the GPU's. Gives what is allocated: the size, the dtype, the device. Memory that
    should hold nothing yet is full of 0xEE."""
    made: list[tuple[int, Any, str]] = []

    def allocate(byte: int) -> Callable[..., Any]:
        full = torch.full

        def allocated(size: int, dtype: Any, device: str) -> Any:
            made.append((size, dtype, device))
            return full((size,), byte, dtype=dtype)

        return allocated

    monkeypatch.setattr(torch, "empty", allocate(0xEE))
    monkeypatch.setattr(torch, "zeros", allocate(0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return made


def launch_with(*buffers: Buffer) -> Launch:
    parameters = tuple(Pointer(str(number), number) for number in range(len(buffers)))
    return Launch("k", (1, 1, 1), (32, 1, 1), parameters, buffers)


def contents(buffers: Buffers) -> list[bytes]:
    return [bytes(tensor.tolist()) for tensor in buffers.tensors]


def drawn(seed: int, *counts: int, dtype: Any = torch.float32) -> bytes:
    """Normal random numbers, so many at a time."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.cat([torch.randn(count, generator=generator) for count in counts]).to(dtype)
    return bytes(numbers.view(torch.uint8).tolist())


@pytest.fixture
def buffers(asked: list[tuple[int, Any, str]]) -> Buffers:
    """A float32 buffer and a bfloat16 one."""
    return Buffers(launch_with(Buffer(64, "float32"), Buffer(32, "bfloat16")))


def test_buffers_hold_what_was_kept_and_else_made_up_contents(
    asked: list[tuple[int, Any, str]], tmp_path: Path
) -> None:
    (tmp_path / "kept").write_bytes(b"12345678")
    kept, empty = Buffer(8, "int64", "kept"), Buffer(0, "float16")
    launch = launch_with(kept, Buffer(4, "int32", "gone"), empty, Buffer(3, "bool"), Buffer(16, "float32"))
    buffers = Buffers(launch, tmp_path)
    assert asked == [(size, torch.uint8, "cuda") for size in (8, 4, 1, 3, 16)], "an empty buffer has an address too"
    before = [b"12345678", bytes(4), b"\xee", bytes(3), drawn(4, 4)]
    assert contents(buffers) == before and buffers.folder == tmp_path
    assert buffers.addresses == [tensor.data_ptr() for tensor in buffers.tensors]
    assert buffers.notes == (
        "4 of 5 buffers have made-up contents: the record has only shapes",
        "2 integer buffers are filled with zeros, which may change what the kernel does",
    )
    buffers.hold([b"abcdefgh", None, None, b"\1\1\1", None])
    assert contents(buffers) == [b"abcdefgh", *before[1:3], b"\1\1\1", before[4]]
    for tensor in buffers.tensors:
        tensor.fill_(7)
    buffers.hold(None)
    assert contents(buffers) == [*before[:2], b"\7", *before[3:]]
    assert Buffers(launch_with(kept), tmp_path).notes == ()
    assert Buffers(launch_with(kept)).notes[0].startswith("1 of 1 "), "no folder, nothing kept"


def test_a_kept_file_is_as_long_as_the_record_says(
    asked: list[tuple[int, Any, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_BYTES", 6)
    path = tmp_path / "kept"
    path.write_bytes(b"12345678")
    assert contents(Buffers(launch_with(Buffer(8, "int8", "kept")), tmp_path)) == [b"12345678"]
    with pytest.raises(OSError, match="8 bytes, more than the 6 that are read"):
        Buffers(launch_with(Buffer(4, "int8", "kept")), tmp_path)
    path.write_bytes(b"1234")
    with pytest.raises(UsageError) as error:
        Buffers(launch_with(Buffer(5, "int8", "kept")), tmp_path)
    assert str(error.value) == f"{path}: 4 bytes, but the record says 5; record the launch again"


@pytest.mark.parametrize("any_nan", [False, True])
def test_one_nan_is_as_good_as_another_where_it_may_be(any_nan: bool, buffers: Buffers) -> None:
    def storing(bits: int) -> Kernel:
        return Kernel(lambda a, b: a.view(torch.int32).fill_(struct.unpack("<i", struct.pack("<I", bits))[0]), buffers)

    check = OutputCheck(buffers, None, any_nan)
    assert check.difference(storing(0x7FC00000)) is None
    text = check.difference(storing(0xFFC00001))
    assert text == (None if any_nan else "output 0 differs in its bits (largest difference nan)")


def store(a: Any, b: Any) -> None:
    b.copy_(a + 1)


def also_elsewhere(a: Any, b: Any) -> None:
    store(a, b)
    a[3] = 7.0


def test_each_kernel_finds_the_contents_before_the_launch(buffers: Buffers) -> None:
    check = OutputCheck(buffers, None)
    before = [view.clone() for view in buffers.views()]
    right, wrong, wild = (Kernel(each, buffers) for each in (store, lambda a, b: b.copy_(a + 2), also_elsewhere))
    assert check.difference(right) is None, "it is the reference"
    assert check.difference(right) is None
    assert "output 1 differs in its bits" in (check.difference(wrong) or "")
    assert "output 0 differs in its bits" in (check.difference(wild) or "")
    assert check.difference(right) is None, "what the wild one changed is restored"
    assert all(torch.equal(a, b) for a, b in zip(before, buffers.views(), strict=True))


def test_a_kernel_that_works_in_place_gives_the_same_each_time(buffers: Buffers) -> None:
    check = OutputCheck(buffers, None)
    kernel = Kernel(lambda a, b: b.add_(1), buffers)
    assert [check.difference(kernel) for _ in range(3)] == [None, None, None]


def test_a_tolerance_covers_small_differences(buffers: Buffers) -> None:
    check = OutputCheck(buffers, 0.01)
    assert check.difference(Kernel(store, buffers)) is None
    assert check.difference(Kernel(lambda a, b: b.copy_((a + 1) * 1.002), buffers)) is None
    assert "rtol" in (check.difference(Kernel(lambda a, b: b.copy_(a + 2), buffers)) or "")
