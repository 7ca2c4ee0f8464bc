"""Damaged and hostile fat binaries: read once, within one limit."""

from __future__ import annotations

import struct

from damage import damaged_bytes, no_hang
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cubin.test_fatbin import FIRST, SECOND, entry, fatbin
from tritonhook.cubin.shipped import embedded_cubins

from .conftest import ABUSE, LARGE

NESTED = fatbin(entry(fatbin(entry(FIRST), entry(b".version 9.0", kind=1))), entry(SECOND))
HEADERS = st.builds(
    lambda magic, size, kind, header, payload: (
        struct.pack("<IHHQ", magic, 1, 16, size) + struct.pack("<HHIQ", kind, 1, header, payload)
    ),
    st.sampled_from([0xBA55ED50, 0xBA55ED50, 0]),
    st.integers(0, 1 << 20),
    st.integers(1, 8),
    st.sampled_from([0, 16, 24, 64, 72]),
    st.integers(0, 4096),
)


@settings(ABUSE)
@given(damaged_bytes(NESTED))
def test_a_damaged_one_gives_what_is_whole(data: bytes) -> None:
    with no_hang():
        assert set(embedded_cubins(data).cubins) <= {FIRST, SECOND} or data != NESTED


@settings(ABUSE)
@given(st.lists(HEADERS, min_size=1, max_size=40))
def test_many_headers_end(headers: list[bytes]) -> None:
    """A million bytes of headers that point into one another."""
    data = b"".join(headers)
    with no_hang():
        found = embedded_cubins(data * ((1 << 20 if LARGE else 1 << 17) // len(data)))
    assert sum(map(len, found.cubins)) <= found.limit
