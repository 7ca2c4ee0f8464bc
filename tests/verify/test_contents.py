"""Made contents, and how far floating-point numbers lie apart."""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from tritonhook.capture.launches.contents import (
    DENORMALS,
    FLOATS,
    INPUTS,
    NORMAL,
    RECORDED,
    SPECIAL,
    ZEROS,
    before,
    made,
)
from tritonhook.capture.launches.record import Buffer, Launch
from tritonhook.errors import UsageError
from tritonhook.verify.contents import difference
from tritonhook.verify.model import Difference, Element


def values(dtype: str, name: str, elements: int = 4000) -> list[float]:
    form = FLOATS[dtype]
    data = made(elements * form.bits // 8, dtype, 1, name)
    return [form.value(bits) for bits in array({8: "B", 16: "H", 32: "I", 64: "Q"}[form.bits], data)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"])
def test_each_kind_of_numbers(dtype: str) -> None:
    form = FLOATS[dtype]
    least = math.ldexp(1, 1 - form.bias)  # the smallest number that is no denormal
    assert all(0.125 <= abs(x) < 2 for x in values(dtype, NORMAL))
    assert {math.copysign(1, x) for x in values(dtype, NORMAL)} == {1, -1}
    assert set(values(dtype, ZEROS)) == {0}
    denormal = values(dtype, DENORMALS)
    assert sum(0 < abs(x) < least for x in denormal) > 1000 and max(map(abs, denormal)) < 2
    assert any(least <= abs(x) < 8 * least for x in denormal), "products of these are denormal"
    special = values(dtype, SPECIAL)
    assert any(math.isnan(x) for x in special) and any(math.isinf(x) for x in special) == form.has_infinity
    assert sum(not 0.125 <= abs(x) < 2 for x in special) < 40, "most numbers are usual ones: a NaN spreads"


def test_the_formats_are_those_of_struct() -> None:
    for dtype, code, whole in (("float16", "e", "H"), ("float32", "f", "I"), ("float64", "d", "Q")):
        for x in (0.0, 1.5, -2.75, 6e-8, math.inf, 65504.0):
            bits = struct.unpack(f"<{whole}", struct.pack(f"<{code}", x))[0]
            assert FLOATS[dtype].value(bits) == struct.unpack(f"<{code}", struct.pack(f"<{code}", x))[0]
    assert FLOATS["float8_e4m3fn"].value(0x7E) == 448 and math.isnan(FLOATS["float8_e4m3fn"].value(0x7F))


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize(
    ("dtype", "size"),
    [("int64", 80), ("bool", 13), ("float32", 0), ("float4_e2m1fn_x2", 9), ("int32", 7), ("float8_e8m0fnu", 5)],
)
def test_contents_have_their_size_and_are_the_same_again(name: str, dtype: str, size: int) -> None:
    data = made(size, dtype, 3, name)
    assert len(data) == size and data == made(size, dtype, 3, name)
    if dtype == "bool":
        assert set(data) <= {0, 1}
    if dtype == "int64" and name in (RECORDED, ZEROS):
        assert not any(data), "integers may be indices"


def test_integers_reach_their_extremes() -> None:
    found = set(array("i", made(4000, "int32", 0, SPECIAL)))
    assert {-1, 0, 1, 2**31 - 1, -(2**31)} <= found and len(found) > 100


def test_distances_are_told_in_units_in_the_last_place() -> None:
    found = difference(0, "float32", struct.pack("<4f", 1, 2, 4, -0.0), struct.pack("<4f", 1, 2.0000005, 4, 0.0))
    assert found is not None
    assert (found.differing, found.ulps, found.first[0].index) == (2, 2, 1)
    assert found.share == pytest.approx(2**-21 / 4)
    assert difference(0, "float32", b"\0" * 16, b"\0" * 16) is None


def test_numbers_against_zeros_alone_have_no_share() -> None:
    found = difference(0, "float32", bytes(8), struct.pack("<2f", 0, 1))
    assert found is not None and found.ulps == 0x3F800000 and found.share is None


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def test_a_whole_difference() -> None:
    """Of floating-point numbers, of integers, and of bytes where the size is not that of whole elements."""
    same, other = struct.pack("<3e", 1, -2, 8), struct.pack("<3e", 1, -2.5, 8)
    element = Element(1, ("c000", "c100"), ("-2", "-2.5"))
    assert difference(3, "float16", same, other) == Difference(
        3, "float16", 3, 1, digest(other), (element,), ulps=256, share=0.5 / 8, measured=1
    )
    element = Element(1, ("05", "07"), ("5", "7"))
    wanted = Difference(1, "int32", 3, 1, digest(b"\4\7\6"), (element,))
    assert difference(1, "int32", b"\4\5\6", b"\4\7\6") == wanted
    assert difference(1, "float32", b"\4\5\6", b"\4\7\6") == replace(wanted, dtype="float32")
    both = (struct.pack("<4I", *([bits] * 4)) for bits in (0x7FC00000, 0xFFC00001))
    nans = difference(0, "float32", *both)
    assert nans is not None and (nans.only_nans, nans.ulps, nans.share, nans.measured) == (True, None, None, 4)


def test_a_difference_lists_its_first_elements_and_counts_all() -> None:
    size = 1 << 17
    data = bytearray(size)
    changed = [5, *range((1 << 16) - 4, (1 << 16) + 12, 2), size - 2]
    for place in changed:
        data[place] = 1
    found = difference(0, "int16", bytes(size), bytes(data))
    assert found is not None and (found.elements, found.differing, found.measured) == (size // 2, len(changed), 0)
    assert found.first == tuple(
        Element(at // 2, ("0000", "0100" if at == 5 else "0001"), ("0", "256" if at == 5 else "1"))
        for at in changed[:8]
    )


def test_what_was_recorded_is_held_where_it_is_asked_for(tmp_path: Path) -> None:
    buffers = (Buffer(3, "uint8", "kept.bin"), Buffer(3, "uint8", "gone.bin"), Buffer(3, "uint8"))
    launch = Launch("k", (1, 1, 1), (1, 1, 1), (), buffers)
    (tmp_path / "kept.bin").write_bytes(b"abc")
    recorded = [before(launch, tmp_path, number, RECORDED) for number in range(3)]
    assert recorded == [b"abc", bytes(3), bytes(3)] and before(launch, None, 0, RECORDED) == bytes(3)
    assert [before(launch, tmp_path, 0, NORMAL, keep) for keep in ([0], [1])] == [b"abc", made(3, "uint8", 0, NORMAL)]
    (tmp_path / "kept.bin").write_bytes(b"abcd")
    with pytest.raises(UsageError) as raised:
        before(launch, tmp_path, 0, RECORDED)
    assert str(raised.value) == f"{tmp_path / 'kept.bin'}: 4 bytes, but the record says 3; record the launch again"
