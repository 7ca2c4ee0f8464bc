"""Which operations are those that some ptxas miscompiles, at the edge of each number in their patterns."""

from __future__ import annotations

import pytest

from tests.ptx.test_miscompiles import module
from tritonhook.ptx.miscompiles.integers import INTEGERS
from tritonhook.ptx.miscompiles.normal import normal_operations
from tritonhook.ptx.miscompiles.packed import PACKED

BUGS = {bug.name: bug for bug in (*INTEGERS, *PACKED)}
# Those before the empty line are the bug, those behind it are not.
LINES = {
    "shift-sub-rotate-64": """
shl.b64 %d1, %d0, 8; shr.u64 %d2, %d0, 56; sub.s64 %d3, %d1, %d2;
shl.b64 %d1, %d0, 8; shr.u64 %d2, %d0, 56; sub.s64 %d3, %d2, %d1;
shl.b64 %d1, %d0, 8; shr.s64 %d2, %d0, 56; sub.s64 %d3, %d1, %d2;

shl.b64 %d1, %d0, 8; shr.u64 %d2, %d0, 56; add.s64 %d3, %d2, %d1;
shl.b64 %d1, %d0, 8; shr.u64 %d2, %d0, 57; sub.s64 %d3, %d1, %d2;
shl.b64 %d1, %d0, 8; shr.u64 %d2, %d4, 56; sub.s64 %d3, %d1, %d2;
shl.b64 %d1, %d0, %r0; shr.u64 %d2, %d0, 56; sub.s64 %d3, %d1, %d2;
shl.b64 %d1, %d0, 8; shr.u64 %d2, %d0, %r0; sub.s64 %d3, %d1, %d2;
shl.b64 %d1, %d0, 8; and.b64 %d2, %d0, 56; sub.s64 %d3, %d1, %d2;
and.b64 %d1, %d0, 8; shr.u64 %d2, %d0, 56; sub.s64 %d3, %d1, %d2;
shl.b32 %r1, %r0, 32; shr.u32 %r2, %r0, 31; sub.s32 %r3, %r1, %r2;
""",
    "greatest-of-three": """
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; max.s32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; max.s32 %r7, %r1, %r3;
neg.s32 %r2, %r0; min.s32 %r3, %r0, %r2; min.s32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; add.s32 %r4, %r3, 1; max.s32 %r7, %r3, %r1;

neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; min.s32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; max.u32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.u32 %r3, %r0, %r2; max.s32 %r7, %r3, %r1;
neg.s32 %r2, %r5; max.s32 %r3, %r0, %r2; max.s32 %r7, %r3, %r1;
not.b32 %r2, %r0; max.s32 %r3, %r0, %r2; max.s32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; st.global.b32 [%out], %r3; max.s32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; add.s32 %r4, %r3, 1; st.b32 [%out], %r4; max.s32 %r7, %r3, %r1;
neg.s32 %r2, %r0; max.s32 %r3, %r2, %r0; max.s32 %r7, %r1, %r3;
neg.s32 %r2, %r0; max.s32 %r3, %r0, %r2; max.s32 %r7, %r3, 5;
not.b32 %r2, %r0; add.s32 %r2, %r2, 1; max.s32 %r3, %r0, %r2; max.s32 %r7, %r3, %r1;
""",
    "select-by-number": """
slct.s32.s32 %r7, %r0, %r1, 0x7f800001;
slct.s32.s32 %r7, %r0, %r1, 0x7fffffff;

slct.s32.s32 %r7, %r0, %r1, 0x7f800000;
slct.s32.s32 %r7, %r0, %r1, 0x80000000;
slct.s32.s32 %r7, %r0, %r1, %r2;
slct.u32.s32 %r7, %r0, %r1, 0x7f800001;
slct.s32.f32 %r7, %r0, %r1, 0x7f800001;
""",
    "unsigned-of-shifted-sign": """
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, 0x80000000;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.le.u32 %p0, %r2, 0x7fffffff;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 3; setp.gt.u32 %p0, %r2, 0x1fffffff;
or.b32 %r1, %r0, 0xc0000000; shr.s32 %r2, %r1, 2; setp.ge.u32 %p0, %r2, 0xffffffff;

or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, 0x7fffffff;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.gt.u32 %p0, %r2, 0x7ffffffe;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 4; setp.lt.u32 %p0, %r2, -1;
or.b32 %r1, %r0, 0xe0000000; shr.s32 %r2, %r1, 2; setp.lt.u32 %p0, %r2, -1;
lop3.b32 %r1, %r0, 0x80000000, 0, 0xfc; shr.s32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, -1;
or.b32 %r1, %r0, 0x7fffffff; shr.s32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, -1;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, %r5;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.eq.u32 %p0, %r2, -1;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.lt.s32 %p0, %r2, -1;
or.b32 %r1, %r0, 0x80000000; shr.u32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, -1;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, %r5; setp.lt.u32 %p0, %r2, -1;
and.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r1, 1; setp.lt.u32 %p0, %r2, -1;
or.b32 %r1, %r0, 0x80000000; shr.s32 %r2, %r5, %r1; setp.lt.u32 %p0, %r2, -1;
""",
    "product-low-bits": """
or.b32 %r1, %r0, 1; or.b32 %r2, %r5, 3; mul.lo.s32 %r3, %r1, %r2; and.b32 %r4, %r3, 1;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; add.s32 %r4, %r3, 5; and.b32 %r4, %r4, 1;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shl.b32 %r4, %r3, 2; and.b32 %r4, %r4, 7;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shl.b32 %r4, %r3, 31;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; or.b32 %r4, %r3, 1;
or.b32 %r1, %r0, 1; shl.b32 %r1, %r1, 1; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 7;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 6;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; cvt.u16.u32 %h1, %r3; and.b16 %h2, %h1, 7;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; or.b32 %r4, %r3, 0xfffffff8;
shl.b32 %r1, %r0, 4; add.s32 %r1, %r1, 40; mul.lo.s32 %r3, %r1, %r1; or.b32 %r4, %r3, 64;

or.b32 %r1, %r0, 1; or.b32 %r2, %r5, 3; mul.lo.s32 %r3, %r1, %r2; and.b32 %r4, %r3, 2;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; add.s32 %r4, %r3, %r5; and.b32 %r4, %r4, 1;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shl.b32 %r4, %r3, 2; and.b32 %r4, %r4, 8;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shl.b32 %r4, %r3, 30;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; shr.u32 %r4, %r3, 1;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; xor.b32 %r4, %r3, 1;
or.b32 %r1, %r0, 2; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 1;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r5; and.b32 %r4, %r3, 1;
or.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r5, %r1; and.b32 %r4, %r3, %r5;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 8;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 15;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 3;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; shr.u32 %r4, %r3, 1;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; or.b32 %r4, %r3, 1;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; bfe.u32 %r4, %r3, 0, 3;
shl.b32 %r1, %r0, 2; or.b32 %r1, %r1, 2; mul.lo.s32 %r3, %r1, %r1; add.s32 %r4, %r3, 1;
shl.b32 %r1, %r0, 3; add.s32 %r1, %r1, 24; mul.lo.s32 %r3, %r1, %r1; or.b32 %r4, %r3, 64;
xor.b32 %r1, %r0, 1; mul.lo.s32 %r3, %r1, %r1; and.b32 %r4, %r3, 1;
or.b64 %d1, %d0, 1; mul.lo.s64 %d3, %d1, %d1; and.b64 %d4, %d3, 1;
""",
    "bit-field-beyond-register": """
bfe.s32 %r7, %r0, 32, 9;
bfe.s32 %r7, %r0, 0x120, 1;

bfe.s32 %r7, %r0, 31, 9;
bfe.s32 %r7, %r0, 0x11f, 9;
bfe.s32 %r7, %r0, 32, 0;
bfe.s32 %r7, %r0, %r1, 9;
bfe.u32 %r7, %r0, 32, 9;
bfe.s64 %d7, %d0, 32, 9;
bfe.s32 %r7, %r0, 255, %r1;
""",
    "bit-field-too-long": """
bfi.b32 %r7, %r0, %r1, 1, 32;
bfi.b32 %r7, %r0, %r1, 0x101, 32;

bfi.b32 %r7, %r0, %r1, 1, 31;
bfi.b32 %r7, %r0, %r1, 0, 32;
bfi.b32 %r7, %r0, %r1, 32, 32;
bfi.b32 %r7, %r0, %r1, 1, 0x100;
bfi.b32 %r7, %r0, %r1, 0x100, 32;
bfi.b32 %r7, %r0, %r1, %r2, 32;
bfi.b32 %r7, %r0, %r1, 1, %r2;
bfi.b64 %d7, %d0, %d1, 1, 32;
bfi.b32 %r7, %r0, %r1, 31, 0x1ff;
""",
    "signs-of-bytes": """
prmt.b32 %r2, %r0, %r1, 0x8888; and.b32 %r7, %r2, 65535;
prmt.b32 %r2, %r0, %r1, 0xba98; and.b32 %r7, 0xff00ff, %r2;
prmt.b32 %r2, %r0, %r1, 0x0888; and.b32 %r7, %r2, 65535;
prmt.b32 %r2, %r0, %r1, 0xba98; cvt.u16.u32 %h1, %r2; cvt.u32.u16 %r7, %h1;
prmt.b32 %r2, %r0, %r1, 0xba98; mov.b32 {%h1, %h2}, %r2; cvt.u32.u16 %r7, %h1;
prmt.b32 %r2, %r0, %r1, 0xba98; st.global.b16 [%out], %r2;

prmt.b32 %r2, %r0, %r1, 0xba98; and.b32 %r7, 1, %r2;
prmt.b32 %r2, %r0, %r1, 0xfedc; and.b32 %r7, %r2, 65535;
prmt.b32 %r2, %r0, %r1, 0xba98; and.b32 %r7, %r2, 0xff00;
prmt.b32 %r2, %r0, %r1, 0xba98; bfe.u32 %r7, %r2, 0, 16;
prmt.b32 %r2, %r0, %r1, 0xba98; mov.b32 {%h1, %h2}, %r2; cvt.u32.u16 %r7, %h2;
prmt.b32 %r2, %r0, %r1, 0x8880; and.b32 %r7, %r2, 65535;
prmt.b32 %r2, %r0, %r1, %r4; and.b32 %r7, %r2, 65535;
prmt.b32 %r2, %r0, %r1, 0x8888; and.b32 %r7, %r2, %r4;
prmt.b32 %r2, %r0, %r1, 0x8888; or.b32 %r7, %r2, 65535;
shf.l.wrap.b32 %r2, %r0, %r1, 0x8888; and.b32 %r7, %r2, 65535;
""",
    "clamp-of-mixed-signs": """
max.u32 %r1, %r0, 0; min.s32 %r7, %r1, 0;

max.u32 %r1, %r0, 1; min.s32 %r7, %r1, 0;
max.u32 %r1, %r0, 0; min.s32 %r7, %r1, 1;
max.s32 %r1, %r0, 0; min.s32 %r7, %r1, 0;
max.u32 %r1, %r0, 0; min.u32 %r7, %r1, 0;
min.u32 %r1, %r0, 0; min.s32 %r7, %r1, 0;
""",
    "unsigned-below-zero": """
cnot.b32 %r1, %r0; neg.s32 %r2, %r1; setp.gt.u32 %p0, 0, %r2;

cnot.b32 %r1, %r0; neg.s32 %r2, %r1; setp.gt.u32 %p0, 5, %r2;
cnot.b32 %r1, %r0; neg.s32 %r2, %r1; setp.gt.s32 %p0, 0, %r2;
cnot.b32 %r1, %r0; neg.s32 %r2, %r1; setp.eq.u32 %p0, 0, %r2;
cnot.b32 %r1, %r0; not.b32 %r2, %r1; setp.gt.u32 %p0, 0, %r2;
popc.b32 %r1, %r0; neg.s32 %r2, %r1; setp.gt.u32 %p0, 0, %r2;
setp.gt.u32 %p0, 0, %r2;
""",
    "carry-of-nothing": """
shl.b32 %r2, %r0, 1; shl.b32 %r3, %r2, 31; add.cc.u32 %r4, %r3, 536;
shl.b32 %r2, %r0, 17; shl.b32 %r3, %r2, 17; add.cc.u32 %r4, 536, %r3;

shl.b32 %r2, %r0, 1; shl.b32 %r3, %r2, 30; add.cc.u32 %r4, %r3, 536;
shl.b32 %r2, %r0, %r1; shl.b32 %r3, %r2, 31; add.cc.u32 %r4, %r3, 536;
shl.b32 %r2, %r0, 31; shl.b32 %r3, %r2, %r1; add.cc.u32 %r4, %r3, 536;
shl.b32 %r2, %r0, 1; shl.b32 %r3, %r2, 31; add.u32 %r4, %r3, 536;
shl.b32 %r2, %r0, 1; shr.u32 %r3, %r2, 31; add.cc.u32 %r4, %r3, 536;
shr.u32 %r2, %r0, 1; shl.b32 %r3, %r2, 31; add.cc.u32 %r4, %r3, 536;
""",
    "borrow-after-cnot": """
cnot.b32 %r2, %r0; shl.b32 %r3, %r2, 12; sub.cc.u32 %r4, 3285, %r3;
cnot.b32 %r2, %r0; shl.b32 %r3, %r2, 12; sub.cc.u32 %r4, %r3, 3285;

cnot.b32 %r2, %r0; shl.b32 %r3, %r2, 12; sub.u32 %r4, 3285, %r3;
cnot.b32 %r2, %r0; shr.u32 %r3, %r2, 12; sub.cc.u32 %r4, 3285, %r3;
popc.b32 %r2, %r0; shl.b32 %r3, %r2, 12; sub.cc.u32 %r4, 3285, %r3;
sub.cc.u32 %r4, 3285, %r3;
""",
    "lop3-repeated-operand": """
lop3.b32 %r2, %r1, %r0, %r1, 0xd0; and.b32 %r7, %r1, %r2;
lop3.b32 %r2, %r1, %r1, %r0, 0xd0; or.b32 %r7, %r2, %r0;
lop3.b32 %r2, %r0, %r1, %r1, 0xe8; and.b32 %r7, %r1, %r2;

lop3.b32 %r2, %r1, %r0, %r1, 0xcc; and.b32 %r7, %r1, %r2;
lop3.b32 %r2, %r1, %r0, %r1, 0xd0; lop3.b32 %r7, %r1, %r2, 0, 0xc0;
lop3.b32 %r2, %r1, %r1, %r0, 0xd7; or.b32 %r7, %r2, %r0;
lop3.b32 %r2, %r0, %r1, %r1, 0xd0; and.b32 %r7, %r1, %r2;
lop3.b32 %r2, %r1, %r0, %r1, 0xd0; and.b32 %r7, %r4, %r2;
lop3.b32 %r2, %r1, %r0, %r1, 0xd0; add.s32 %r7, %r1, %r2;
prmt.b32 %r2, %r1, %r0, %r1; and.b32 %r7, %r1, %r2;
""",
    "fp8-pair-twice": """
cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1; mov.b32 %r0, {%h0, %h0};
cvt.rn.satfinite.e5m2x2.f32 %h0, %f0, %f1; mov.b32 %r0, {%h0, %h0};
cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1; mov.b64 %d0, {%h0, %h0, %h0, %h0};

cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1; mov.b32 %r0, {%h0, %h1};
cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1; mov.b32 %r0, {%h1, %h0};
cvt.rn.satfinite.e4m3x2.f16x2 %h0, %r1; mov.b32 %r0, {%h0, %h0};
cvt.rn.f16x2.f32 %h0, %f0, %f1; mov.b32 %r0, {%h0, %h0};
""",
    "packed-add-one-half": """
add.s16x2 %r2, %r0, 65537; mov.b32 {%h0, %h1}, %r2; cvt.u32.u16 %r3, %h0;
add.u16x2 %r2, 65537, %r0; mov.b32 {%h0, %h1}, %r2; cvt.u32.u16 %r3, %h1;
add.s16x2 %r2, %r0, 65537; cvt.u32.u16 %r3, %r2;
add.s16x2 %r2, %r0, 65537; cvt.u16.u32 %h3, %r2;
add.s16x2 %r2, %r0, 65537; st.global.b16 [%out], %r2;
add.s16x2 %r2, %r0, 65537; st.global.u16 [%out], %r2;
add.s16x2 %r2, %r0, 65537; st.global.s16 [%out], %r2;

add.s16x2 %r2, %r0, %r1; st.global.b16 [%out], %r2;
add.s16x2 %r2, %r0, 65537; st.global.b32 [%out], %r2;
add.s16x2 %r2, %r0, 65537; st.global.b16 [%out], %r2; st.global.b32 [%out], %r2;
add.s16x2 %r2, %r0, 65537; mov.b32 {%h0, %h1}, %r2; cvt.u32.u16 %r3, %h0; cvt.u32.u16 %r4, %h1;
add.s16x2 %r2, %r0, 65537; cvt.u64.u32 %d3, %r2;
add.s16x2 %r2, %r0, 65537;
add.s32 %r2, %r0, 65537; st.global.b16 [%out], %r2;
""",
    "negated-16-bits": """
neg.s16 %h1, %h0; cvt.s32.s16 %r0, %h1;
neg.s16 %h1, %h0; mul.wide.s16 %r0, %h2, %h1;
neg.s16 %h1, %h0; mad.wide.s16 %r0, %h1, %h2, %r1;
neg.s16 %h1, %h0; setp.lt.s16 %p0, %h1, %h2;

neg.s16 %h1, %h0; cvt.u32.u16 %r0, %h1;
neg.s16 %h1, %h0; max.s16 %h2, %h1, %h3;
not.b16 %h1, %h0; cvt.s32.s16 %r0, %h1;
neg.s32 %r1, %r0; cvt.s64.s32 %d0, %r1;
""",
}


def test_each_bug_has_its_lines() -> None:
    assert LINES.keys() == BUGS.keys()


@pytest.mark.parametrize("name", LINES)
def test_a_pattern_is_met_up_to_its_edge(name: str) -> None:
    wrong, right = LINES[name].strip().split("\n\n")
    for rows, is_wrong in ((wrong, True), (right, False)):
        for row in rows.splitlines():
            (found,) = normal_operations(module(row))
            assert [bool(BUGS[name].matches(one)) for one in found].count(True) == is_wrong, row
