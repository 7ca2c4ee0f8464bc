"""Which tensors lie at addresses, with stand-ins for torch and for what Python's garbage collector holds."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_tensors import Storage, Tensor

from tritonhook.capture.launches.live_tensors import LiveTensors, is_mapped

Held = dict[int, list[Any]]


class View(Tensor):
    """A subclass, as of a program."""


class WithoutMemory(Tensor):
    def untyped_storage(self) -> Storage:
        raise NotImplementedError


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """The objects of each generation, the oldest first; and how often each was gone through, below 10 + its number."""
    found: Held = {0: [], 1: [], 2: [], 10: [], 11: [], 12: []}

    def objects(generation: int) -> list[Any]:
        found[10 + generation].append(1)
        return found[generation]

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    monkeypatch.setattr(gc, "get_objects", objects)
    return found


def make(begin: int, size: int = 100, offset: int = 0, kind: type[Tensor] = Tensor) -> Tensor:
    return kind(Storage(begin, size), offset=offset)


def test_a_tensor_has_the_addresses_of_its_allocation(held) -> None:
    a, b = make(1000), make(2000, kind=View)
    held[0] += [object(), a, make(0), make(3000, kind=WithoutMemory), b, "text"]
    at = LiveTensors().at
    for address, tensor in ((1000, a), (1099, a), (2050, b), (999, None), (1100, None), (3000, None), (0, None)):
        assert at({address}) == ({} if tensor is None else {address: tensor}), address
    assert LiveTensors().at({1001, 2001, 5}) == {1001: a, 2001: b}
    assert LiveTensors().at(set()) == {}


def test_of_several_tensors_the_one_that_begins_there_is_taken_else_the_youngest(held) -> None:
    whole, middle, end = make(1000), make(1000, offset=40), make(1000, offset=80)
    for order in ([whole, middle, end], [end, middle, whole], [middle, whole, end]):
        held[0][:] = order
        assert LiveTensors().at({1040, 1080, 1000}) == {1000: whole, 1040: middle, 1080: end}
        assert LiveTensors().at({1041}) == {1041: order[-1]}


def test_without_torch_there_is_no_tensor(held, monkeypatch) -> None:
    held[0] += [make(1000)]
    monkeypatch.delitem(sys.modules, "torch")
    assert LiveTensors().at({1000}) == {}


def test_an_address_of_this_process_can_be_read(monkeypatch, tmp_path) -> None:
    room = ctypes.create_string_buffer(64)
    assert is_mapped(ctypes.addressof(room)) and not is_mapped(0)
    maps = tmp_path / "maps"
    maps.write_text("1000-2000 r-xp 00000000 08:02 1 /a b\n2000-3000 -w-p 00000000 00:00 0\nf000-ffff rw-p 0 0 0\n")
    opened: Callable[..., Any] = lambda path: maps if path == "/proc/self/maps" else None  # noqa: E731
    monkeypatch.setattr("tritonhook.capture.launches.live_tensors.Path", opened)
    ends = (0xFFF, 0x1000, 0x1FFF, 0x2000, 0x2FFF, 0xF000, 0xFFFE, 0xFFFF)
    assert [address for address in ends if is_mapped(address)] == [0x1000, 0x1FFF, 0xF000, 0xFFFE]
    maps.unlink()
    assert not is_mapped(0x1000)
