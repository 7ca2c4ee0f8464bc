"""Contents of a launch's buffers: recorded, or generated with the same bytes on every machine. Floating-point formats
are named by torch's dtypes."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonhook._util.files import MOST_BYTES, read_regular
from tritonhook.capture.launches.record import DTYPE_BYTES, Launch
from tritonhook.errors import UsageError

# Kinds of contents of buffers before a launch. RECORDED: the recorded contents; without them, normal floating-point
# numbers and zero integers. Callers apply the other kinds only to buffers whose contents determine no address and no
# branch.
RECORDED, NORMAL, ZEROS, DENORMALS, SPECIAL = "recorded", "normal", "zeros", "denormals", "special"
INPUTS = (RECORDED, NORMAL, ZEROS, DENORMALS, SPECIAL)


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A floating-point format: sign bit, exponent, mantissa, from the highest bit. exponent, mantissa: number of bits.
    has_infinity: True if the highest exponent means infinity or NaN. If False, the only NaN has all bits of exponent
    and mantissa set, as in e4m3fn."""

    bits: int
    exponent: int
    mantissa: int
    has_infinity: bool = True

    @property
    def magnitude(self) -> int:
        """Mask of all bits except the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def first_not_finite(self) -> int:
        """The bits of the smallest magnitude that is not a finite number."""
        return ((1 << self.exponent) - 1) << self.mantissa if self.has_infinity else self.magnitude

    def is_nan(self, bits: int) -> bool:
        magnitude = bits & self.magnitude
        return magnitude > self.first_not_finite if self.has_infinity else magnitude == self.magnitude

    def is_finite(self, bits: int) -> bool:
        return bits & self.magnitude < self.first_not_finite

    def value(self, bits: int) -> float:
        magnitude = bits & self.magnitude
        sign = -1.0 if bits > self.magnitude else 1.0
        if self.is_nan(bits):
            return math.nan
        if not self.is_finite(bits):
            return sign * math.inf
        exponent, mantissa = magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1)
        if exponent:
            mantissa += 1 << self.mantissa
        return sign * math.ldexp(mantissa, max(exponent, 1) - self.bias - self.mantissa)

    def ulps(self, a: int, b: int) -> int:
        """Return the distance from a to b in units in the last place; 0 and -0 are the same number. a, b: bits."""
        return abs(self._place(a) - self._place(b))

    def _place(self, bits: int) -> int:
        magnitude = bits & self.magnitude
        return -magnitude if bits > self.magnitude else magnitude


_FLOAT32, _FLOAT64 = FloatFormat(32, 8, 23), FloatFormat(64, 11, 52)
FLOATS: Mapping[str, FloatFormat] = {
    "float16": FloatFormat(16, 5, 10),
    "bfloat16": FloatFormat(16, 8, 7),
    "float32": _FLOAT32,
    "float64": _FLOAT64,
    "complex64": _FLOAT32,
    "complex128": _FLOAT64,
    "float8_e4m3fn": FloatFormat(8, 4, 3, has_infinity=False),
    "float8_e5m2": FloatFormat(8, 5, 2),
}


# Elements after which the special numbers repeat. It is a prime, so that each row of a matrix has few of them, in
# different columns.
_PERIOD = 1031
_DRAWN = 1 << 20  # bytes generated at once
_Mask = tuple[int, int]  # (mask of the bits that stay random, bits that are set)


def before(launch: Launch, folder: Path | None, number: int, name: str, keep: Collection[int] = ()) -> bytes:
    """Return the contents of a buffer before a launch. name: one of INPUTS. keep: numbers of buffers that always get
    their recorded contents. folder: folder of the recorded contents. Raises UsageError if a recorded file has a wrong
    size."""
    buffer = launch.buffers[number]
    name = RECORDED if number in keep else name
    if name == RECORDED and folder is not None and buffer.values is not None:
        path = folder / buffer.values
        if path.exists():
            data = read_regular(path, max(buffer.size, MOST_BYTES))
            if len(data) != buffer.size:
                raise UsageError(
                    f"{path}: {len(data)} bytes, but the record says {buffer.size}; record the launch again"
                )
            return data
    return made(buffer.size, buffer.dtype, number, name)


def made(size: int, dtype: str, number: int, name: str) -> bytes:
    """Generate the contents of a buffer of `size` bytes. number: number of the buffer, the seed of its random bits.
    name: one of INPUTS.

    With RECORDED, which means here that no contents were recorded, integers are zero, because they may be indices.
    """
    form = FLOATS.get(dtype)
    width = DTYPE_BYTES[dtype]
    if dtype == "bool":
        return b"" if not size else _masked(size, 1, [(1, 0)] if name not in (ZEROS, RECORDED) else [(0, 0)], number)
    if dtype == "float8_e8m0fnu":
        return b"\x7f" * size  # each element is 2^0
    if form is not None:
        return _masked(size, form.bits // 8, _float_masks(form, name), number)
    whole = (1 << 8 * width) - 1
    if name in (ZEROS, RECORDED):
        return bytes(size)
    return _masked(size, width, _integer_masks(8 * width) if name == SPECIAL else [(whole, 0)], number)


def _float_masks(form: FloatFormat, name: str) -> list[_Mask]:
    sign, mantissa = 1 << (form.bits - 1), (1 << form.mantissa) - 1
    normal = (sign | mantissa | 3 << form.mantissa, (form.bias - 3) << form.mantissa)  # numbers from 0.125 to 2
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
    return [(whole, 0), (0, whole), (0, sign), (0, sign - 1), (0, 0), (0, 1), (255, 0)]  # random, -1, min, max, 0, ...


def _scattered(normal: _Mask, special: Sequence[_Mask]) -> list[_Mask]:
    masks = [normal] * _PERIOD
    for index, mask in enumerate(special):
        masks[index * _PERIOD // len(special) + 3] = mask
    return masks


def _masked(size: int, width: int, masks: Sequence[_Mask], seed: int) -> bytes:
    """Generate random elements of `width` bytes, and apply the masks to them in turn. Bytes after the last whole
    element are 0."""
    draw, whole = random.Random(f"tritonhook {seed}"), size // width * width
    # Each part generated at once has whole periods of masks, and whole 32-bit words, the unit of the random generator.
    period = 4 * width * len(masks)
    keep, fill = (b"".join(mask[i].to_bytes(width, "little") for mask in masks) * 4 for i in (0, 1))
    times = max(1, _DRAWN // period)
    made = bytearray(size)
    for start in range(0, whole, times * period):
        count = min(times * period, whole - start)
        kept, filled = (int.from_bytes((one * -(-count // period))[:count], "little") for one in (keep, fill))
        bits = int.from_bytes(draw.randbytes(count), "little")
        made[start : start + count] = (bits & kept | filled).to_bytes(count, "little")
    return bytes(made)
