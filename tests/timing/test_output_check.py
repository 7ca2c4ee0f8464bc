"""Whether kernels store the same in the buffers of a launch: with torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.timing.replay import Buffers, OutputCheck

torch = pytest.importorskip("torch", reason="needs torch")


class Kernel:
    def __init__(self, store: Callable[..., None], buffers: Buffers) -> None:
        self.launch = lambda: store(*buffers.views())


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> Buffers:
    """A float32 buffer and a bfloat16 one, in the CPU's memory."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, device, **options: empty(*shape, **options))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    parameters = tuple(Pointer(str(number), number) for number in range(2))
    return Buffers(Launch("k", (1, 1, 1), (32, 1, 1), parameters, (Buffer(64, "float32"), Buffer(32, "bfloat16"))))


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
