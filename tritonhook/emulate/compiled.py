"""Compile LLVM IR to machine code of this computer with Triton's LLVM, if Triton is installed.

`fma32` makes a step that runs such code: float32 fma, for kernels with unrolled products. NumPy has no fma, and
numbers.fma32 takes ten times as long."""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tritonhook.emulate.numbers import NAN32
from tritonhook.emulate.words import Array

if TYPE_CHECKING:
    from tritonhook.emulate.machine import Group, Step

MANY = 256  # a kernel with fewer fma instructions does not repay the compiler's 30 ms
# d = a * b + c of n float32 numbers (n: a multiple of 8) where the mask is true. Every NaN gets the bits %nan.
_FMA = """
target triple = "x86_64-unknown-linux-gnu"
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define void @fma(ptr %d, ptr %a, ptr %b, ptr %c, ptr %mask, i64 %n, i64 %nan) {
entry:
  %nan32 = trunc i64 %nan to i32
  %nan0 = insertelement <8 x i32> poison, i32 %nan32, i32 0
  %nans = shufflevector <8 x i32> %nan0, <8 x i32> poison, <8 x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %ap = getelementptr float, ptr %a, i64 %i
  %bp = getelementptr float, ptr %b, i64 %i
  %cp = getelementptr float, ptr %c, i64 %i
  %dp = getelementptr i32, ptr %d, i64 %i
  %mp = getelementptr i8, ptr %mask, i64 %i
  %x = load <8 x float>, ptr %ap, align 4
  %y = load <8 x float>, ptr %bp, align 4
  %z = load <8 x float>, ptr %cp, align 4
  %found = call <8 x float> @llvm.fma.v8f32(<8 x float> %x, <8 x float> %y, <8 x float> %z)
  %is.nan = fcmp uno <8 x float> %found, %found
  %bits = bitcast <8 x float> %found to <8 x i32>
  %codes = select <8 x i1> %is.nan, <8 x i32> %nans, <8 x i32> %bits
  %lanes = load <8 x i8>, ptr %mp, align 1
  %active = icmp ne <8 x i8> %lanes, zeroinitializer
  %old = load <8 x i32>, ptr %dp, align 4
  %new = select <8 x i1> %active, <8 x i32> %codes, <8 x i32> %old
  store <8 x i32> %new, ptr %dp, align 4
  %i1 = add i64 %i, 8
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@cache
def function_of(text: str, pointers: int, numbers: int, features: Sequence[str]) -> Callable[..., None] | None:
    """Compile LLVM IR of one function, whose arguments are pointers and then 64-bit numbers, all passed as integers.

    features: processor features that the code uses, e.g. "avx2". Return None if this computer lacks one of them, or
    cannot compile."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    try:
        from triton._C.libtriton import llvm

        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
        if not {*features} <= {*flags.split()}:
            return None
        llvm.init_targets()
        having = ",".join(f"+{one}" for one in features)
        code = _code_of(llvm.translate_to_asm(text, "x86_64-unknown-linux-gnu", "", having, [], False, True))
        page = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except Exception:  # another version of Triton, or no executable memory: the caller uses NumPy
        return None
    page.write(code)
    begin = ctypes.c_char.from_buffer(page)
    kinds = [*[ctypes.c_void_p] * pointers, *[ctypes.c_int64] * numbers]
    function = ctypes.PYFUNCTYPE(None, *kinds)(ctypes.addressof(begin))
    function.page = begin  # type: ignore[attr-defined]  # keeps the code's memory as long as the function
    return function


def _code_of(image: bytes) -> bytes:
    """Return the machine code in an ELF object. Raises ValueError if the code needs relocations."""
    (begin,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", image, begin + size * number) for number in range(count)]
    strings = sections[names][4]
    by_name = {image[(at := strings + one[0]) : image.index(b"\0", at)]: one for one in sections}
    if b".rela.text" in by_name:
        raise ValueError("the code refers to other sections")
    *_, offset, length = by_name[b".text"]
    return image[offset : offset + length]


def fma32(target: Array, rows: Sequence[Array], everyone: Array) -> Step | None:
    """Make the step that writes a * b + c of float32, rounded to nearest, with the same results as numbers.fma32.

    target, rows: the registers d and (a, b, c), one element per thread of the machine. everyone: an array of True of
    that length. Return None if the code cannot be compiled, or if a register's elements are not contiguous."""
    function = function_of(_FMA, 5, 2, ("avx", "avx2", "fma")) if "triton" in sys.modules else None
    if function is None or any(row.strides != (4,) for row in (target, *rows)):
        return None
    d, a, b, c, all_of_them = map(_address, (target, *rows, everyone))
    nan = int(NAN32)

    def step(g: Group, keeps: object = (target, rows, everyone)) -> None:
        start = g.s.start
        at = 4 * start
        lanes = None if g.mask is None else np.ascontiguousarray(g.mask)
        active = all_of_them if lanes is None else _address(lanes)
        function(d + at, a + at, b + at, c + at, active, g.s.stop - start, nan)

    return step


def _address(row: Array) -> int:
    return int(row.__array_interface__["data"][0])
