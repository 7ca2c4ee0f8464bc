"""Compiled sums of tensor cores, and compiled fma, give the bits of NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulated import run_body  # isort: skip

from tritonhook.emulate import compiled as fma
from tritonhook.emulate.numbers import decode
from tritonhook.emulate.tensor_core import compiled
from tritonhook.emulate.tensor_core.sums import Sums, multiply

_UNSIGNED = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32, "e4m3": np.uint8, "e5m2": np.uint8}
_EXPONENT = {"bf16": np.uint16(0x7F80), "tf32": np.uint32(0x7F80_0000)}


def _codes(random: Any, shape: tuple[int, ...], name: str, specials: bool) -> Any:
    """Any codes, some of them zeros; NaN and infinite only with `specials`."""
    kind = _UNSIGNED.get(name, np.uint32)
    codes = random.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)
    codes[random.random(shape) < 0.1] = 0
    return codes if specials else np.where(np.isfinite(decode(codes, name)), codes, kind(0))


@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize(
    ("name", "k", "sums"),
    [
        ("f16", 16, Sums(25, 16)),
        ("bf16", 16, Sums(24, 8)),
        ("tf32", 8, Sums(25, 8)),
        ("e4m3", 32, Sums(13, 32, "f32", 13)),
        ("e5m2", 32, Sums(13, 16, "f32", 13)),
    ],
)
def test_same_bits(monkeypatch: pytest.MonkeyPatch, name: str, k: int, sums: Sums, specials: bool) -> None:
    pytest.importorskip("triton")
    if not compiled.is_there():
        pytest.skip("no compiler for this computer")
    random = np.random.default_rng(0)
    for *tiles, m, n in ((64, 64), (5, 16, 8), (3, 64, 40)):
        shapes = (*tiles, m, k), (*tiles, k, n), (*tiles, m, n)
        given = [_codes(random, shape, one, specials) for shape, one in zip(shapes, (name, name, "f32"), strict=True)]
        cases = [given, [*given[:2], _small(random, shapes[2])]]
        if name in _EXPONENT:  # products below the least exponent that counts
            least = [
                one & ~_EXPONENT[name] | _EXPONENT[name].dtype.type(57 * (int(_EXPONENT[name]) & -int(_EXPONENT[name])))
                for one in given[:2]
            ]
            cases.append([*least, np.zeros_like(given[2])])
        with np.errstate(all="ignore"):
            for a, b, c in cases:
                found = multiply(a, b, c, (name, name, "f32"), sums)
                with monkeypatch.context() as patch:
                    patch.setattr(compiled, "is_there", lambda: False)
                    wanted = multiply(a, b, c, (name, name, "f32"), sums)
                np.testing.assert_array_equal(found, wanted)


def test_same_bits_of_fma(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with NumPy: any codes, small numbers, sums halfway between two numbers; some lanes; target a source."""
    pytest.importorskip("triton")
    if not compiled.is_there():
        pytest.skip("no compiler for this computer")
    random = np.random.default_rng(0)
    halfway = np.resize(np.array([0x3F80_0001, 0x3F80_0001, 0x3300_0000], np.uint32)[:, None], (3, 512))
    both = [_codes(random, (3, 4096), "f32", True), _small(random, (3, 4096)), np.repeat(halfway, 8, 1)]
    x = np.ascontiguousarray(np.concatenate(both, 1))
    names = zip(("%r1", "%r2", "%r3", "%r4"), ("%rd20", "%rd21", "%rd22", "%rd23"), strict=True)
    place = "mad.wide.u32 %rd1, %r20, 4, {}; ld.global.b32 {}, [%rd1];"
    body = " ".join(place.format(address, name) for name, address in names)
    body += f"""and.b32 %r5, %r20, 7; setp.ne.u32 %p1, %r5, 3; fma.rn.f32 %r6, %r1, %r2, %r3; @%p1 bra END;
    fma.rn.f32 %r4, %r1, %r2, %r4; END: @%p1 fma.rn.f32 %r3, %r1, %r2, %r3; {"fma.rn.f32 %r7, %r1, %r2, %r3; " * 256}
    mad.wide.u32 %rd1, %r20, 16, %rd24; st.global.v4.b32 [%rd1], {{%r3, %r4, %r6, %r7}};"""
    buffers = *x, _small(random, len(x[0])), np.zeros(4 * len(x[0]), np.uint32)
    used = []
    calls = fma.fma32
    monkeypatch.setattr(fma, "fma32", lambda *given: used.append(calls(*given)) or used[-1])
    found = run_body(body, *buffers, threads=128, grid=len(x[0]) // 128)[4]
    assert used and None not in used
    monkeypatch.setattr(fma, "fma32", lambda *given: None)
    wanted = run_body(body, *buffers, threads=128, grid=len(x[0]) // 128)[4]
    np.testing.assert_array_equal(found, wanted)


def _small(random: Any, shape: tuple[int, ...]) -> Any:
    """Codes of float32 of many sizes, some subnormal."""
    numbers = random.standard_normal(shape) * 2.0 ** random.integers(-140, 4, shape)
    return numbers.astype(np.float32).view(np.uint32)
