"""Known miscompilations in other words: does `verify --known` find forms that ptxas assembles wrongly, too?

    python -m benchmarks equivalent_forms [--add] [--out FILE]

Each example of a known bug (tests/support/bug_examples.ptx) is written in other ways that mean the same: one
statement is replaced by equivalent ones (other operations, operands exchanged, a predicate, a block of its own), or one
constant by others (in other bases, by WARP_SZ, through registers). Every form is assembled for sm_90a by a ptxas that
has the bug and by one that has not, if there is one, and their machine code is emulated (`tritonhook.emulate`). A form
is *wrong* if the second stores what the example's PTX says, and the first does not. `found` counts the wrong forms in
which the pattern of the bug is found, `right_but_found` those in which it is found although this ptxas makes right code
of them. Needs no GPU.
--add downloads the versions.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bug_examples import EXAMPLES, ptx_of

from benchmarks.common import environment
from benchmarks.lab.miscompiles import assembled, verdict

VERSIONS = ("12.4.131", "12.8.93", "12.9.86", "13.5.37")
NEEDS = tuple(f"ptxas {version}" for version in VERSIONS)
OFFLINE = ("--add",)
TARGET = "sm_90a"
_MORE = ".reg .b32 %x<9>; .reg .b64 %y<9>; .reg .b16 %z<9>; .reg .pred %q<9>;\n"
_TAKES = {"r": "%x", "d": "%y", "h": "%z"}  # by the letter of a register, others of its size
_BITS = {"r": 32, "d": 64, "h": 16}
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)")
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMMUTE = ("add", "mul", "mad", "and", "or", "xor", "max", "min")
_LOGIC = {"and": "0xc0", "or": "0xfc", "xor": "0x3c"}


def forms(lines: str) -> Iterator[tuple[str, str]]:
    """Ways to write these lines: what was done, and the lines."""
    statements = [" ".join(one.split()) for one in lines.split(";") if one.strip()]
    for number, statement in enumerate(statements):
        for name, others in spellings(statement):
            written = [*statements[:number], *others, *statements[number + 1 :]]
            yield f"{statement}: {name}", _MORE + ";\n".join(written) + ";"


def spellings(statement: str) -> Iterator[tuple[str, list[str]]]:
    """Other statements for one."""
    opcode, _, rest = statement.partition(" ")
    operands = [one.strip() for one in re.split(r",(?![^{]*\})", rest)]
    letter = operands[0][1:2]
    if opcode.startswith((".", "@", "L:", "ld", "st", "fence", "bar", "mma", "wgmma")):
        if opcode.startswith("wgmma.mma"):
            yield from descriptors(statement)
        return
    yield "in a block", [f"{{ {statement}; }} mov.pred %q8, %q8"]
    if letter not in _BITS and letter != "p":
        return
    yield from constants(opcode, operands)
    yield from copies(opcode, operands)
    if letter in _BITS:
        yield from guards(statement, operands[0], _BITS[letter])
    yield from types(opcode, operands)
    name, *qualifiers = opcode.split(".")
    if name in _COMMUTE and "wide" not in qualifiers and operands[1] != operands[2]:
        yield "operands exchanged", [f"{opcode} {', '.join([operands[0], operands[2], operands[1], *operands[3:]])}"]
    if "sat" not in qualifiers and (maker := _MAKERS.get(name)):
        bits = 0 if letter == "p" else _BITS[letter]
        yield from maker(opcode, operands, bits)


def constants(opcode: str, operands: list[str]) -> Iterator[tuple[str, list[str]]]:
    type_ = opcode.rpartition(".")[2]
    bits = int(re.sub(r"\D", "", type_)) if type_[1:] in ("16", "32", "64") else 32
    place = {16: "%z", 32: "%x", 64: "%y"}[bits]
    for at, operand in enumerate(operands[1:], 1):
        if not _INTEGER.fullmatch(operand):
            continue
        is_count = opcode.startswith(("shl", "shr"))
        size, register = (32, "%x") if is_count else (bits, place)
        number = int(operand, 0)
        if opcode.startswith(("mov", "lop3")) or (opcode.startswith("mad.wide")):
            continue

        def used(text: str, *before: str, at: int = at) -> list[str]:
            return [*before, f"{opcode} {', '.join([*operands[:at], text, *operands[at + 1 :]])}"]

        mask = (1 << size) - 1
        yield f"{operand} binary", used(f"0b{number & mask:b}" if number >= 0 else f"-0b{-number:b}")
        yield f"{operand} octal", used(f"0{number:o}" if number > 0 else hex(number & mask))
        yield f"{operand} in a register", used(f"{register}0", f"mov.b{size} {register}0, {operand}")
        yield (
            f"{operand} by a sum",
            used(f"{register}1", f"mov.b{size} {register}0, {number - 3}", f"add.s{size} {register}1, {register}0, 3"),
        )
        yield (
            f"{operand} by xor",
            used(
                f"{register}1",
                f"mov.b{size} {register}0, {hex((number ^ 5) & mask)}",
                f"xor.b{size} {register}1, {register}0, 5",
            ),
        )
        if size == 32:
            before = ["mov.u32 %x0, WARP_SZ", f"add.s32 %x1, %x0, {number - 32}"]
            yield f"{operand} by WARP_SZ", used("%x1", *before)
            yield (
                f"{operand} by packing",
                used(
                    "%x1",
                    f"mov.b16 %z0, {number & 0xFFFF}",
                    f"mov.b16 %z1, {number >> 16 & 0xFFFF}",
                    "mov.b32 %x1, {%z0, %z1}",
                ),
            )
            yield f"{operand} of 64 bits", used("%x1", f"mov.b64 %y0, {number & mask}", "cvt.u32.u64 %x1, %y0")
        if number == 32:
            yield "32 is WARP_SZ", used("WARP_SZ")


def copies(opcode: str, operands: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A source through a copy."""
    for at, operand in enumerate(operands[1:], 1):
        if match := re.fullmatch(r"%([rdh])\d", operand):
            register, bits = f"{_TAKES[match[1]]}7", _BITS[match[1]]
            rest = f"{opcode} {', '.join([*operands[:at], register, *operands[at + 1 :]])}"
            yield f"{operand} copied", [f"mov.b{bits} {register}, {operand}", rest]
            yield f"{operand} with 0 added", [f"add.s{bits} {register}, {operand}, 0", rest]
            yield (
                f"{operand} negated twice",
                [
                    f"neg.s{bits} {register}, {operand}",
                    f"neg.s{bits} {register}, {register}",
                    rest,
                ],
            )
            yield f"{operand} with no bit set", [f"or.b{bits} {register}, {operand}, 0", rest]


def guards(statement: str, result: str, bits: int) -> Iterator[tuple[str, list[str]]]:
    """Under a predicate that holds, which ptxas cannot know."""
    if result in statement.partition(",")[2] or ".cc" in statement or "addc" in statement or "subc" in statement:
        return
    yield "guarded", [f"mov.b{bits} {result}, 0", "setp.ne.s64 %q0, %in, 0", f"@%q0 {statement}"]
    yield "guarded by !", [f"mov.b{bits} {result}, 0", "setp.eq.s64 %q0, %in, 0", f"@!%q0 {statement}"]


def types(opcode: str, operands: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Types that make no difference."""
    name, *_, type_ = opcode.split(".")
    same = {"s": "u", "u": "s"}.get(type_[0])
    if same and ".sat" not in opcode and (name in ("add", "sub") or (name in ("mul", "mad") and ".lo" in opcode)):
        yield f"{same}{type_[1:]}", [f"{opcode[: -len(type_)]}{same}{type_[1:]} {', '.join(operands)}"]


def of_neg(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, source = operands
    other = {16: "%z5", 32: "%x5", 64: "%y5"}[bits]
    yield "0 minus", [f"sub.s{bits} {result}, 0, {source}"]
    yield "0 minus, in a register", [f"mov.b{bits} {other}, 0", f"sub.s{bits} {result}, {other}, {source}"]
    yield "times -1", [f"mul.lo.s{bits} {result}, {source}, -1"]
    yield "-1 times", [f"mov.b{bits} {other}, -1", f"mul.lo.s{bits} {result}, {other}, {source}"]
    if bits != 64:
        yield "mad by -1", [f"mad.lo.s{bits} {result}, {source}, -1, 0"]
    yield "not, and 1", [f"not.b{bits} {other}, {source}", f"add.s{bits} {result}, {other}, 1"]
    yield "xor, and 1", [f"xor.b{bits} {other}, {source}, -1", f"add.s{bits} {result}, {other}, 1"]
    yield "1 less, and not", [f"add.s{bits} {other}, {source}, -1", f"not.b{bits} {result}, {other}"]


def of_sub(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, a, b = operands
    if ".cc" not in opcode:
        other = {16: "%z5", 32: "%x5", 64: "%y5"}[bits]
        yield "plus the negation", [f"neg.s{bits} {other}, {b}", f"add.s{bits} {result}, {a}, {other}"]
        yield "negation first", [f"neg.s{bits} {other}, {b}", f"add.s{bits} {result}, {other}, {a}"]
        yield "negated difference", [f"sub.s{bits} {other}, {b}, {a}", f"neg.s{bits} {result}, {other}"]


def of_extreme(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    name, type_ = opcode.split(".")
    result, a, b = operands
    for how in ("gt", "ge", "lt", "le"):
        pair = (a, b) if (how in ("gt", "ge")) == (name == "max") else (b, a)
        compare = f"setp.{how}.{type_} %q1, {a}, {b}"
        yield f"setp.{how} and selp", [compare, f"selp.b{bits} {result}, {pair[0]}, {pair[1]}, %q1"]
        if result not in pair:
            moves = [f"mov.b{bits} {result}, {pair[1]}", f"@%q1 mov.b{bits} {result}, {pair[0]}"]
            yield f"setp.{how} and mov", [compare, *moves]


def of_logic(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    name = opcode.partition(".")[0]
    result, a, b = operands
    if bits != 32:
        return
    yield "lop3", [f"lop3.b32 {result}, {a}, {b}, 0, {_LOGIC[name]}"]
    yield "lop3, 0 first", [f"lop3.b32 {result}, 0, {a}, {b}, {hex({'and': 0x88, 'or': 0xEE, 'xor': 0x66}[name])}"]
    if name in ("and", "or"):
        dual = {"and": "or", "or": "and"}[name]
        yield (
            "by the negations",
            [
                f"not.b32 %x5, {a}",
                f"not.b32 %x6, {b}" if not _INTEGER.fullmatch(b) else f"mov.b32 %x6, {hex(~int(b, 0) & 0xFFFFFFFF)}",
                f"{dual}.b32 %x5, %x5, %x6",
                f"not.b32 {result}, %x5",
            ],
        )
    if not _INTEGER.fullmatch(b):
        return
    number = int(b, 0) & 0xFFFFFFFF
    if name == "or":
        cleared = f"and.b32 %x5, {a}, {hex(~number & 0xFFFFFFFF)}"
        yield "xor of cleared bits", [cleared, f"xor.b32 {result}, %x5, {b}"]
        yield "sum of cleared bits", [cleared, f"add.s32 {result}, %x5, {b}"]
        if number & (number - 1) == 0:
            place = number.bit_length() - 1
            yield "bfi", [f"bfi.b32 {result}, 1, {a}, {place}, 1"]
            yield "bfi of -1", ["mov.b32 %x5, -1", f"bfi.b32 {result}, %x5, {a}, {place}, 1"]
    if name == "and" and number & (number + 1) == 0 and number:
        yield "bfe", [f"bfe.u32 {result}, {a}, 0, {number.bit_length()}"]
        count = 32 - number.bit_length()
        yield "shifts", [f"shl.b32 %x5, {a}, {count}", f"shr.u32 {result}, %x5, {count}"]
        if number == 0xFFFF:
            yield "cvt", [f"cvt.u32.u16 {result}, {a}"]


def of_left(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, a, count = operands
    if not _INTEGER.fullmatch(count):
        return
    k = int(count, 0)
    other = {32: "%x5", 64: "%y5"}[bits]
    yield "product", [f"mul.lo.s{bits} {result}, {a}, {hex(1 << k)}"]
    yield "mad", [f"mad.lo.s{bits} {result}, {a}, {hex(1 << k)}, 0"]
    yield "product, number first", [f"mov.b{bits} {other}, {hex(1 << k)}", f"mul.lo.u{bits} {result}, {other}, {a}"]
    if k == 1:
        yield "sum", [f"add.s{bits} {result}, {a}, {a}"]
    elif k > 1:
        yield "shift and sum", [f"shl.b{bits} {other}, {a}, {k - 1}", f"add.u{bits} {result}, {other}, {other}"]
    if bits == 32:
        yield "shf", [f"shf.l.wrap.b32 {result}, 0, {a}, {k}"]
        yield "bfi", [f"bfi.b32 {result}, {a}, 0, {k}, {32 - k}"]


def of_right(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, a, count = operands
    if not _INTEGER.fullmatch(count):
        return
    k, sign = int(count, 0), opcode.rpartition(".")[2][0]
    if sign in "ub":
        yield "other type", [f"shr.{'b' if sign == 'u' else 'u'}{bits} {result}, {a}, {k}"]
        yield "quotient", [f"div.u{bits} {result}, {a}, {hex(1 << k)}"]
    yield "bfe", [f"bfe.{'s' if sign == 's' else 'u'}{bits} {result}, {a}, {k}, {bits - k}"]


def of_product(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    if ".lo." in opcode and len(operands) == 3:
        yield "mad", [f"mad{opcode[3:]} {', '.join(operands)}, 0"]


def of_mad(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    other = {16: "%z5", 32: "%x5", 64: "%y5"}[bits]
    if ".lo." in opcode:
        yield (
            "product and sum",
            [
                f"mul{opcode[3:]} {other}, {operands[1]}, {operands[2]}",
                f"add.s{bits} {operands[0]}, {other}, {operands[3]}",
            ],
        )


def of_comparison(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    _, how, type_ = opcode.split(".")
    result, a, b = operands
    unsigned = {"lt": "lo", "le": "ls", "gt": "hi", "ge": "hs"}
    mirrored = f"setp.{_MIRRORED.get(how, how)}.{type_}"
    if _INTEGER.fullmatch(a):
        yield "mirrored", [f"{mirrored} {result}, {b}, {a}"]
    else:
        yield "mirrored", [f"mov.b32 %x6, {b}", f"{mirrored} {result}, %x6, {a}"]
    if type_[0] == "u":
        yield "other name", [f"setp.{unsigned[how]}.{type_} {result}, {a}, {b}"]
    opposite = f"setp.{_OPPOSITE[how]}.{type_}"
    yield "opposite", [f"{opposite} %q1, {a}, {b}", f"not.pred {result}, %q1"]
    yield "two results", [f"{opcode} {result}|%q1, {a}, {b}"]
    yield "second result", [f"{opposite} %q1|{result}, {a}, {b}"]
    yield "set", [f"set.{how}.u32.{type_} %x5, {a}, {b}", f"setp.ne.u32 {result}, %x5, 0"]
    number, at = (b, 1) if _INTEGER.fullmatch(b) else (a, 0)
    step = {("lt", 1): ("le", -1), ("ge", 1): ("gt", -1), ("le", 1): ("lt", 1), ("gt", 1): ("ge", 1)}.get((how, at))
    if step and _INTEGER.fullmatch(number) and int(number, 0):
        yield "next number", [f"setp.{step[0]}.{type_} {result}, {a}, {hex(int(number, 0) + step[1])}"]


def of_selp(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, a, b, predicate = operands
    yield "not", [f"not.pred %q1, {predicate}", f"selp.b{bits} {result}, {b}, {a}, %q1"]
    yield "mov", [f"mov.b{bits} {result}, {b}", f"@{predicate} mov.b{bits} {result}, {a}"]


def of_cnot(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, a = operands
    yield "eq", [f"setp.eq.s32 %q1, {a}, 0", f"selp.b32 {result}, 1, 0, %q1"]
    yield "ne", [f"setp.ne.u32 %q1, {a}, 0", f"selp.b32 {result}, 0, 1, %q1"]
    yield "0 first", ["mov.b32 %x5, 0", f"setp.eq.u32 %q1, %x5, {a}", f"selp.u32 {result}, 1, 0, %q1"]
    yield "mov", [f"mov.b32 {result}, 0", f"setp.eq.u32 %q1, {a}, 0", f"@%q1 mov.b32 {result}, 1"]
    yield "below 1", [f"setp.lt.u32 %q1, {a}, 1", f"selp.b32 {result}, 1, 0, %q1"]


def of_cvt(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    result, source = operands[0], operands[-1]
    if opcode == "cvt.s32.s16":
        yield "product with 1", [f"mul.wide.s16 {result}, {source}, 1"]
        yield "of 64 bits", [f"cvt.s64.s16 %y5, {source}", f"cvt.u32.u64 {result}, %y5"]
        yield "bfe", [f"cvt.u32.u16 %x5, {source}", f"bfe.s32 {result}, %x5, 0, 16"]
        yield "shifts", [f"cvt.u32.u16 %x5, {source}", "shl.b32 %x5, %x5, 16", f"shr.s32 {result}, %x5, 16"]
        yield (
            "compared",
            [
                f"setp.lt.s16 %q1, {source}, 0",
                f"cvt.u32.u16 {result}, {source}",
                f"@%q1 or.b32 {result}, {result}, 0xffff0000",
            ],
        )
    elif "x2.f32" in opcode:
        text = ", ".join(operands[1:])
        again = ["mov.f32 %f7, " + operands[1], f"{opcode} %z5, %f7, {operands[2]}", f"mov.b16 {result}, %z5"]
        yield "of copies", again
        yield "in between", [f"{opcode} %z5, {text}", f"mov.b16 {result}, %z5"]


def of_mov(opcode: str, operands: list[str], bits: int) -> Iterator[tuple[str, list[str]]]:
    if bits == 32 and operands[1].startswith("{"):
        first, second = operands[1].strip("{}").replace(" ", "").split(",")
        wide = [f"cvt.u32.u16 %x5, {first}", f"cvt.u32.u16 %x6, {second}"]
        yield "halves copied", [f"mov.b16 %z5, {second}", f"mov.b32 {operands[0]}, {{{first}, %z5}}"]
        yield "shift and or", [*wide, "shl.b32 %x6, %x6, 16", f"or.b32 {operands[0]}, %x5, %x6"]
        yield "shift and add", [*wide, "shl.b32 %x6, %x6, 16", f"add.s32 {operands[0]}, %x6, %x5"]
        yield "bfi", [*wide, f"bfi.b32 {operands[0]}, %x6, %x5, 16, 16"]
        yield "prmt", [*wide, f"prmt.b32 {operands[0]}, %x5, %x6, 0x5410"]
        yield "mad", [*wide, f"mad.lo.u32 {operands[0]}, %x6, 65536, %x5"]
    elif operands[0].startswith("%r") and _INTEGER.fullmatch(operands[1]):
        yield "in two steps", [f"mov.b32 %x5, {operands[1]}", f"mov.b32 {operands[0]}, %x5"]


def descriptors(statement: str) -> Iterator[tuple[str, list[str]]]:
    """The descriptor %d0 by another register."""
    rest = re.sub(r"%d0\b", "%y5", statement)
    if rest != statement:
        yield "descriptor copied", ["mov.b64 %y5, %d0", rest]
        yield "with 0 added", ["add.s64 %y5, %d0, 0", rest]
        yield "made again", ["cvt.u64.u32 %y5, %r6", rest]
        yield "with no bit set", ["or.b64 %y5, 0, %d0", rest]
        yield "from the other one", ["add.s64 %y5, %d1, -8", rest]


_MAKERS = {
    "neg": of_neg,
    "sub": of_sub,
    **dict.fromkeys(("max", "min"), of_extreme),
    **dict.fromkeys(("and", "or", "xor"), of_logic),
    "shl": of_left,
    "shr": of_right,
    "mul": of_product,
    "mad": of_mad,
    "setp": of_comparison,
    "selp": of_selp,
    "cnot": of_cnot,
    "cvt": of_cvt,
    "mov": of_mov,
}


def judged(bug: Any, tools: list[Any]) -> list[dict[str, Any]]:
    """Each form of a bug: what each ptxas makes of it, and whether the pattern is found. tools: one that has the bug,
    and one that has not, if there is one."""
    from tritonhook.ptx.miscompiles import places
    from tritonhook.ptx.module import Ptx

    written = {f"k{number}": form for number, form in enumerate(forms(EXAMPLES[bug.name].lines))}
    codes = [assembled(tool, TARGET, {name: lines for name, (_, lines) in written.items()}) for tool in tools]
    rows = []
    for name, (what, lines) in written.items():
        said = [verdict(bug, 0, made.get(name)) for made in codes]
        found = {place.bug.name for place in places(Ptx(ptx_of(lines, TARGET, "8.4")))}
        rows.append(
            {"bug": bug.name, "form": what, **{tool.version: one for tool, one in zip(tools, said, strict=True)}}
            | {"is_wrong": said == ["wrong", "right"][: len(tools)], "found": bug.name in found, "lines": lines}
        )
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--add", action="store_true", help="download the versions of ptxas")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook.ptx.miscompiles import MISCOMPILATIONS
    from tritonhook.ptx.miscompiles.record import PtxasVerdict
    from tritonhook.ptxas.install import add_ptxas
    from tritonhook.ptxas.tool import find_ptxas

    if arguments.add:
        for version in VERSIONS:
            add_ptxas(version)
    rows: list[dict[str, Any]] = []
    for bug in MISCOMPILATIONS:
        by_verdict = {bug.verdict(version, TARGET): version for version in VERSIONS}
        both = (by_verdict.get(verdict) for verdict in (PtxasVerdict.WRONG, PtxasVerdict.RIGHT))
        rows += judged(bug, [find_ptxas(version) for version in both if version])
        print(bug.name, summary([row for row in rows if row["bug"] == bug.name]), flush=True)
    return {
        "format": 1,
        "what": "equivalent forms of known miscompilations, for sm_90a at -O3",
        "evidence": "assembled",
        "environment": environment("tritonhook"),
        "summary": summary(rows),
        "by_bug": {bug.name: summary([row for row in rows if row["bug"] == bug.name]) for bug in MISCOMPILATIONS},
        "missed": [row for row in rows if row["is_wrong"] and not row["found"]],
        "samples": [{name: value for name, value in row.items() if name != "lines"} for row in rows],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    wrong = [row for row in rows if row["is_wrong"]]
    counts = Counter(str(value).partition(":")[0] for row in rows for name, value in row.items() if name in VERSIONS)
    return {
        "forms": len(rows),
        "wrong": len(wrong),
        "found": sum(row["found"] for row in wrong),
        "found_share": round(sum(row["found"] for row in wrong) / len(wrong), 3),
        "right_but_found": sum(row["found"] and not row["is_wrong"] for row in rows),
        "not_understood": counts["not understood"],
        "refused": counts["refused"],
    }
