"""Compare contents of buffers bit by bit, and measure how far floating-point numbers are apart. Pure functions."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tritonhook.capture.launches.contents import FLOATS, FloatFormat
from tritonhook.capture.launches.record import DTYPE_BYTES, Launch
from tritonhook.verify.model import Difference, Element

_SHOWN = 8  # number of elements that a Difference lists
_MEASURED = 1 << 17  # only the first differing elements are measured, at most this many
_SAMPLED = 1 << 20  # at most this many elements are searched for the largest magnitude
_CHUNK = 1 << 16
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def difference(buffer: int, dtype: str, reference: bytes, other: bytes) -> Difference | None:
    """Describe how `other` differs from `reference`, which has the same size; None if all bits are equal. buffer:
    number of the buffer."""
    if reference == other:
        return None
    form = FLOATS.get(dtype)
    width = DTYPE_BYTES[dtype] if form is None else form.bits // 8
    if len(reference) % width or width not in _CODES:
        form, width = None, 1
    differing = list(_differing(reference, other, width))
    first = tuple(_element(index, a, b, width, form) for index, a, b in differing[:_SHOWN])
    digest = hashlib.blake2b(other, digest_size=12).hexdigest()
    known = Difference(buffer, dtype, len(reference) // width, len(differing), digest, first)
    return known if form is None else _measured(known, form, reference, differing[:_MEASURED], len(differing))


def differences(launch: Launch, reference: Sequence[bytes], other: Sequence[bytes]) -> Iterator[Difference]:
    """Describe each buffer of a launch whose bits differ from the reference."""
    for number, (a, b) in enumerate(zip(reference, other, strict=True)):
        if (differing := difference(number, launch.buffers[number].dtype, a, b)) is not None:
            yield differing


def _differing(reference: bytes, other: bytes, width: int) -> Iterator[tuple[int, int, int]]:
    """Yield (index, bits in `reference`, bits in `other`) for each element that differs. width: bytes of an
    element."""
    code = _CODES[width]
    for start in range(0, len(reference), _CHUNK):
        a, b = reference[start : start + _CHUNK], other[start : start + _CHUNK]
        if a != b:
            pairs = zip(array(code, a), array(code, b), strict=True)
            yield from ((start // width + i, x, y) for i, (x, y) in enumerate(pairs) if x != y)


def _element(index: int, a: int, b: int, width: int, form: FloatFormat | None) -> Element:
    values = (str(a), str(b)) if form is None else (f"{form.value(a):.9g}", f"{form.value(b):.9g}")
    return Element(index, (f"{a:0{2 * width}x}", f"{b:0{2 * width}x}"), values)


def _measured(
    known: Difference, form: FloatFormat, reference: bytes, pairs: list[tuple[int, int, int]], differing: int
) -> Difference:
    """Add distances to `known`, a difference of floating-point numbers. pairs: differing elements, as _differing yields
    them."""
    nans = sum(form.is_nan(a) and form.is_nan(b) for _, a, b in pairs)
    if nans == len(pairs):
        return replace(known, only_nans=True, measured=len(pairs))
    finite = [(a, b) for _, a, b in pairs if form.is_finite(a) and form.is_finite(b)]
    if len(finite) + nans < len(pairs):  # somewhere one side is NaN or infinite: no distance
        return replace(known, measured=len(pairs))
    ulps = max(form.ulps(a, b) for a, b in finite)
    apart = max(abs(form.value(a) - form.value(b)) for a, b in finite)
    largest = max(_largest(reference, form), max(abs(form.value(a)) for a, _ in finite))
    share = 0.0 if apart == 0 else apart / largest if largest else math.inf
    return replace(known, ulps=ulps, share=share if math.isfinite(share) else None, measured=len(pairs))


def _largest(data: bytes, form: FloatFormat) -> float:
    """Find the largest finite magnitude in a buffer. A large buffer is sampled at equal steps."""
    elements = array(_CODES[form.bits // 8], data)
    mask, limit = form.magnitude, form.first_not_finite
    step = -(-len(elements) // _SAMPLED)
    magnitudes = (bits & mask for bits in elements[::step])
    return form.value(max((bits for bits in magnitudes if bits < limit), default=0))
