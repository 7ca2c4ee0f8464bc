"""What the buffers of a launch hold before it: recorded, or made. Pure; the same bytes on every machine.

Random bits are cut to the wanted kind of number by masks that repeat, so that 100 MB take a fraction of a second.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path

from tritonhook._util.files import MOST_BYTES, read_regular
from tritonhook.capture.launches.record import DTYPE_BYTES, Launch
from tritonhook.errors import UsageError
from tritonhook.verify.formats import FLOATS, FloatFormat
from tritonhook.verify.model import DENORMALS, RECORDED, SPECIAL, ZEROS

_PERIOD = 1031  # between special numbers: a prime, so that each row has few, and in other columns
_MOST_DRAWN = 1 << 26  # bytes at once: Random.randbytes takes less than 256 MiB
_Mask = tuple[int, int]  # bits that stay random, bits that are set


def before(launch: Launch, folder: Path | None, number: int, name: str, keep: Collection[int] = ()) -> bytes:
    """What a buffer of a launch holds before it, under an input. keep: buffers that hold what was recorded under every
    input. folder: where the recorded contents are. Raises UsageError if they have another size."""
    buffer = launch.buffers[number]
    name = RECORDED if number in keep else name
    if name == RECORDED and folder is not None and buffer.values is not None:
        path = folder / buffer.values
        if path.exists():
            data = read_regular(path, max(buffer.size, MOST_BYTES))
            if len(data) != buffer.size:
                raise UsageError(f"{path}: {len(data)} bytes, but the record says {buffer.size}; record it again")
            return data
    return made(buffer.size, buffer.dtype, number, name)


def made(size: int, dtype: str, number: int, name: str) -> bytes:
    """The contents of a buffer of `size` bytes under an input. number: the buffer's, which seeds its random bits.

    Under RECORDED, that is where nothing was recorded, integers are zeros: they may be indices.
    """
    form = FLOATS.get(dtype)
    width = DTYPE_BYTES[dtype]
    if dtype == "bool":
        return b"" if not size else _masked(size, 1, [(1, 0)] if name not in (ZEROS, RECORDED) else [(0, 0)], number)
    if dtype == "float8_e8m0fnu":
        return b"\x7f" * size  # 2^0
    if form is not None:
        return _masked(size, form.bits // 8, _float_masks(form, name), number)
    whole = (1 << 8 * width) - 1
    if name in (ZEROS, RECORDED):
        return bytes(size)
    return _masked(size, width, _integer_masks(8 * width) if name == SPECIAL else [(whole, 0)], number)


def _float_masks(form: FloatFormat, name: str) -> list[_Mask]:
    sign, mantissa = 1 << (form.bits - 1), (1 << form.mantissa) - 1
    normal = (sign | mantissa | 3 << form.mantissa, (form.bias - 3) << form.mantissa)  # 0.125 to 2
    if name == ZEROS:
        return [(sign, 0)]
    if name == DENORMALS:
        tiny = (sign | mantissa | 3 << form.mantissa, 0)
        return [(sign | mantissa, 0), normal, tiny]
    if name != SPECIAL:
        return [normal]
    top = form.first_not_finite
    nan = (sign | mantissa >> 1, top | 1 << (form.mantissa - 1)) if form.has_infinity else (sign, form.magnitude)
    special = [nan, (sign, top - 1), (0, sign), (sign, 1)]  # NaN with a payload, largest, -0, smallest denormal
    if form.has_infinity:
        special.append((sign, top))
    return _scattered(normal, special)


def _integer_masks(bits: int) -> list[_Mask]:
    whole, sign = (1 << bits) - 1, 1 << (bits - 1)
    return [(whole, 0), (0, whole), (0, sign), (0, sign - 1), (0, 0), (0, 1), (255, 0)]  # random, -1, least, most, ...


def _scattered(normal: _Mask, special: Sequence[_Mask]) -> list[_Mask]:
    masks = [normal] * _PERIOD
    for index, mask in enumerate(special):
        masks[index * _PERIOD // len(special) + 3] = mask
    return masks


def _masked(size: int, width: int, masks: Sequence[_Mask], seed: int) -> bytes:
    """Random bytes, of which each element is cut by the next of the masks; the rest behind the last element is 0."""
    period = width * len(masks)
    times = -(-size // period) if size else 0
    keep, fill = (b"".join(mask[i].to_bytes(width, "little") for mask in masks) * times for i in (0, 1))
    whole = size // width * width
    bits = int.from_bytes(_random_bytes(whole, seed), "little")
    cut = bits & int.from_bytes(keep[:whole], "little") | int.from_bytes(fill[:whole], "little")
    return cut.to_bytes(whole, "little") + bytes(size - whole)


def _random_bytes(size: int, seed: int) -> bytes:
    draw = random.Random(f"tritonhook {seed}")
    return b"".join(draw.randbytes(min(_MOST_DRAWN, size - start)) for start in range(0, size, _MOST_DRAWN))
