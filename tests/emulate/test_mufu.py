"""The special function unit and the functions that PTX makes of it, at the edges and beside them."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")

from tritonhook.emulate.mufu import approximate, mufu, mufu64  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402

NAN, INF, SIGN = 0x7FFFFFFF, 0x7F800000, 1 << 31
LEAST = 2.0**-126
SUBNORMAL = [2.0**-149, 2.0**-127, 1.5 * 2.0**-130, LEAST - 2.0**-149]
VALUES = [*SUBNORMAL, LEAST, 2.0**-100, 0.25, 0.6875, 1.0, 3.0, 100.0, 2.0**127]
VALUES += [-one for one in VALUES]
ODD = [0, SIGN, INF, INF | SIGN, 0x7FC00000, 0xFF800001]  # of both signs: zeros, infinities, NaN


def at_quarters(turns, values, function):
    """Exact at quarters of a turn, with the signs of zeros that an H100 gives."""
    quarter, rest = divmod(4 * (turns % 1), 1)
    return function(2 * math.pi * (turns % 1)) if rest else values[int(quarter)]


EXACT = {
    "ex2": lambda x: 2.0**x if x < 128 else math.inf,
    "lg2": math.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / math.sqrt(x),
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "sin": lambda x: math.copysign(1, x) * at_quarters(abs(x), (0.0, 1, -0.0, -1), math.sin),
    "cos": lambda x: at_quarters(abs(x), (1, -0.0, -1, 0.0), math.cos),
}
ONE = 0x3F800000
AT_ODD = {
    "ex2": [ONE, ONE, INF, 0, NAN, NAN],
    "lg2": [INF | SIGN, INF | SIGN, INF, NAN, NAN, NAN],
    "rcp": [INF, INF | SIGN, 0, SIGN, NAN, NAN],
    "rsq": [INF, INF | SIGN, 0, NAN, NAN, NAN],
    "sqrt": [0, SIGN, INF, NAN, NAN, NAN],
    "tanh": [0, SIGN, ONE, ONE | SIGN, NAN, NAN],
    "sin": [0, SIGN, NAN, NAN, NAN, NAN],
    "cos": [ONE, ONE, NAN, NAN, NAN, NAN],
}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def exact(name, x, flushes):
    """The code of the nearest float32. flushes: subnormal arguments and results."""
    if flushes and abs(x) < LEAST:
        x = math.copysign(0.0, x)
    if x == 0:
        return AT_ODD[name][int(np.signbit(x))]
    if x < 0 and name in ("lg2", "rsq", "sqrt"):
        return NAN
    found = np.float32(EXACT[name](x))
    if flushes and abs(found) < LEAST:
        found = np.copysign(np.float32(0), found)
    return int(found.view(np.uint32))


@pytest.mark.parametrize("name", list(EXACT))
def test_functions_are_the_nearest_number_where_subnormal_ones_are_flushed(name):
    bits = np.concatenate([np.array(VALUES, np.float32).view(np.uint32), np.array(ODD, np.uint32)])
    wanted = [exact(name, x, name != "tanh") for x in VALUES] + AT_ODD[name]
    assert mufu(name, bits).tolist() == wanted
    if name not in ("sin", "cos"):
        assert approximate(name, bits, True).tolist() == wanted


@pytest.mark.parametrize("name", ["ex2", "lg2", "rcp", "rsq", "sqrt", "tanh"])
def test_functions_of_ptx_keep_subnormal_numbers(name):
    """2^24 and such factors bring them into MUFU's range: that is exact, but for the square of half a power."""
    values = [*VALUES, -127.5, -149.0, -200.0, -126.0] if name == "ex2" else VALUES
    bits = np.concatenate([np.array(values, np.float32).view(np.uint32), np.array(ODD, np.uint32)])
    found, wanted = approximate(name, bits, False), [exact(name, x, False) for x in values] + AT_ODD[name]
    for x, one, other in zip(values + ODD, found.tolist(), wanted, strict=True):
        small = (name == "lg2" and abs(x) < LEAST) or (name == "ex2" and x < -126)
        assert one == other or (small and abs(one - other) <= 4), x


@pytest.mark.parametrize("ftz", [False, True])
def test_sine_and_cosine_of_ptx_take_radians(ftz):
    x = np.array([0.5, -0.5, 1.0, 3.0, -3.0, 100.0], np.float32)
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        found = approximate(name, x.view(np.uint32), ftz).view(np.float32)
        assert np.abs(found - function(x.astype(np.float64))).max() < 2.0**-16
    tiny = np.array([2.0**-128], np.float32).view(np.uint32)
    assert approximate("sin", tiny, ftz) == 0


def test_upper_words_of_doubles():
    values = [1.0, -2.0, 3.0, 4.0, 2.0**1023, 2.0**-1022, 2.0**-1030, -0.0, 0.0, math.inf, -math.inf, math.nan]
    high = (np.array(values).view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    for name in ("rcp", "rsq"):
        for x, found in zip(values, mufu64(name, high).tolist(), strict=True):
            x = math.copysign(0.0, x) if abs(x) < 2.0**-1022 else x
            root = x if name == "rcp" or x == 0 else math.sqrt(x) if x > 0 else math.nan
            wanted = math.copysign(math.inf, root) if root == 0 else 1 / root
            wanted = math.copysign(0.0, wanted) if abs(wanted) < 2.0**-1022 else wanted
            word = int(np.float64(wanted).view(np.uint64)) >> 32
            assert found == (NAN if wanted != wanted else word), (name, x)


def test_other_functions_are_refused():
    x = np.array([ONE], np.uint32)
    for refused in (
        lambda: mufu("sinh", x),
        lambda: mufu64("sqrt", x),
        lambda: approximate("erf", x, False),
        lambda: approximate("erf", x, True),
    ):
        with pytest.raises(NotUnderstood):
            refused()
