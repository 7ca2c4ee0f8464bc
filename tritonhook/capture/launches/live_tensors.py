"""Find torch tensors by their addresses, for launches that pass only addresses."""

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
_Span = tuple[int, int, Any]  # begin and end address of an allocation, a tensor in it


class LiveTensors:
    """Index of the process's tensors by address. It stores tensors found before. To find the tensor of another address,
    it first searches the young generations of Python's garbage collector, which have the tensors of the current call,
    and only then all objects of the process."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._begins: list[int] = []
        self._old: list[tuple[int, int, weakref.ref[Any]]] = []

    def at(self, addresses: Set[int]) -> dict[int, Any]:
        """Return for each address a tensor whose allocation contains it; if possible, a tensor that begins at the
        address. Addresses without a tensor are omitted."""
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
        """Find a stored tensor with this address, in the last allocation that begins at or before the address; None if
        there is none."""
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
    """Look for tensors that contain the missing addresses, until a tensor begins at each of these addresses. Updates
    `missing` and `found`."""
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
    """Yield the tensors in one generation of Python's garbage collector with their allocations, the youngest first."""
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
    """Return begin and end address of a tensor's allocation. None for a tensor without memory of its own: meta, fake,
    functional, batched or sparse tensors, and subclasses that wrap other tensors."""
    with suppress(Exception):
        memory = tensor.untyped_storage()
        # Test the device first, because data_ptr() of a fake tensor prints a warning.
        if memory.device.type != "meta" and (begin := memory.data_ptr()):
            return begin, begin + memory.nbytes()
    return None


def cpu_bytes(tensor: Any, start: int, size: int) -> memoryview | None:
    """Return a writable view of part of a CPU tensor's allocation, as bytes; None for a tensor without memory of its
    own. No operator of torch is called, because a library may have replaced the operator by a kernel."""
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
