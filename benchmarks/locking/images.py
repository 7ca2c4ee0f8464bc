"""Changes to what is loaded besides the code, put into real kernels: relocations, parameters, sizes, attributes.

Real Triton kernels have few tables, textures or globals. `rigged` gives a kernel some, with a block of code that uses
them; each kind then changes one thing of the rigged kernel, as text. Both are assembled, so that each change is one
that ptxas makes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.locking.seeds import BY_PTX, assembled, reassembled, with_cubin
from tritonhook.capture.model import Capture, Stage

VERSIONS = ("12.8.93", "13.5.37")
# By what of the loaded image differs at least; "code" and "bounds" are facts of their own.
CODE, BOUNDS = "code", "bounds"
_DATA = """\
.visible .func (.reg .b32 %fr) hook_f(.reg .b32 %fa) { add.u32 %fr, %fa, 1; ret; }
.visible .func (.reg .b32 %fr) hook_g(.reg .b32 %fa) { add.u32 %fr, %fa, 2; ret; }
.global .align 8 .u64 hook_calls[2] = {hook_f, hook_g};
.global .align 4 .u32 hook_a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.global .align 4 .u32 hook_b[8] = {9, 10, 11, 12, 13, 14, 15, 16};
.global .align 8 .u64 hook_table[2] = {generic(hook_a), generic(hook_b)};
.const .align 8 .u64 hook_banked[2] = {generic(hook_a), generic(hook_b)};
.const .align 4 .u32 hook_values[4] = {9, 8, 7, 6};
.visible .global .align 4 .u32 hook_counter[8];
.extern .global .align 4 .u32 hook_elsewhere[8];
.global .texref hook_one;
.global .texref hook_other;
.extern .shared .align 16 .b8 hook_dynamic[];
"""
_PARAMETERS = """,
.param .u64 hook_p0, .param .u32 hook_p1, .param .align 4 .b8 hook_p2[12]"""
_CODE = """
{
.shared .align 16 .b8 hook_tile[64];
.reg .b64 %hd<8>;
.reg .b32 %hr<20>;
.reg .f32 %hf<8>;
mov.u32 %hr2, %ctaid.z;
mov.u64 %hd2, hook_a;
ld.volatile.global.u32 %hr3, [%hd2];
mov.u64 %hd3, hook_table;
ld.volatile.global.u64 %hd4, [%hd3];
ld.volatile.u32 %hr4, [%hd4];
ld.const.u64 %hd5, [hook_banked];
ld.volatile.u32 %hr5, [%hd5];
ld.const.u32 %hr6, [hook_values];
atom.global.add.u32 %hr7, [hook_counter], 1;
mov.u64 %hd6, hook_calls;
ld.volatile.global.u32 %hr12, [%hd6];
mov.u64 %hd7, hook_elsewhere;
ld.volatile.global.u32 %hr13, [%hd7];
mov.u32 %hr8, hook_dynamic;
st.volatile.shared.u32 [%hr8], %hr2;
mov.u32 %hr9, hook_tile;
st.volatile.shared.u32 [%hr9], %hr2;
tex.1d.v4.f32.s32 {%hf1, %hf2, %hf3, %hf4}, [hook_one, {%hr2}];
cvt.rzi.u32.f32 %hr10, %hf1;
add.u32 %hr11, %hr3, %hr4;
add.u32 %hr11, %hr11, %hr5;
add.u32 %hr11, %hr11, %hr6;
add.u32 %hr11, %hr11, %hr7;
add.u32 %hr11, %hr11, %hr10;
add.u32 %hr11, %hr11, %hr12;
add.u32 %hr11, %hr11, %hr13;
st.volatile.global.u32 [hook_counter+4], %hr11;
}
"""
_LAST = ".param .align 4 .b8 hook_p2[12]"
_ENTRY = re.compile(r"(?P<linking>\.visible )?\.entry (?P<name>[\w$]+)\s*\((?P<parameters>[^)]*)\)(?P<bounds>[^{]*)\{")
_HOPPER = re.compile(r"\.target sm_(9\d|1\d\d)")


class Kind(NamedTuple):
    """A change of the text, and the part of the loaded image that differs. only: what the PTX must have."""

    old: str
    new: str
    part: str
    only: re.Pattern[str] | None = None


def _swap(kind: str, first: str, second: str) -> tuple[str, str]:
    return f"{kind} = {{{first}, {second}}}", f"{kind} = {{{second}, {first}}}"


_A, _B = "generic(hook_a)", "generic(hook_b)"
_END = f"{_LAST}\n)"
KINDS: dict[str, Kind] = {
    "order of a table": Kind(*_swap("hook_table[2]", _A, _B), "relocations"),
    "a table's entry + 16": Kind(f"hook_table[2] = {{{_A}", f"hook_table[2] = {{{_A}+16", "relocations"),
    "one entry twice in a table": Kind(f"hook_table[2] = {{{_A}, {_B}", f"hook_table[2] = {{{_A}, {_A}", "relocations"),
    "order of a constant table": Kind(*_swap("hook_banked[2]", _A, _B), "relocations"),
    "a constant table's entry + 16": Kind(f"hook_banked[2] = {{{_A}", f"hook_banked[2] = {{{_A}+16", "relocations"),
    "order of a table of functions": Kind(*_swap("hook_calls[2]", "hook_f", "hook_g"), "data"),
    "another global": Kind("mov.u64 %hd2, hook_a;", "mov.u64 %hd2, hook_b;", CODE),
    "another place in a global": Kind("mov.u64 %hd2, hook_a;", "mov.u64 %hd2, hook_a+8;", CODE),
    "another texture": Kind("[hook_one, {", "[hook_other, {", "relocations"),
    "a table in place of a global": Kind("mov.u64 %hd2, hook_a;", "mov.u64 %hd2, hook_table;", CODE),
    "one parameter more, 32 bits": Kind(_END, f"{_LAST},\n.param .u32 hook_p3\n)", "parameters"),
    "one parameter more, 64 bits": Kind(_END, f"{_LAST},\n.param .u64 hook_p3\n)", "parameters"),
    "one parameter less": Kind(f", {_LAST}", "", "parameters"),
    "a wider parameter": Kind(".param .u32 hook_p1", ".param .u64 hook_p1", "parameters"),
    "a narrower parameter": Kind(".param .u32 hook_p1", ".param .u16 hook_p1", "parameters"),
    "a larger struct": Kind("hook_p2[12]", "hook_p2[24]", "parameters"),
    "alignment of a struct": Kind(".param .align 4 .b8 hook_p2", ".param .align 16 .b8 hook_p2", "parameters"),
    "two parameters exchanged": Kind(
        ".param .u64 hook_p0, .param .u32 hook_p1", ".param .u32 hook_p1, .param .u64 hook_p0", "parameters"
    ),
    "size of a global": Kind("hook_counter[8]", "hook_counter[16]", "data"),
    "alignment of a global": Kind(".visible .global .align 4", ".visible .global .align 128", "data"),
    "alignment of values": Kind(".global .align 4 .u32 hook_a", ".global .align 64 .u32 hook_a", "data"),
    "alignment of constants": Kind(".const .align 4", ".const .align 64", "data"),
    "size of constants": Kind("hook_values[4]", "hook_values[16]", "data"),
    "size of shared memory": Kind("hook_tile[64]", "hook_tile[128]", "data"),
    "alignment of shared memory": Kind(".shared .align 16 .b8 hook_tile", ".shared .align 256 .b8 hook_tile", "data"),
    "alignment of dynamic shared memory": Kind(
        ".extern .shared .align 16 .b8 hook_dynamic", ".extern .shared .align 1024 .b8 hook_dynamic", "data"
    ),
    "value of a constant": Kind("{9, 8, 7, 6}", "{9, 8, 7, 5}", "data"),
    "value of a global": Kind("{9, 10, 11,", "{9, 10, 13,", "data"),
    "name of a global": Kind("hook_counter", "hook_kounter", "data"),
    "managed memory": Kind(".visible .global", ".visible .global .attribute(.managed)", "data"),
    "a weak global": Kind(".visible .global", ".weak .global", "data"),
    "a global of the module": Kind(".visible .global", ".global", "data"),
    "name of a global elsewhere": Kind("hook_elsewhere", "hook_otherwhere", "data"),
    "a weak kernel": Kind(".visible .entry", ".weak .entry", "attributes"),
    "registers": Kind("{bounds}", "\n.maxnreg 248\n", "attributes"),
    "blocks of an SM": Kind("{bounds}", "\n.maxntid 128\n.minnctapersm 2\n", BOUNDS),
    "threads at most": Kind("{bounds}", "\n.maxntid 1024\n", BOUNDS),
    "blocks of a cluster": Kind("{bounds}", "\n.reqnctapercluster 2\n", BOUNDS, _HOPPER),
    "blocks of a cluster at most": Kind("{bounds}", "\n.maxclusterrank 4\n", BOUNDS, _HOPPER),
    "blocks are clusters": Kind(
        "{bounds}", "\n.blocksareclusters\n.reqntid 128\n.reqnctapercluster 2\n", "attributes", _HOPPER
    ),
}


def rigged(text: str) -> str | None:
    """PTX of one kernel with data, parameters and code that the kinds change; None where it has not one entry."""
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1 or not entries[0]["parameters"].strip():
        return None
    (entry,) = entries
    before = f"{text[: entry.start()]}{_DATA}{entry['linking'] or ''}.entry {entry['name']}("
    return f"{before}{entry['parameters'].rstrip()}{_PARAMETERS}\n){entry['bounds']}{{{_CODE}{text[entry.end() :]}"


def changed(text: str, kind: Kind) -> str | None:
    """Rigged PTX with one thing changed; None where it does not have it."""
    if kind.only is not None and not kind.only.search(text):
        return None
    if kind.old != "{bounds}":
        return text.replace(kind.old, kind.new) if kind.old in text else None
    entry = _ENTRY.search(text)
    assert entry is not None
    own = entry["bounds"]
    names = re.findall(r"\.\w+", kind.new)
    for name in [*names, *([".reqntid"] if ".maxntid" in names else [])]:
        own = re.sub(rf"\{name}\b[\d ,]*", "", own)
    made = f"{text[: entry.start('bounds')]}{kind.new}{own}{text[entry.end('bounds') :]}"
    return re.sub(r"\.version \S+", ".version 9.0", made, count=1) if ".blocksareclusters" in names else made


def rig(captures: Sequence[Capture], version: str) -> Iterator[Capture]:
    """The kernels that can be rigged, assembled."""
    for capture in captures:
        text, options = rigged(str(capture.text(Stage.PTX))), capture.assembler.options
        made = None if text is None or options is None else assembled(capture, text, version, options)
        if made is not None:
            yield made


class Seeded(NamedTuple):
    """A rigged kernel with one thing changed. blame: what `changed by` must begin with."""

    kind: str
    new: Capture
    blame: str


def seeded_image(old: Capture, turn: int) -> Seeded | None:
    """Change a rigged kernel in the way whose turn it is, or the next one that fits. Every second one keeps the PTX
    that it had, as if ptxas had made another image of the same input."""
    names = list(KINDS)
    for step in range(len(names)):
        name = names[(turn + step) % len(names)]
        text = changed(str(old.text(Stage.PTX)), KINDS[name])
        new = None if text is None else reassembled(old, text)
        if new is not None and new.cubin != old.cubin:
            if turn // len(names) % 2 == 0:
                return Seeded(name, new, BY_PTX)
            return Seeded(name, with_cubin(old, new.cubin), "ptxas, which made ")
    return None
