"""Read the bytes of TMA descriptors that a program passes, and decode them with tensor_bits.py."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tritonhook.capture.launches.record import Tiling
from tritonhook.capture.launches.tensor_bits import BYTES as BYTES
from tritonhook.capture.launches.tensor_bits import USED, read
from tritonhook.capture.launches.tensor_bits import encoded as encoded
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError

Encode = Callable[[Tiling, int], Any]


def decoded(data: bytes, encode: Encode | None = None) -> tuple[int, Tiling] | None:
    """Decode a descriptor into (address, other fields). None if the bytes are not a descriptor, or if its form is
    unknown.

    encode: encodes a descriptor as the driver does; default: the driver. A descriptor that was not made by host code is
    accepted only if `encode` makes the same bytes from the decoded fields.
    """
    if len(data) != BYTES or (found := read(data)) is None:
        return None
    address, tiling = found
    if encoded(tiling, address) == data[:USED]:
        return found
    tiling = replace(tiling, by_host=False)
    with suppress(DeviceError):
        if _comparable((encode or Driver().tensor_map)(tiling, address)) == _comparable(data):
            return address, tiling
    return None


def bytes_of(argument: Any) -> bytes | None:
    """Read the bytes of a descriptor that a program passes as one of three objects: an object with
    `tma_desc_cpu_ptr()`, a tensor map of cuda-bindings, or a descriptor of Triton's driver. None for any other
    object."""
    if (get := getattr(argument, "tma_desc_cpu_ptr", None) or getattr(argument, "getPtr", None)) is not None:
        return ctypes.string_at(int(get()), BYTES)
    kind = type(argument)
    if kind.__name__ == "PyCUtensorMap" and kind.__basicsize__ > BYTES:  # the descriptor is at the end of the object
        return ctypes.string_at(id(argument) + kind.__basicsize__ - BYTES, BYTES)
    return None


def _comparable(data: Any) -> bytes:
    """Return the bytes with bit 21 of word 1 cleared. Some drivers set it wrongly, and some programs clear it."""
    made = bytearray(data)
    made[10] &= ~(1 << 5)
    return bytes(made)
