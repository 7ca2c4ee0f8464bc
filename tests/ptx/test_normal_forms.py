"""The normal form of each spelling of an operation, and what is left as it is."""

from __future__ import annotations

import pytest

from tests.ptx.test_miscompiles import module
from tritonhook.ptx.dataflow import Part, Source
from tritonhook.ptx.miscompiles.normal import normal_operations

FORMS = {
    "add": """
add.s32 %r7, %a, %a; => shl.b32(%a, 1)
add.s32 %r1, %a, 5; add.s32 %r7, %r1, %b; => add.b32(add.b32(%a, 5), %b)
add.s32 %r1, %a, 5; add.s32 %r7, %r1, -6; => add.b32(%a, 4294967295)
add.s32 %r1, %a, %b; add.s32 %r7, %r1, 6; => add.b32(add.b32(%a, %b), 6)
sub.s32 %r1, %a, %b; add.s32 %r7, %r1, 6; => add.b32(sub.b32(%a, %b), 6)
not.b32 %r1, %a; add.s32 %r7, %r1, 2; => add.b32(not.b32(%a), 2)
neg.s32 %r1, %b; add.s32 %r7, %a, %r1; => sub.b32(%a, %b)
neg.s32 %r1, %b; add.s32 %r7, %r1, %a; => sub.b32(%a, %b)
neg.s32 %r1, %b; add.s32 %r7, 5, %r1; => sub.b32(5, %b)
add.s32 %r7, %a, 0; => %a
add.s32 %r7, 0xffffffff, 2; => 1
add.s16 %r7, 0xffff, 2; => 1
add.s64 %r7, %a, -1; => add.b64(%a, 18446744073709551615)
add %r7, %a; => ?add.(%a)
add.cc.b32 %r7, 4, %a; => add.cc.u32(%a, 4)
add.f32 %r7, %a, %b; => add.f32(%a, %b)
""",
    "known zeros": """
and.b32 %r1, %a, 3; and.b32 %r2, %b, -4; add.s32 %r7, %r1, %r2; => or.b32(and.b32(%a, 3), and.b32(%b, 4294967292))
and.b32 %r1, %a, 7; and.b32 %r2, %b, -4; add.s32 %r7, %r1, %r2; => add.b32(and.b32(%a, 7), and.b32(%b, 4294967292))
and.b32 %r1, %a, 3; and.b32 %r2, %b, -4; xor.b32 %r7, %r1, %r2; => or.b32(and.b32(%a, 3), and.b32(%b, 4294967292))
and.b32 %r1, %a, 3; xor.b32 %r7, %r1, 6; => xor.b32(and.b32(%a, 3), 6)
cnot.b32 %r1, %a; shl.b32 %r2, %b, 1; add.s32 %r7, %r1, %r2; => or.b32(cnot.b32(%a), shl.b32(%b, 1))
shr.u32 %r1, %a, 28; shl.b32 %r2, %b, 4; add.s32 %r7, %r1, %r2; => or.b32(shr.u32(%a, 28), shl.b32(%b, 4))
shr.u32 %r1, %a, 27; shl.b32 %r2, %b, 4; add.s32 %r7, %r1, %r2; => add.b32(shr.u32(%a, 27), shl.b32(%b, 4))
shr.s32 %r1, %a, 28; shl.b32 %r2, %b, 4; add.s32 %r7, %r1, %r2; => add.b32(shr.s32(%a, 28), shl.b32(%b, 4))
mul.lo.s32 %r1, %a, 12; add.s32 %r7, %r1, 3; => or.b32(mul.lo.b32(%a, 12), 3)
mul.lo.s32 %r1, %a, 12; add.s32 %r7, %r1, 4; => add.b32(mul.lo.b32(%a, 12), 4)
mul.lo.s32 %r1, %a, 12; shl.b32 %r2, %r1, 1; add.s32 %r7, %r2, 7; => or.b32(shl.b32(mul.lo.b32(%a, 12), 1), 7)
mul.lo.s32 %r1, %a, 12; shl.b32 %r2, %r1, 1; add.s32 %r7, %r2, 8; => add.b32(shl.b32(mul.lo.b32(%a, 12), 1), 8)
mul.lo.s32 %r1, %a, 12; and.b32 %r2, %r1, 0xff; add.s32 %r7, %r2, 3; => or.b32(and.b32(mul.lo.b32(%a, 12), 255), 3)
cvt.u32.u16 %r1, %h1; add.s32 %r7, %r1, 0x7fff0000; => or.b32(cvt.u32.u16(%h1), 2147418112)
cvt.u32.u16 %r1, %h1; add.s32 %r7, %r1, 0x8000; => add.b32(cvt.u32.u16(%h1), 32768)
cvt.u32.s16 %r1, %h1; add.s32 %r7, %r1, 0x10000; => add.b32(cvt.u32.s16(%h1), 65536)
cvt.u64.u32 %d1, %a; add.s64 %r7, %d1, 0x100000000; => or.b64(cvt.u64.u32(%a), 4294967296)
mul.lo.s32 %r1, %a, 12; or.b32 %r3, %r1, %b; add.s32 %r7, %r3, 3; => add.b32(or.b32(mul.lo.b32(%a, 12), %b), 3)
mul.lo.s32 %r1, %a, 12; or.b32 %r3, %b, %r1; add.s32 %r7, %r3, 3; => add.b32(or.b32(%b, mul.lo.b32(%a, 12)), 3)
""",
    "sub and neg": """
sub.s32 %r7, %a, %b; => sub.b32(%a, %b)
sub.s32 %r7, 5, %b; => sub.b32(5, %b)
sub.s32 %r7, 0, %b; => neg.b32(%b)
sub.s32 %r7, -1, %b; => not.b32(%b)
neg.s32 %r1, %b; sub.s32 %r7, %a, %r1; => add.b32(%a, %b)
neg.s32 %r1, %a; sub.s32 %r7, %r1, %b; => sub.b32(neg.b32(%a), %b)
neg.s32 %r1, %a; neg.s32 %r7, %r1; => %a
sub.s32 %r1, %a, %b; neg.s32 %r7, %r1; => sub.b32(%b, %a)
add.s32 %r1, %a, %b; neg.s32 %r7, %r1; => neg.b32(add.b32(%a, %b))
sub.s32 %r7, 1, 2; => 4294967295
neg.s32 %r7, 6; => 4294967290
""",
    "not": """
not.b32 %r1, %a; not.b32 %r7, %r1; => %a
not.b32 %r7, 5; => 4294967290
add.s32 %r1, %a, -1; not.b32 %r7, %r1; => neg.b32(%a)
add.s32 %r1, %a, -2; not.b32 %r7, %r1; => not.b32(add.b32(%a, 4294967294))
not.b32 %r1, %a; and.b32 %r2, %r1, %b; not.b32 %r7, %r2; => not.b32(and.b32(not.b32(%a), %b))
not.b32 %r1, %a; xor.b32 %r2, %r1, 5; not.b32 %r7, %r2; => not.b32(xor.b32(not.b32(%a), 5))
not.b32 %r1, %a; or.b32 %r2, %r1, 5; not.b32 %r7, %r2; => and.b32(%a, 4294967290)
""",
    "selp": """
setp.lt.s32 %p1, %a, %b; not.pred %p2, %p1; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, setp.le.s32(%b, %a))
setp.le.s32 %p1, %a, %b; not.pred %p2, %p1; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, setp.lt.s32(%b, %a))
setp.ne.s32 %p1, %a, %b; not.pred %p2, %p1; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, setp.eq.s32(%a, %b))
setp.eq.f32 %p1, %a, %b; not.pred %p2, %p1; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, not.pred(setp.eq.f32(%a, %b)))
selp.b32 %r7, %a, %a, %p1; => %a
setp.lt.u32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => min.u32(%a, %b)
setp.lt.u32 %p1, %a, %b; selp.b32 %r7, %b, %a, %p1; => max.u32(%b, %a)
setp.le.u32 %p1, %a, %b; selp.b32 %r7, %b, %a, %p1; => max.u32(%b, %a)
setp.hi.u32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => max.u32(%a, %b)
setp.hs.u32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => max.u32(%a, %b)
setp.lo.u32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => min.u32(%a, %b)
setp.ls.u32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => min.u32(%a, %b)
setp.eq.u32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => selp.b32(%a, %b, setp.eq.u32(%a, %b))
setp.lt.f32 %p1, %a, %b; selp.b32 %r7, %a, %b, %p1; => selp.b32(%a, %b, setp.lt.f32(%a, %b))
setp.lt.u32 %p1, %a, %b; selp.b32 %r7, %a, %c, %p1; => selp.b32(%a, %c, setp.lt.u32(%a, %b))
setp.eq.s32 %p1, %a, 0; selp.u32 %r7, 1, 0, %p1; => cnot.b32(%a)
setp.ne.s32 %p1, %a, 0; selp.u32 %r7, 0, 1, %p1; => cnot.b32(%a)
setp.ne.s32 %p1, %a, 0; selp.u32 %r7, 1, 0, %p1; => selp.b32(1, 0, setp.ne.s32(%a, 0))
setp.eq.s32 %p1, %a, 0; selp.u32 %r7, 0, 1, %p1; => selp.b32(0, 1, setp.eq.s32(%a, 0))
setp.eq.s32 %p1, %a, 1; selp.u32 %r7, 1, 0, %p1; => selp.b32(1, 0, setp.eq.s32(%a, 1))
setp.eq.s16 %p1, %a, 0; selp.u32 %r7, 1, 0, %p1; => selp.b32(1, 0, setp.eq.s16(%a, 0))
setp.eq.s32 %p1, %a, 0; selp.u32 %r7, 2, 0, %p1; => selp.b32(2, 0, setp.eq.s32(%a, 0))
setp.eq.s32 %p1, %a; selp.b32 %r7, 3, %a, %p1; => selp.b32(3, %a, ?setp.eq.s32(%a))
setp.lt.s32 %p1|%p2, %a, %b; selp.b32 %r7, %a, %b, %p2; => max.s32(%a, %b)
setp.gt.s32 %p1|%p2, %a, %b; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, setp.le.s32(%a, %b))
setp.lt.f32 %p1|%p2, %a, %b; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, not.pred(setp.lt.f32(%a, %b)))
and.pred %p1, %p3, %p4; not.pred %p2, %p1; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, not.pred(and.pred(%p3, %p4)))
not.pred %p1, %p3; not.pred %p2, %p1; selp.b32 %r7, 3, %b, %p2; => selp.b32(3, %b, %p3)
setp.gt.f32 %p1, %a, %b; selp.b32 %r7, 3, %b, %p1; => selp.b32(3, %b, setp.lt.f32(%b, %a))
""",
    "mul, mad and div": """
mul.lo.s32 %r7, %a, 0; => 0
mul.lo.s32 %r7, 8, %a; => shl.b32(%a, 3)
mul.lo.s32 %r7, %a, 12; => mul.lo.b32(%a, 12)
mul.lo.s32 %r7, %a, 1; => %a
mul.lo.s32 %r7, %a, -1; => neg.b32(%a)
mad.lo.s32 %r7, %a, %b, %c; => add.b32(mul.lo.b32(%a, %b), %c)
mad.lo.s32 %r7, %a, 1, %c; => add.b32(%a, %c)
div.u32 %r7, %a, 8; => shr.u32(%a, 3)
div.u32 %r7, %a, 1; => %a
div.u32 %r7, %a, 6; => div.u32(%a, 6)
div.u32 %r7, %a, 0; => div.u32(%a, 0)
div.s32 %r7, %a, 8; => div.s32(%a, 8)
mul.lo.s32 %r7, -3, 5; => 4294967281
mul.lo.s32 %r7, %a; => ?mul.lo.s32(%a)
mul.wide.u32 %r7, 4, %a; => mul.wide.u32(%a, 4)
mul.hi.u32 %r7, 4, %a; => mul.hi.u32(4, %a)
div.rn.f32 %r7, %a, %b; => div.rn.f32(%a, %b)
""",
    "and": """
and.b32 %r7, %a, %a; => %a
and.b32 %r7, %a, -1; => %a
and.b32 %r7, 0, %a; => 0
and.b32 %r1, %a, 7; and.b32 %r7, %r1, 12; => and.b32(%a, 4)
and.b32 %r1, %a, 7; and.b32 %r7, %r1, %b; => and.b32(and.b32(%a, 7), %b)
and.b32 %r1, %a, %b; and.b32 %r7, %r1, 7; => and.b32(and.b32(%a, %b), 7)
or.b32 %r1, %a, 7; and.b32 %r7, %r1, 12; => and.b32(or.b32(%a, 7), 12)
and.b32 %r7, 6, 3; => 2
and.b16 %r7, %a, 0xffff; => %a
""",
    "or": """
or.b32 %r7, %a, %a; => %a
or.b32 %r7, %a, 0; => %a
or.b32 %r1, %a, 3; or.b32 %r7, %r1, 12; => or.b32(%a, 15)
or.b32 %r1, %a, %b; or.b32 %r7, %r1, 12; => or.b32(or.b32(%a, %b), 12)
and.b32 %r1, %a, 3; or.b32 %r7, %r1, 12; => or.b32(and.b32(%a, 3), 12)
or.b32 %r7, 6, 3; => 7
""",
    "xor": """
xor.b32 %r7, %a, %a; => 0
xor.b32 %r7, -1, %a; => not.b32(%a)
xor.b32 %r7, %a, 0; => %a
xor.b32 %r7, 6, 3; => 5
""",
    "shifts": """
shl.b32 %r1, %a, 3; shl.b32 %r7, %r1, 4; => shl.b32(%a, 7)
shl.b32 %r1, %a, 16; shl.b32 %r7, %r1, 15; => shl.b32(%a, 31)
shl.b32 %r1, %a, %b; shl.b32 %r7, %r1, 15; => shl.b32(shl.b32(%a, %b), 15)
shl.b32 %r1, %a, 1; shl.b32 %r7, %r1, %b; => shl.b32(shl.b32(%a, 1), %b)
shr.u32 %r1, %a, 1; shl.b32 %r7, %r1, 1; => shl.b32(shr.u32(%a, 1), 1)
shl.b32 %r7, %a, 32; => 0
shl.b32 %r7, %a, 31; => shl.b32(%a, 31)
shl.b32 %r7, 3, 31; => 2147483648
shl.b32 %r7, 3, 40; => 0
shl.b32 %r7, %a, 0; => %a
shr.s32 %r7, %a, 40; => shr.s32(%a, 40)
shr.u32 %r7, %a, 32; => 0
shr.b32 %r7, %a, 31; => shr.u32(%a, 31)
shr.u32 %r7, 100, 2; => 25
shr.u32 %r7, %a, %b; => shr.u32(%a, %b)
shr.u32 %r7, %a, 0; => %a
shl.b32 %r1, %a, 8; shr.u32 %r7, %r1, 7; => shr.u32(shl.b32(%a, 8), 7)
shl.b32 %r1, %a, 8; shr.s32 %r7, %r1, 8; => shr.s32(shl.b32(%a, 8), 8)
shf.l.clamp.b32 %r7, 0, %a, 32; => shf.l.clamp.b32(0, %a, 32)
shf.l.wrap.b32 %r7, %a, 0, 5; => shf.l.wrap.b32(%a, 0, 5)
shf.r.clamp.b32 %r7, 0, %a, 5; => shf.r.clamp.b32(0, %a, 5)
shf.r.clamp.b32 %r7, %a, 0, %b; => shf.r.clamp.b32(%a, 0, %b)
shr.b64 %r7, %a, 4; => shr.u64(%a, 4)
shl.b64 %r7, %a, 63; => shl.b64(%a, 63)
""",
    "min and max": """
min.s32 %r7, %a, %a; => %a
max.u32 %r7, %a, %a; => %a
max.u32 %r7, 5, %a; => max.u32(%a, 5)
min.s32 %r7, %a; => ?min.s32(%a)
""",
    "bfe and bfi": """
bfe.u32 %r7, %a, %b, 8; => bfe.u32(%a, %b, 8)
bfe.u32 %r7, %a, 4, %b; => bfe.u32(%a, 4, %b)
bfe.s32 %r7, %a, 4, 8; => bfe.s32(%a, 4, 8)
bfi.b32 %r7, 5, %b, 4, 8; => or.b32(and.b32(%b, 4294963215), 80)
bfi.b32 %r7, 0x105, %b, 4, 8; => or.b32(and.b32(%b, 4294963215), 80)
bfi.b32 %r7, %a, %b, 24, 8; => or.b32(shl.b32(%a, 24), and.b32(%b, 16777215))
bfi.b32 %r7, %a, %b, 23, 8; => bfi.b32(%a, %b, 23, 8)
bfi.b32 %r7, %a, %b, 0, 32; => bfi.b32(%a, %b, 0, 32)
bfi.b32 %r7, 1, %b, 0, 32; => 1
bfi.b32 %r7, 1, %b, 24, 9; => bfi.b32(1, %b, 24, 9)
bfi.b32 %r7, 1, %b, 4, 0; => bfi.b32(1, %b, 4, 0)
bfi.b32 %r7, 1, %b, %c, 4; => bfi.b32(1, %b, %c, 4)
bfi.b32 %r7, 1, %b, 4, %c; => bfi.b32(1, %b, 4, %c)
""",
    "prmt and lop3": """
prmt.b32 %r7, %a, %b, 0x7632; => prmt.b32(%a, %b, 30258)
prmt.b32 %r7, %a, %b, %c; => prmt.b32(%a, %b, %c)
lop3.b32 %r7, %a, %b, %c, 0x30; => lop3.b32(%a, %b, %c, 48)
lop3.b32 %r7, %a, %b, %c, 0xf0; => lop3.b32(%a, %b, %c, 240)
lop3.b32 %r7, %a, %b, %c, 0xca; => lop3.b32(%a, %b, %c, 202)
lop3.b32 %r7, %a, %b, %a, 0xc0; => lop3.b32(%a, %b, %a, 192)
lop3.b32 %r7, %a, %b, %c, %d; => lop3.b32(%a, %b, %c, %d)
""",
    "cvt": """
cvt.u32.s16 %r7, -3; => 4294967293
cvt.s32.s16 %r7, 0xfffd; => 4294967293
cvt.u32.u16 %r7, 0x1fffd; => 65533
cvt.u16.u32 %h1, %a; cvt.u32.u16 %r7, %h1; => and.b32(cvt.u16.u32(%a), 65535)
cvt.u16.u32 %h1, %a; cvt.u64.u16 %r7, %h1; => cvt.u64.u16(cvt.u16.u32(%a))
cvt.u32.u16 %r1, %h1; cvt.u16.u32 %r7, %r1; => %h1
cvt.s32.s16 %r1, %h1; cvt.u16.u32 %r7, %r1; => %h1
cvt.s32.s16 %r1, %h1; cvt.u8.u32 %r7, %r1; => cvt.u8.u32(cvt.s32.s16(%h1))
cvt.u16.u32 %h1, %a; cvt.s32.s16 %r7, %h1; => cvt.s32.s16(cvt.u16.u32(%a))
cvt.s32.u32 %r7, %a; => %a
cvt.u64.u32 %r7, %a; => cvt.u64.u32(%a)
cvt.f32.u32 %r7, %a; => cvt.f32.u32(%a)
cvt.u32.f32 %r7, %a; => cvt.u32.f32(%a)
cvt.rn.f16.f32 %r7, %a; => cvt.rn.f16.f32(%a)
""",
    "mov and set": """
set.lt.u32.s32 %r7, %a, %b; => selp.b32(4294967295, 0, setp.lt.s32(%a, %b))
set.gt.s16.u32 %r7, %a, %b; => selp.b32(65535, 0, setp.lt.u32(%b, %a))
mov.b64 %r7, {1, 2}; => 8589934593
mov.b32 %r7, {0x10001, 0x10002}; => 131073
mov.b32 %r7, {1, 2, 3, 4}; => 67305985
mov.b32 %r7, %a; => %a
set.lt.u32.s32 %r7, %a; => ?set.lt.u32.s32(%a)
mov.u32 %r7, WARP_SZ; => 32
mov.f32 %r7, %a; => %a
""",
    "slct": """
slct.s32.s32 %r7, %a; => ?slct.s32.s32(%a)
""",
    "guard": """
@%p1 add.s32 %r7, %a, %b; => selp.b32(add.b32(%a, %b), %r7, %p1)
@!%p1 add.s32 %r7, %a, %b; => selp.b32(%r7, add.b32(%a, %b), %p1)
@%p1 ld.global.b32 %r7, [%a]; => selp.b32(@ld.global.b32(%a), %r7, %p1)
""",
}


def written(source: Source) -> str:
    """A value as text, what makes it in brackets."""
    if not isinstance(source, Part):
        return str(source)
    made = source.operation
    return f"{made.name}.{made.type}({', '.join(map(written, made.sources))})"


@pytest.mark.parametrize("what", FORMS)
def test_values_are_written_in_normal_form(what: str) -> None:
    """%r7 is what is stored. Numbers have no sign: 4294967295 is -1 of 32 bits."""
    for row in FORMS[what].strip().splitlines():
        lines, form = row.split(" => ")
        (found,) = normal_operations(module(f"{lines} st.global.b32 [%out], %r7;"))
        assert written(found[-2].sources[1]) == form, row
