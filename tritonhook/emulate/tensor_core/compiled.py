"""The sums of sums.py, compiled to machine code of this computer with Triton's LLVM, if Triton is loaded.

The results have the same bits as those of the NumPy functions, which are the reference
(tests/emulate/tensor_core/test_compiled.py). Only f32 results of finite numbers are computed here; NumPy computes all
others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np

from tritonhook.emulate.compiled import function_of
from tritonhook.emulate.words import Array

WIDE = 8  # columns computed at once
# (batch, m, n) sums of k products. x, y: float64; ex, ey: their exponents; c, out: codes of f32. p: constants, passed
# as an argument because the code may have no data section: fraction + 1023, least exponent, mask of all bits but the
# sign, mask of the bits kept, exponent of zero, exponent of the smallest normal f32, codes of infinity and of -0, 127,
# 255, 1023 - fraction.
_LLVM = """
target triple = "x86_64-unknown-linux-gnu"
declare <8 x double> @llvm.trunc.v8f64(<8 x double>)
declare <8 x i32> @llvm.smax.v8i32(<8 x i32>, <8 x i32>)
define void @sums(ptr %x, ptr %y, ptr %ex, ptr %ey, ptr %c, ptr %out, ptr %p, i64 %batch, i64 %m, i64 %n, i64 %k) {
entry:
  PARAMETERS
  %mk = mul i64 %m, %k
  %kn = mul i64 %k, %n
  %mn = mul i64 %m, %n
  br label %tile
tile:
  %b = phi i64 [0, %entry], [%b1, %tile.end]
  %xt = mul i64 %b, %mk
  %yt = mul i64 %b, %kn
  %ct = mul i64 %b, %mn
  br label %row
row:
  %i = phi i64 [0, %tile], [%i1, %row.end]
  %ik = mul i64 %i, %k
  %xi = add i64 %xt, %ik
  %in = mul i64 %i, %n
  %ci = add i64 %ct, %in
  br label %column
column:
  %j = phi i64 [0, %row], [%j1, %column.end]
  %cj = add i64 %ci, %j
  %yj = add i64 %yt, %j
  %cp = getelementptr i32, ptr %c, i64 %cj
  %code = load <8 x i32>, ptr %cp, align 4
  %size = and <8 x i32> %code, %p2
  %is.zero = icmp eq <8 x i32> %size, zeroinitializer
  %field = lshr <8 x i32> %size, SHIFT23
  %unbiased = sub <8 x i32> %field, %p8
  %normal = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %unbiased, <8 x i32> %p5)
  %of.c = select <8 x i1> %is.zero, <8 x i32> %p4, <8 x i32> %normal
  %least = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %of.c, <8 x i32> %p1)
  br label %high
high:
  %t = phi i64 [0, %column], [%t1, %high]
  %h = phi <8 x i32> [%least, %column], [%h1, %high]
  %xa = add i64 %xi, %t
  %exp = getelementptr i32, ptr %ex, i64 %xa
  %exs = load i32, ptr %exp, align 4
  %ex0 = insertelement <8 x i32> poison, i32 %exs, i32 0
  %exv = shufflevector <8 x i32> %ex0, <8 x i32> poison, <8 x i32> zeroinitializer
  %tn = mul i64 %t, %n
  %ya = add i64 %yj, %tn
  %eyp = getelementptr i32, ptr %ey, i64 %ya
  %eyv = load <8 x i32>, ptr %eyp, align 4
  %both = add <8 x i32> %exv, %eyv
  %h1 = call <8 x i32> @llvm.smax.v8i32(<8 x i32> %h, <8 x i32> %both)
  %t1 = add i64 %t, 1
  %t.more = icmp ult i64 %t1, %k
  br i1 %t.more, label %high, label %scales
scales:
  %up = sub <8 x i32> %p0, %h1
  %up64 = sext <8 x i32> %up to <8 x i64>
  %up52 = shl <8 x i64> %up64, SHIFT52
  %scale = bitcast <8 x i64> %up52 to <8 x double>
  %down = add <8 x i32> %p10, %h1
  %down64 = sext <8 x i32> %down to <8 x i64>
  %down52 = shl <8 x i64> %down64, SHIFT52
  %back = bitcast <8 x i64> %down52 to <8 x double>
  %cf = bitcast <8 x i32> %code to <8 x float>
  %cd = fpext <8 x float> %cf to <8 x double>
  %cs = fmul <8 x double> %cd, %scale
  %first = call <8 x double> @llvm.trunc.v8f64(<8 x double> %cs)
  br label %sum
sum:
  %u = phi i64 [0, %scales], [%u1, %sum]
  %s = phi <8 x double> [%first, %scales], [%s1, %sum]
  %xb = add i64 %xi, %u
  %xp = getelementptr double, ptr %x, i64 %xb
  %xs = load double, ptr %xp, align 8
  %x0 = insertelement <8 x double> poison, double %xs, i32 0
  %xv = shufflevector <8 x double> %x0, <8 x double> poison, <8 x i32> zeroinitializer
  %un = mul i64 %u, %n
  %yb = add i64 %yj, %un
  %yp = getelementptr double, ptr %y, i64 %yb
  %yv = load <8 x double>, ptr %yp, align 8
  %product = fmul <8 x double> %xv, %yv
  %scaled = fmul <8 x double> %product, %scale
  %term = call <8 x double> @llvm.trunc.v8f64(<8 x double> %scaled)
  %s1 = fadd <8 x double> %s, %term
  %u1 = add i64 %u, 1
  %u.more = icmp ult i64 %u1, %k
  br i1 %u.more, label %sum, label %column.end
column.end:
  %exact = fmul <8 x double> %s1, %back
  %nearest = fptrunc <8 x double> %exact to <8 x float>
  %bits = bitcast <8 x float> %nearest to <8 x i32>
  %wide = fpext <8 x float> %nearest to <8 x double>
  %more = fcmp ogt <8 x double> %wide, %exact
  %fewer = fcmp olt <8 x double> %wide, %exact
  %is.minus = icmp slt <8 x i32> %bits, zeroinitializer
  %outward = select <8 x i1> %is.minus, <8 x i1> %fewer, <8 x i1> %more
  %nsize = and <8 x i32> %bits, %p2
  %is.finite = icmp slt <8 x i32> %nsize, %p6
  %is.out = and <8 x i1> %outward, %is.finite
  %minus1 = sext <8 x i1> %is.out to <8 x i32>
  %inward = add <8 x i32> %bits, %minus1
  %cut = and <8 x i32> %inward, %p3
  %found = select <8 x i1> %is.finite, <8 x i32> %cut, <8 x i32> %inward
  %is.minus0 = icmp eq <8 x i32> %found, %p7
  %result = select <8 x i1> %is.minus0, <8 x i32> zeroinitializer, <8 x i32> %found
  %outp = getelementptr i32, ptr %out, i64 %cj
  store <8 x i32> %result, ptr %outp, align 4
  %j1 = add i64 %j, 8
  %j.more = icmp ult i64 %j1, %n
  br i1 %j.more, label %column, label %row.end
row.end:
  %i1 = add i64 %i, 1
  %i.more = icmp ult i64 %i1, %m
  br i1 %i.more, label %row, label %tile.end
tile.end:
  %b1 = add i64 %b, 1
  %b.more = icmp ult i64 %b1, %batch
  br i1 %b.more, label %tile, label %done
done:
  ret void
}
"""
_PARAMETER = """
  %q{0} = getelementptr i32, ptr %p, i64 {0}
  %l{0} = load i32, ptr %q{0}, align 4
  %i{0}. = insertelement <8 x i32> poison, i32 %l{0}, i32 0
  %p{0} = shufflevector <8 x i32> %i{0}., <8 x i32> poison, <8 x i32> zeroinitializer"""


@cache
def _text() -> str:
    found = _LLVM.replace("PARAMETERS", "".join(_PARAMETER.format(number) for number in range(11)))
    for kind, count in (("i32", 23), ("i64", 52)):
        found = found.replace(f"SHIFT{count}", f"<{', '.join([f'{kind} {count}'] * WIDE)}>")
    return found


def is_there() -> bool:
    """Whether this process has loaded Triton, and this computer can run the compiled sums."""
    return "triton" in sys.modules and _function() is not None


def _function() -> Callable[..., None] | None:
    return function_of(_text(), 7, 4, ("avx", "avx2"))


def multiply(
    x: Array, y: Array, exponents: tuple[Array, Array], c: Array, fraction: int, kept: int, least: int
) -> Array | None:
    """Compute x y + c as `sums._sum` does. x, y: finite float64 (..., m, k), (..., k, n). exponents: of x and y. c: bit
    patterns of finite f32. fraction, kept: see sums.Sums. least: the lowest exponent that terms are aligned to. Return
    bit patterns of f32, or None if the code cannot be compiled or the shapes do not fit."""
    function = _function()
    if function is None or y.shape[-1] % WIDE or not x.shape[:-2] == y.shape[:-2] == c.shape[:-2]:
        return None
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    given = x, y, *(np.ascontiguousarray(one, np.int32) for one in exponents), np.ascontiguousarray(c)
    out = np.empty(c.shape, np.uint32)
    (m, k), n = x.shape[-2:], y.shape[-1]
    numbers = (fraction + 1023, least, 0x7FFF_FFFF, -1 << 23 - kept, -1000, -126, 0x7F80_0000, -1 << 31, 127, 255)
    numbers_ = np.array([*numbers, 1023 - fraction], np.int32)
    function(*(one.ctypes.data for one in (*given, out, numbers_)), x.size // (m * k), m, n, k)
    return out
