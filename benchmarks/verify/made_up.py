"""Made-up PTX kernels of one warp, from tables of statements: what fuzzers give to ptxas, the emulator and a GPU.

`Program(draw, group)` draws a program; `.text(name)` is an entry `name(out, in, scratch)` of 32 threads. Each thread
reads WORDS numbers, computes, and stores what all of its registers hold. No statement's result depends on timing:
atomics that return a value, and plain stores, are on memory of the own thread; shared sums are of integers. Sums and
products name their rounding, so that ptxas does not contract them. Left out: what PTX leaves open (abs of -2^31, lanes
that are no members) and approximations.

A statement may have alternatives, `{a|b}`, and holes:
    <R> <D> <H> <P>     a register of 32, 64 or 16 bits, or a predicate, that it writes
    <r> <d> <h> <p>     one that it reads
    <n>                 a register of 32 bits or a number
    <N-M>               a number from N to M
    <oN>                an offset below 64, a multiple of N
"""

from __future__ import annotations

import random
import re
import struct

THREADS, WORDS, WIDE, HALVES, FLAGS = 32, 10, 4, 4, 4
SCRATCH = 64 * THREADS + 64  # bytes of the buffer `scratch`: 64 of each thread, 64 of all
OUT = 8 * WIDE + 4 * WORDS + 2 * HALVES + 8  # bytes that a thread stores

_INTEGERS = (0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000)
_INTEGERS += (0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0xFFFF_FFFE, 0x5555_5555, 0x0101_0101, 0x8080_8080)
# Float32, pairs of float16 and bfloat16, and high words of float64: zeros, infinities, NaNs that are quiet or signal,
# the least and the largest of each kind, halfway cases, limits of integers.
_FLOATS = (0, 0x8000_0000, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFC0_0001, 0x7F80_0001, 0xFFBF_FFFF, 1, 0x8000_0001)
_FLOATS += (0x007F_FFFF, 0x0080_0000, 0x7F7F_FFFF, 0x3F80_0000, 0xBF80_0000, 0x3F80_0001, 0x3F00_0000, 0xBFC0_0000)
_FLOATS += (0x4F00_0000, 0xCF00_0000, 0x4F80_0000, 0x4EFF_FFFF, 0x5F00_0000, 0x477F_E000, 0x477F_F000, 0x43E0_0000)
_FLOATS += (0x3380_0000, 0x3F80_1000, 0x3F80_8000, 0x7C00_FC00, 0x7E01_FDFF, 0x0001_8001, 0x03FF_0400, 0x7BFF_FBFF)
_FLOATS += (0x3C00_BC00, 0x7F81_7FC1, 0x0080_807F, 0x7FF0_0000, 0xFFF8_0001, 0x7FF4_0000, 0x000F_FFFF, 0x0010_0000)
_FLOATS += (0x3FF0_0000, 0xBFE0_0000, 0x41DF_FFFF, 0x41F0_0000, 0xC1E0_0000, 0x43E0_0000, 0x36A0_0000, 0x3810_0000)

_COMPARED = "{eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan}"
_ROUND = "{.rn|.rz|.rm|.rp}"
_WHOLE = "{.rni|.rzi|.rmi|.rpi}"
_ORDER = "{|.relaxed.gpu|.acquire.gpu|.release.cta|.acq_rel.sys}"

_BASE = (
    "{neg.s32|not.b32|popc.b32|clz.b32|brev.b32|bfind.u32|bfind.s32|cnot.b32|cvt.s32.s8|cvt.u32.u8} <R>, <r>",
    "{cvt.s32.s16|cvt.u32.u16|cvt.sat.s8.s32|cvt.sat.u16.s32} <R>, <r>",
    "{add.s32|sub.s32|mul.lo.s32|mul.hi.u32|mul.hi.s32|and.b32|or.b32|xor.b32|min.s32|min.u32} <R>, <r>, <n>",
    "{max.s32|max.u32|shl.b32|shr.u32|shr.s32|add.sat.s32|sub.sat.s32|mul24.lo.s32|mul24.hi.u32} <R>, <r>, <n>",
    "{add.u16x2|add.s16x2|min.s16x2|min.u16x2|max.s16x2|max.u16x2} <R>, <r>, <r>",
    "lop3.b32 <R>, <r>, <n>, <r>, <0-255>",
    "{mad.lo.s32|mad.hi.u32|prmt.b32|sad.s32|sad.u32|shf.l.wrap.b32|shf.r.clamp.b32|dp4a.u32.u32} <R>, <r>, <n>, <n>",
    "{dp4a.s32.u32|dp2a.lo.s32.s32|mad24.lo.u32|mad24.lo.s32|mad.lo.u32} <R>, <r>, <n>, <n>",
    "bfe.{u|s}32 <R>, <r>, {<0-39>|<r>}, {<0-39>|<r>}",
    "bfi.b32 <R>, <r>, <r>, {<0-39>|<r>}, {<0-39>|<r>}",
    "setp.{eq.s32|ne.u32|lt.s32|le.u32|gt.s32|ge.u32|lo.u32|hi.u32} <P>, <r>, <n>",
    "selp.b32 <R>, <n>, <n>, <p>",
    "{add.s64|sub.s64|mul.lo.s64|and.b64|or.b64|xor.b64|min.s64|max.u64|mul.hi.u64|mul.hi.s64} <D>, <d>, <d>",
    "{shl.b64|shr.u64|shr.s64} <D>, <d>, <n>",
    "{mul.wide.s32|mul.wide.u32} <D>, <r>, <n>",
    "{mad.wide.u32|mad.wide.s32} <D>, <r>, <n>, <d>",
    "{cvt.s64.s32|cvt.u64.u32} <D>, <r>",
    "{cvt.u32.u64|popc.b64|clz.b64} <R>, <d>",
)

GROUPS: dict[str, tuple[str, ...]] = {
    "integers": (
        "bfe.{u|s}64 <D>, <d>, {<0-70>|<r>}, {<0-70>|<r>}",
        "bfi.b64 <D>, <d>, <d>, {<0-70>|<r>}, {<0-70>|<r>}",
        "{div|rem}.{u32|s32} <R>, <r>, <1-9>",
        "{div|rem}.{u64|s64} <D>, <d>, {<1-9>|1099511627776|4294967296|1000000007}",
        "{add.cc.u32 <R>, <r>, <n>; addc.u32|sub.cc.u32 <R>, <r>, <n>; subc.u32} <R>, <r>, <n>",
        "mad.lo.cc.u32 <R>, <r>, <n>, <r>; madc.hi.u32 <R>, <r>, <n>, <r>",
        "{min|max}.relu.s32 <R>, <r>, <r>",
        "prmt.b32{.f4e|.b4e|.rc8|.ecl|.ecr|.rc16} <R>, <r>, <r>, <r>",
        "szext.{wrap|clamp}.{u32|s32} <R>, <r>, <n>",
        "bmsk.{wrap|clamp}.b32 <R>, <r>, <n>",
        "slct.{b32|u32}.s32 <R>, <r>, <r>, <r>",
        "{add.s16|sub.s16|mul.lo.s16|mul.hi.s16|and.b16|min.s16|max.u16} <H>, <h>, <h>",
    ),
    "floats": (
        f"{{add|sub|mul}}{_ROUND}{{|.ftz}}{{|.sat}}.f32 <R>, <r>, <r>",
        f"fma{_ROUND}{{|.ftz}}{{|.sat}}.f32 <R>, <r>, <r>, <r>",
        "{min|max}{|.ftz}{|.NaN}{|.xorsign.abs}.f32 <R>, <r>, <r>",
        "{neg|abs}{|.ftz}.f32 <R>, <r>",
        "copysign.f32 <R>, <r>, <r>",
        f"div{_ROUND}{{|.ftz}}.f32 <R>, <r>, <r>",
        f"{{rcp|sqrt}}{_ROUND}{{|.ftz}}.f32 <R>, <r>",
        "testp.{finite|infinite|number|notanumber|normal|subnormal}.f32 <P>, <r>",
        f"setp.{_COMPARED}{{|.ftz}}.f32 <P>, <r>, <r>",
        f"set.{_COMPARED}{{|.ftz}}.{{u32|s32|f32}}.f32 <R>, <r>, <r>",
        "slct{|.ftz}.{b32|u32|f32}.f32 <R>, <r>, <r>, <r>",
    ),
    "doubles": (
        f"{{add|sub|mul}}{_ROUND}.f64 <D>, <d>, <d>",
        f"fma{_ROUND}.f64 <D>, <d>, <d>, <d>",
        "{min|max}.f64 <D>, <d>, <d>",
        "{neg|abs}.f64 <D>, <d>",
        f"div{_ROUND}.f64 <D>, <d>, <d>",
        f"{{rcp|sqrt}}{_ROUND}.f64 <D>, <d>",
        "copysign.f64 <D>, <d>, <d>",
        "testp.{finite|infinite|number|notanumber|normal|subnormal}.f64 <P>, <d>",
        f"setp.{_COMPARED}.f64 <P>, <d>, <d>",
    ),
    "halves": (
        "{add|sub|mul}.rn{|.ftz}{|.sat}.f16 <H>, <h>, <h>",
        "{add|sub|mul}.rn{|.ftz}{|.sat}.f16x2 <R>, <r>, <r>",
        "fma.rn{|.ftz}{|.sat|.relu}.f16 <H>, <h>, <h>, <h>",
        "fma.rn{|.ftz}{|.sat|.relu}.f16x2 <R>, <r>, <r>, <r>",
        "fma.rn{|.relu}.bf16 <H>, <h>, <h>, <h>",
        "fma.rn{|.relu}.bf16x2 <R>, <r>, <r>, <r>",
        "{add|sub|mul}.rn.bf16 <H>, <h>, <h>",
        "{add|sub|mul}.rn.bf16x2 <R>, <r>, <r>",
        "{min|max}{|.ftz}{|.NaN}{|.xorsign.abs}.f16 <H>, <h>, <h>",
        "{min|max}{|.ftz}{|.NaN}{|.xorsign.abs}.f16x2 <R>, <r>, <r>",
        "{min|max}{|.NaN}{|.xorsign.abs}.bf16 <H>, <h>, <h>",
        "{min|max}{|.NaN}{|.xorsign.abs}.bf16x2 <R>, <r>, <r>",
        "{neg|abs}{|.ftz}.f16 <H>, <h>",
        "{neg|abs}{|.ftz}.f16x2 <R>, <r>",
        "{neg|abs}.bf16 <H>, <h>",
        "{neg|abs}.bf16x2 <R>, <r>",
        f"setp.{_COMPARED}{{|.ftz}}.f16 <P>, <h>, <h>",
        f"setp.{_COMPARED}.bf16 <P>, <h>, <h>",
        f"set.{_COMPARED}{{|.ftz}}.f16x2.f16x2 <R>, <r>, <r>",
        f"set.{_COMPARED}.bf16x2.bf16x2 <R>, <r>, <r>",
    ),
    "conversions": (
        f"cvt{_WHOLE}{{|.ftz}}.{{s32|u32}}.f32 <R>, <r>",
        f"cvt{_WHOLE}{{|.ftz}}.{{s64|u64}}.f32 <D>, <r>",
        f"cvt{_WHOLE}{{|.ftz}}{{|.sat}}.f32.f32 <R>, <r>",
        f"cvt{_WHOLE}.{{s32|u32}}.f64 <R>, <d>",
        f"cvt{_WHOLE}.{{s64|u64|f64}}.f64 <D>, <d>",
        f"cvt{_WHOLE}.{{s32|u32}}.f16 <R>, <h>",
        f"cvt{_WHOLE}.f16.f16 <H>, <h>",
        f"cvt{_ROUND}.f32.{{s32|u32}} <R>, <r>",
        f"cvt{_ROUND}.f32.{{s64|u64}} <R>, <d>",
        f"cvt{_ROUND}.f64.{{s64|u64}} <D>, <d>",
        "cvt.rn.f64.{s32|u32} <D>, <r>",
        "cvt.rn.f16.{s32|u32} <H>, <r>",
        f"cvt{_ROUND}{{|.ftz}}{{|.sat}}.f32.f64 <R>, <d>",
        "cvt{|.ftz}.f64.f32 <D>, <r>",
        "cvt.{rn|rz}{|.relu}.f16.f32 <H>, <r>",
        "cvt{|.ftz}.f32.f16 <R>, <h>",
        "cvt.f32.bf16 <R>, <h>",
        "cvt.{rn|rz}{|.relu}.bf16.f32 <H>, <r>",
        "cvt.{rn|rz}{|.relu}.{f16x2|bf16x2}.f32 <R>, <r>, <r>",
        "cvt.{rna|rn|rz|rn.relu|rz.relu}.tf32.f32 <R>, <r>",
        "cvt.rn.satfinite{|.relu}.{e4m3x2|e5m2x2}.f32 <H>, <r>, <r>",
        "cvt.rn.satfinite{|.relu}.{e4m3x2|e5m2x2}.f16x2 <H>, <r>",
        "cvt.rn{|.relu}.f16x2.{e4m3x2|e5m2x2} <R>, <h>",
        "cvt{|.sat}.{s8|u8|s16|u16}.{s32|u32} <R>, <r>",
        "cvt{|.sat}.{s32|u32}.{s64|u64} <R>, <d>",
        "cvt.pack.sat.{u16|s16}.s32 <R>, <r>, <r>",
        "cvt.pack.sat.{u8|s8}.s32.b32 <R>, <r>, <r>, <r>",
    ),
    "warps": (
        "shfl.sync.{bfly|down|idx}.b32 <R>|<P>, <r>, {<0-31>|<r>}, {31|6175|7199}, -1",
        "shfl.sync.up.b32 <R>|<P>, <r>, {<0-31>|<r>}, {0|6144|7168}, -1",
        "vote.sync.{all|any|uni}.pred <P>, <p>, -1",
        "vote.sync.ballot.b32 <R>, <p>, -1",
        "match.any.sync.{b32 <R>, <r>|b64 <R>, <d>}, -1",
        "match.all.sync.b32 <R>|<P>, <r>, -1",
        "match.all.sync.b64 <R>|<P>, <d>, -1",
        "redux.sync.{add|min|max}.{s32|u32} <R>, <r>, -1",
        "redux.sync.{and|or|xor}.b32 <R>, <r>, -1",
    ),
    "atomics": (
        f"atom{_ORDER}.global.{{add.u32|add.s32|min.s32|max.u32|and.b32|or.b32|xor.b32|exch.b32|inc.u32|dec.u32}} "
        "<R>, [%own+<o4>], <r>",
        f"atom{_ORDER}.global.{{add.u64|min.s64|max.u64|and.b64|or.b64|xor.b64|exch.b64}} <D>, [%own+<o8>], <d>",
        f"atom{_ORDER}.global.cas.b32 <R>, [%own+<o4>], <r>, <r>",
        f"atom{_ORDER}.global.cas.b64 <D>, [%own+<o8>], <d>, <d>",
        "atom{|.relaxed.gpu}.global.add.f32 <R>, [%own+<o4>], <r>",
        "atom{|.relaxed.gpu}.global.add.f64 <D>, [%own+<o8>], <d>",
        "atom{|.relaxed.gpu}.global.add.noftz.{f16x2|bf16x2} <R>, [%own+<o4>], <r>",
        "atom{|.relaxed.gpu}.global.add.noftz.{f16|bf16} <H>, [%own+<o2>], <h>",
        "atom.shared.{add.u32|add.s32|min.s32|max.u32|and.b32|or.b32|xor.b32|exch.b32|inc.u32|dec.u32} "
        "<R>, [%sown+<o4>], <r>",
        "atom.shared.{add.u64|min.s64|max.u64|exch.b64} <D>, [%sown+<o8>], <d>",
        "atom.shared.cas.b32 <R>, [%sown+<o4>], <r>, <r>",
        "atom.shared.add.f32 <R>, [%sown+<o4>], <r>",
        "red{|.relaxed.gpu}.global.{add.u32 [%all+0]|min.s32 [%all+4]|max.u32 [%all+8]|and.b32 [%all+12]}, <r>",
        "red{|.relaxed.gpu}.global.{or.b32 [%all+16]|xor.b32 [%all+20]|add.s32 [%all+24]}, <r>",
        "red.global.{add.u64 [%all+32]|max.s64 [%all+40]|min.u64 [%all+48]}, <d>",
        "ld.global.b32 <R>, [%own+<o4>]",
        "ld.shared.b32 <R>, [%sown+<o4>]",
        "atom.add.u32 <R>, [%gen+<o4>], <r>",
    ),
    "memory": (
        "st.{shared.b32 [%sown|global.b32 [%own|local.b32 [%lown|b32 [%gen}+<o4>], <r>",
        "st.{shared.b64 [%sown|global.b64 [%own|local.b64 [%lown|b64 [%gen}+<o8>], <d>",
        "st.{shared.b16 [%sown|global.b16 [%own|local.b16 [%lown}+<o2>], <h>",
        "st.{shared.b8 [%sown|global.b8 [%own|local.b8 [%lown}+<o1>], <r>",
        "st.shared.v2.b32 [%sown+<o8>], [[<r>, <r>]]",
        "st.shared.v4.b32 [%sown+<o16>], [[<r>, <r>, <r>, <r>]]",
        "st.global.v2.b64 [%own+<o16>], [[<d>, <d>]]",
        "ld.{shared.b32 <R>, [%sown|global.b32 <R>, [%own|local.b32 <R>, [%lown|b32 <R>, [%gen}+<o4>]",
        "ld.{shared.b64 <D>, [%sown|global.b64 <D>, [%own|local.b64 <D>, [%lown|b64 <D>, [%gen}+<o8>]",
        "ld.shared.{u8|s8} <R>, [%sown+<o1>]",
        "ld.global.{u16|s16} <R>, [%own+<o2>]",
        "ld.local.{u8|s16} <R>, [%lown+<o2>]",
        "ld.shared.v2.b32 [[<R>, <R>]], [%sown+<o8>]",
        "ld.global.v4.b32 [[%r0, %r1, %r2, %r3]], [%own+<o16>]",
        "ld.shared.v4.b32 [[%r4, %r5, %r6, %r7]], [%sown+<o16>]",
        "cp.async.ca.shared.global [%sown+<o16>], [%own+<o16>], {16|16, 8}; cp.async.wait_all",
        "cp.async.ca.shared.global [%sown+<o4>], [%own+<o4>], 4; cp.async.wait_all",
    ),
}
_TOGETHER = {  # where all threads are: not in a branch
    "atomics": ("bar.sync 0; red.shared.add.u32 [%sall], <r>; bar.sync 0; ld.shared.b32 <R>, [%sall]; bar.sync 0",),
    "memory": ("bar.sync 0; ld.shared.{b32 <R>|b64 <D>}, [%snext+<o8>]; bar.sync 0",),
}
# Statements that some lanes of a warp execute together: the members of mask %m.
_MEMBERS = (
    "vote.sync.{all|any|uni}.pred <P>, <p>, %m",
    "vote.sync.ballot.b32 <R>, <p>, %m",
    "match.any.sync.b32 <R>, <r>, %m",
    "match.all.sync.b32 <R>|<P>, <r>, %m",
    "redux.sync.{add|min|max}.{s32|u32} <R>, <r>, %m",
    "redux.sync.{and|or|xor}.b32 <R>, <r>, %m",
    "bfind.u32 %s, %m; shfl.sync.idx.b32 <R>, <r>, %s, 31, %m",
    "bar.warp.sync %m",
)
_HOLE = re.compile(r"<(?:([RrDdHhPpn])|(\d+)-(\d+)|o(\d+))>")
_CHOICE = re.compile(r"\{([^{}]*)\}")


class Program:
    """A drawn program. group: of GROUPS, whose statements stand among those of integers. lines: its statements."""

    def __init__(self, draw: random.Random, group: str = "integers") -> None:
        self.draw, self.group, self.lines, self._labels = draw, group, list[str](), 0
        for _ in range(draw.randrange(8, 40)):
            self._any()

    def _any(self, depth: int = 0) -> None:
        makers = [self._simple] * 23 + [self._together] * (not depth)
        makers += [self._branch, self._loop] if depth < 2 else []
        self.draw.choice(makers)(depth)

    def _simple(self, depth: int) -> None:
        usable = not depth or self.group != "warps"
        own = GROUPS[self.group] if usable and self.draw.random() < 0.6 else _BASE
        guard = (
            f"@{self.draw.choice(('', '!'))}{self._flag()} "
            if usable and own is _BASE and self.draw.random() < 0.15
            else ""
        )
        self.lines.append(guard + self.filled(self.draw.choice(own)))

    def _together(self, depth: int) -> None:
        self.lines.append(self.filled(self.draw.choice(_TOGETHER.get(self.group, GROUPS["warps"]))))

    def _branch(self, depth: int) -> None:
        label, flag = self._label(), self._flag()
        members = self.group == "warps" and not depth
        if members:
            self.lines.append(f"vote.sync.ballot.b32 %m, {flag}, -1;")
        self.lines.append(f"@{'!' if members else ''}{flag} bra {label};")
        for _ in range(self.draw.randrange(1, 6)):
            if members:
                self.lines.append(self.filled(self.draw.choice((*_MEMBERS, *_BASE))))
            else:
                self._any(depth + 1)
        self.lines.append(f"{label}:")
        if members:
            self.lines.append("bar.warp.sync -1;")

    def _loop(self, depth: int) -> None:
        """At most as often as a number of three bits says, which no other statement changes."""
        label, count = self._label(), f"%c{depth}"
        self.lines += [f"and.b32 {count}, {self._hole('r')}, 7;", f"{label}:"]
        for _ in range(self.draw.randrange(1, 6)):
            self._any(depth + 1)
        self.lines += [
            f"sub.s32 {count}, {count}, 1;",
            f"setp.gt.s32 %q{depth}, {count}, 0;",
            f"@%q{depth} bra {label};",
        ]

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def _flag(self) -> str:
        return f"%p{self.draw.randrange(FLAGS)}"

    def filled(self, statement: str) -> str:
        """Return a statement with alternatives chosen and holes filled."""
        while _CHOICE.search(statement):
            statement = _CHOICE.sub(lambda match: self.draw.choice(match[1].split("|")), statement, count=1)
        written = set[str]()

        def fill(match: re.Match[str]) -> str:
            kind, low, high, step = match.groups()
            if kind is None:
                return str(self.draw.randint(int(low), int(high)) if low else self.draw.randrange(0, 64, int(step)))
            name = self._hole(kind)
            while kind in "RDHP" and name in written:  # the results of one statement are in different registers
                name = self._hole(kind)
            written.add(name if kind in "RDHP" else "")
            return name

        return _HOLE.sub(fill, statement).replace("[[", "{").replace("]]", "}") + ";"

    def _hole(self, kind: str) -> str:
        if kind == "n" and self.draw.random() < 0.35:
            return str(self.draw.choice(_INTEGERS))
        count = {"d": WIDE, "h": HALVES, "p": FLAGS}.get(kind.lower(), WORDS)
        return f"%{'r' if kind == 'n' else kind.lower()}{self.draw.randrange(count)}"

    def text(self, name: str) -> str:
        """Return an entry that reads WORDS numbers of each thread, and stores what all registers hold."""
        loads = [f"ld.global.b32 %r{n}, [%in+{4 * n}];" for n in range(WORDS)]
        starts = [f"mov.b64 %d{n}, {{%r{n}, %r{n + WIDE}}};" for n in range(WIDE)]
        starts += [f"cvt.u16.u32 %h{n}, %r{n};" for n in range(HALVES)]
        starts += [f"setp.lt.s32 %p{n}, %r{n}, 0;" for n in range(FLAGS)]
        for n in range(8):  # no byte of shared or local memory is read before it is written
            starts.append(f"st.shared.b64 [%sown+{8 * n}], %d{n % WIDE}; st.local.b64 [%lown+{8 * n}], %d{n % WIDE};")
        stores = [f"st.global.b64 [%out+{8 * n}], %d{n};" for n in range(WIDE)]
        stores += [f"st.global.b32 [%out+{8 * WIDE + 4 * n}], %r{n};" for n in range(WORDS)]
        at = 8 * WIDE + 4 * WORDS
        stores += [f"st.global.b16 [%out+{at + 2 * n}], %h{n};" for n in range(HALVES)]
        stores += ["mov.b32 %t, 0;", *(f"@%p{n} or.b32 %t, %t, {1 << n};" for n in range(FLAGS))]
        stores += [f"st.global.b32 [%out+{at + 2 * HALVES}], %t;"]
        lines = "\n".join(
            line.replace("L", f"{name}_L") if "bra" in line or line.endswith(":") else line for line in self.lines
        )
        return f""".visible .entry {name}(.param .u64 out, .param .u64 in, .param .u64 scratch)
{{
.shared .align 16 .b8 {name}_shared[{SCRATCH}]; .local .align 16 .b8 {name}_local[64];
.reg .b32 %r<{WORDS}>; .reg .b64 %d<{WIDE}>; .reg .b16 %h<{HALVES}>; .reg .pred %p<{FLAGS}>; .reg .pred %q<4>;
.reg .b32 %c<4>; .reg .b32 %t, %m, %s, %sown, %snext, %sall, %lown; .reg .b64 %in, %out, %own, %all, %gen;
ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; ld.param.u64 %all, [scratch]; mov.u32 %t, %tid.x;
mad.wide.u32 %out, %t, {OUT}, %out; mad.wide.u32 %in, %t, {4 * WORDS}, %in; mad.wide.u32 %own, %t, 64, %all;
add.s64 %all, %all, {64 * THREADS}; mov.b32 %m, -1; mov.b32 %lown, {name}_local; mov.b32 %sall, {name}_shared;
mad.lo.u32 %sown, %t, 64, %sall; xor.b32 %snext, %t, 5; mad.lo.u32 %snext, %snext, 64, %sall;
add.s32 %sall, %sall, {64 * THREADS}; cvt.u64.u32 %gen, %sown; cvta.shared.u64 %gen, %gen;
{" ".join(loads + starts)} st.shared.b32 [%sall], 0; bar.sync 0;
{lines}
{" ".join(stores)}
ret;
}}
"""


def inputs(draw: random.Random, group: str = "integers") -> tuple[bytes, bytes]:
    """Return the contents of `in` and of `scratch`: half of the numbers are special."""
    special = _INTEGERS if group in ("integers", "warps", "memory") else _FLOATS + _INTEGERS

    def numbers(count: int) -> bytes:
        drawn = [draw.choice(special) if draw.random() < 0.5 else draw.getrandbits(32) for _ in range(count)]
        return struct.pack(f"<{count}I", *drawn)

    return numbers(THREADS * WORDS), numbers(SCRATCH // 4)
