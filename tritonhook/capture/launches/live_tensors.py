"""Find the torch tensors at the addresses that a launch passes, when only the addresses are known."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonhook._util.locks import ForkLock

_YOUNG, _OLD = (0, 1), 2  # generations of Python's garbage collector
_Span = tuple[int, int, Any]  # begin and end of an allocation, a tensor in it


class LiveTensors:
    """The tensors that Python holds. Old ones are remembered; the youngest, such as those of the current call, are
    searched each time. All objects of the process are searched only for an old tensor that is not remembered."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._begins: list[int] = []
        self._old: list[tuple[int, int, weakref.ref[Any]]] = []

    def at(self, addresses: Set[int]) -> dict[int, Any]:
        """Find a tensor whose allocation contains each address; among several, one that begins at the address."""
        with self._lock:
            return self._at(addresses)

    def _at(self, addresses: Set[int]) -> dict[int, Any]:
        found = {address: tensor for address in addresses if (tensor := self._remembered(address)) is not None}
        remembered, missing = set(found), set(addresses) - set(found)
        for generation in _YOUNG:
            if missing:
                _look(_tensors(generation), missing, found)
        for address in addresses - remembered:
            if address in found and (span := _span(found[address])) is not None:
                self._remember(*span)
        if missing:
            old = sorted(_tensors(_OLD), key=lambda span: span[:2])
            self._begins = [begin for begin, _, _ in old]
            self._old = [(begin, end, weakref.ref(tensor)) for begin, end, tensor in old]
            _look(old, missing, found)
        return found

    def _remember(self, begin: int, end: int, tensor: Any) -> None:
        number = bisect_right(self._begins, begin)
        is_new = not number or self._begins[number - 1] != begin or self._old[number - 1][2]() is not None
        place = slice(number, number) if is_new else slice(number - 1, number)
        self._begins[place], self._old[place] = [begin], [(begin, end, weakref.ref(tensor))]

    def _remembered(self, address: int) -> Any:
        """Find a remembered tensor with this address, in the last allocation that begins before it. None if there is
        none."""
        number = bisect_right(self._begins, address) - 1
        begin = self._begins[number] if number >= 0 else None
        best = None
        while number >= 0 and self._begins[number] == begin and address < self._old[number][1]:
            tensor = self._old[number][2]()
            if tensor is not None and (span := _span(tensor)) is not None and span[0] <= address < span[1]:
                best = tensor
                if tensor.data_ptr() == address:
                    break
            number -= 1
        return best


LIVE_TENSORS = LiveTensors()  # shared by all front ends


def _look(spans: Iterable[_Span], missing: set[int], found: dict[int, Any]) -> None:
    """Search tensors for missing addresses, until each address has a tensor that begins there."""
    left = set(missing)
    for begin, end, tensor in spans:
        for address in [one for one in left if begin <= one < end]:
            if begins := tensor.data_ptr() == address:
                left.discard(address)
            if begins or address not in found:
                found[address] = tensor
        if not left:
            break
    missing.difference_update(found)


def _tensors(generation: int) -> Iterator[_Span]:
    """Yield torch's tensors with their allocations, the youngest first. generation: of the garbage collector."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    kinds: dict[type, bool] = {}
    for one in reversed(gc.get_objects(generation=generation)):
        kind = type(one)
        if (is_tensor := kinds.get(kind)) is None:
            is_tensor = kinds[kind] = issubclass(kind, torch.Tensor)
        if is_tensor and (span := _span(one)) is not None:
            yield span


def memory_of(tensor: Any) -> tuple[int, int] | None:
    """Return begin and end of a tensor's allocation. None for a tensor without memory of its own: on torch's device
    "meta", fake, functional, batched or sparse tensors, and subclasses around other tensors."""
    with suppress(Exception):
        memory = tensor.untyped_storage()
        if memory.device.type != "meta" and (begin := memory.data_ptr()):  # torch warns of a fake tensor's address
            return begin, begin + memory.nbytes()
    return None


def cpu_bytes(tensor: Any, start: int, size: int) -> memoryview | None:
    """View part of a CPU tensor's allocation as bytes, to read and to write; None for a tensor without memory of its
    own. Calls no operator of torch: a library may have replaced it by a kernel."""
    memory = memory_of(tensor)
    return memory and memoryview((ctypes.c_uint8 * size).from_address(memory[0] + start))


def _span(tensor: Any) -> _Span | None:
    memory = memory_of(tensor)
    return memory and (*memory, tensor)


def is_mapped(address: int) -> bool:
    """Check whether this process may read an address."""
    with suppress(OSError), Path("/proc/self/maps").open("rb") as maps:
        for line in maps:
            span, rights = line.split(b" ", 2)[:2]
            begin, _, end = span.partition(b"-")
            if rights.startswith(b"r") and int(begin, 16) <= address < int(end, 16):
                return True
    return False
