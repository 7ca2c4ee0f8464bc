"""Which tensors of torch lie at the addresses that a launch passes, where only the addresses are known."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

_GENERATIONS = (0, 1, 2)


class LiveTensors:
    """The tensors that Python holds. Those that were found before are asked first, then the youngest: what a call has
    just made. Only the search for a tensor that is new and old goes through all objects of the process."""

    def __init__(self) -> None:
        self._found: dict[int, weakref.ref[Any]] = {}  # by the begin of their allocation

    def at(self, addresses: Collection[int]) -> dict[int, Any]:
        """The tensor in whose allocation each address lies; one that begins there where there are several."""
        missing, found = set(addresses), dict[int, Any]()
        known = [tensor for ref in self._found.values() if (tensor := ref()) is not None]
        self._look(known, missing, found)
        torch = sys.modules.get("torch")
        for generation in _GENERATIONS:
            if not missing or torch is None:
                break
            kind = torch.Tensor
            objects = gc.get_objects(generation=generation)
            self._look((one for one in objects if issubclass(type(one), kind)), missing, found)
        self._found |= {tensor.untyped_storage().data_ptr(): weakref.ref(tensor) for tensor in found.values()}
        return found

    def _look(self, tensors: Iterable[Any], missing: set[int], found: dict[int, Any]) -> None:
        for tensor in tensors:
            with suppress(Exception):  # a subclass without memory of its own
                memory = tensor.untyped_storage()
                begin = memory.data_ptr()
                end = begin + memory.nbytes()
                for address in [one for one in missing if begin <= one < end]:
                    found[address] = tensor
                begins_here = tensor.data_ptr()
                if begins_here in found and found[begins_here].data_ptr() != begins_here:
                    found[begins_here] = tensor
        missing -= found.keys()


def is_mapped(address: int) -> bool:
    """Whether this process may read an address."""
    with suppress(OSError), Path("/proc/self/maps").open("rb") as maps:
        for line in maps:
            span, rights = line.split(b" ", 2)[:2]
            begin, _, end = span.partition(b"-")
            if rights.startswith(b"r") and int(begin, 16) <= address < int(end, 16):
                return True
    return False
