"""What atomics make of memory, against Python's numbers."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.atomics import combination  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402

EDGES = [0, 1, 5, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF]


def signed(n, bits):
    return n - ((n >> bits - 1) << bits)


@pytest.mark.parametrize("kind", ["u32", "s32", "b32", "u64", "s64", "b64"])
@pytest.mark.parametrize("name", ["add", "min", "max", "and", "or", "xor", "exch", "inc", "dec"])
def test_whole_numbers(name, kind):
    bits = int(kind[1:])
    edges = [n << bits - 32 | n & 3 for n in EDGES]
    old, new = (np.array(one, f"u{bits // 8}") for one in zip(*((x, y) for x in edges for y in edges), strict=True))
    number = (lambda n: signed(n, bits)) if kind[0] == "s" else (lambda n: n)
    function = {
        "add": lambda a, b: a + b,
        "min": min,
        "max": max,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "exch": lambda a, b: b,
        "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if a == 0 or a > b else a - 1,
    }[name]
    found = combination(name, kind, False)(old, new)
    pairs = zip(old.tolist(), new.tolist(), strict=True)
    assert found.dtype == old.dtype
    assert found.tolist() == [function(number(a), number(b)) % (1 << bits) for a, b in pairs]


@pytest.mark.parametrize("kind", ["b32", "b64", "b16", "f32"])
def test_compare_and_swap_and_exchange_look_at_bits(kind):
    dtype = f"u{int(kind[1:]) // 8}"
    old, wanted, new = (np.array(one, dtype) for one in ([0, 7, 0x8000], [0, 8, 0], [9, 9, 9]))
    assert combination("cas", kind, False)(old, wanted, new).tolist() == [9, 7, 0x8000]
    assert combination("exch", kind, False)(old, new).tolist() == [9, 9, 9]


def test_floats_are_added():
    small, half = np.array([1, 0x3F80_0000], np.uint32), np.array([1, 0x4000_0000], np.uint32)
    assert combination("add", "f32", False)(small, half).tolist() == [2, 0x4040_0000]
    assert combination("add", "f32", True)(small, half).tolist() == [0, 0x4040_0000]
    one = np.array([0x3FF0_0000_0000_0000], np.uint64)
    assert combination("add", "f64", False)(one, one) == 0x4000_0000_0000_0000
    quiet, signals = (np.array([code], np.uint64) for code in (0x7FF8_0000_0000_0001, 0x7FF0_0000_0000_0002))
    for old, new, stored in ((one, signals, signals), (quiet, one, quiet), (quiet, signals, signals)):  # as on an H100
        assert combination("add", "f64", False)(old, new) == stored
    halves = np.array([0x3C00_4000], np.uint32)  # 1 and 2
    assert combination("add", "f16x2", False)(halves, halves) == 0x4000_4400
    assert combination("add", "bf16x2", False)(
        np.array([0x3F80_4000], np.uint32), np.array([0x3F80_3F80], np.uint32)
    ) == (0x4000_4040)
    found = combination("add", "bf16", False)(np.array([0x3F80], np.uint16), np.array([0x4000], np.uint16))
    assert found.dtype == np.uint16 and found == 0x4040
    with pytest.raises(NotUnderstood, match="min of f32"):
        combination("min", "f32", False)
