"""ABI: how a compiled host function takes its arguments, written into one buffer by one struct.pack_into.

A compiled function of the CuTe DSL is called with an array of pointers, one per argument, and one more for the CUDA
error that it returns. A tensor is a struct {data; dynamic sizes; dynamic strides} with C's alignment, as in the header
that the DSL's export_to_c writes (a test compares them). Writing the structs directly makes a call cheap, and needs no
DLPack. This module imports neither torch nor the DSL.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

SCALARS = {"Int32": "i", "Int64": "q", "Float32": "f", "CUstream": "P", "_FakeStream": "P"}
INTEGERS = {32: "i", 64: "q"}


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument: its name, and the `struct` format codes of the values that are passed for it.

    rank: number of dimensions of a tensor; 0 for a scalar. sizes, strides: how many sizes and strides are passed, from
    the first dimension on. The others are constants of the kernel.
    """

    name: str
    codes: str
    rank: int = 0
    sizes: int = 0
    strides: int = 0


def slots_of(names: Sequence[str], arguments: Sequence[Any]) -> tuple[Slot, ...]:
    """Make the slots of a host function from the fake arguments that it is compiled with. A None gets no slot."""
    return tuple(_slot(name, argument) for name, argument in zip(names, arguments, strict=True) if argument is not None)


def _slot(name: str, argument: Any) -> Slot:
    if hasattr(argument, "element_type") and hasattr(argument, "stride"):
        sizes, strides = _passed(name, argument.shape), _passed(name, argument.stride)
        return Slot(name, f"P{sizes}{strides}", len(argument.shape), len(sizes), len(strides))
    kind = type(argument).__name__
    if kind not in SCALARS:
        raise TypeError(f"argument {name} is a {kind}: must be a tensor or one of {', '.join(SCALARS)}")
    return Slot(name, SCALARS[kind])


def _passed(name: str, numbers: Sequence[Any]) -> str:
    """Return the format codes of the sizes or strides that are passed at each call."""
    widths = [getattr(number, "width", None) for number in numbers]
    passed = [width for width in widths if width]
    if widths[: len(passed)] != passed:
        raise TypeError(f"argument {name} has a fixed dimension before a dynamic one: dynamic ones must come first")
    return "".join(INTEGERS[width] for width in passed)


def to_json(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    return [asdict(slot) for slot in slots]


def from_json(items: Sequence[dict[str, Any]]) -> tuple[Slot, ...]:
    return tuple(Slot(**item) for item in items)


class Layout:
    """Layout of a kernel's slots in a buffer. Made once per kernel.

    places: for each argument, the index of the 64-bit word at which its slot begins. A tensor's slot begins with its
    address; the stream's slot is one word.
    """

    __slots__ = ("offsets", "packer", "places", "slots")

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.slots = tuple(slots)
        self.offsets, text = [], "@"
        for slot in self.slots:
            # "0q" aligns each slot to 8 bytes; inside a slot, struct's native mode aligns as C does.
            text += "0q"
            self.offsets.append(struct.calcsize(text))
            text += slot.codes
        self.packer = struct.Struct(text)
        self.places = {slot.name: at // 8 for slot, at in zip(self.slots, self.offsets, strict=True)}


class ArgumentBuffer:
    """The arguments of a call, for one thread. Call `fill` once; later calls change single `words`.

    words: the buffer as 64-bit words, see Layout.places. address: the argument of Compiled.entry.
    error: the cudaError_t of the last call.
    """

    __slots__ = ("_memory", "_packer", "address", "error", "pointers", "words")

    def __init__(self, layout: Layout) -> None:
        self._packer = layout.packer
        self._memory = (ctypes.c_uint64 * max(-(-layout.packer.size // 8), 1))()
        self.words = memoryview(self._memory).cast("B").cast("Q")
        self.error = ctypes.c_int32(0)
        base = ctypes.addressof(self._memory)
        addresses = [base + offset for offset in layout.offsets]
        self.pointers = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, ctypes.addressof(self.error))
        self.address = ctypes.addressof(self.pointers)

    def fill(self, values: Sequence[Any]) -> None:
        self._packer.pack_into(self.words.cast("B"), 0, *values)


def tensor_values(slot: Slot, address: int, shape: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Compute the values of a tensor's slot: its address, sizes and strides."""
    if len(shape) != slot.rank:
        raise ValueError(f"{slot.name} has {len(shape)} dimensions: must have {slot.rank}")
    return [address, *shape[: slot.sizes], *stride[: slot.strides]]
