"""PTX in odd shapes: everything that reads or rewrites it gives a value, or a PtxError. A rename and its inverse give
the same text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import EXP, TARGET
from damage import damaged_bytes, damaged_text, name_that_doubles, no_hang, outcome
from hypothesis import example, given, settings
from hypothesis import strategies as st
from repository import GOLDEN

from tritonhook.errors import PtxError
from tritonhook.ptx.cta_loads import ClusterToCta, sites
from tritonhook.ptx.miscompiles import warnings_of
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import ThroughputPragma, trigger_of
from tritonhook.rename import Rename

from .conftest import ABUSE

SEEDS = {
    "Triton": (GOLDEN / "triton.sm_90.ptx").read_text(),
    "loop": EXP.ptx("work", **TARGET).text,
    "functions": """.version 8.0
.target sm_90, debug
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 $str[6] = {104, 101, 108, 108, 111, 0};
.func (.reg .u32 %out) helper (.reg .u32 %in) { add.u32 %out, %in, 1; ret; } // .entry none()
/* .visible .entry comment() {} */
.visible .entry foo(.param .u64 foo_param_0) .maxntid 64, 1, 1
{ .reg .u64 %rd<4>; .reg .u32 %r<3>; ld.param.u64 %rd1, [foo_param_0]; { .reg .u32 %r1; call.uni (%r1), helper, (%r1); }
L_foo: cvta.global.u64 %rd2, $str; @%p1 bra L_foo; ret; }
.entry foo_bar(.param .u64 foo_bar_param_0) { .pragma "nounroll"; ret; }
""",
}
WORDS = (
    *(".entry", ".func", ".visible", ".version", "8.0", "9" * 400, ".target", "sm_90", "{", "}", "(", ")", ";", ","),
    *("/*", "*/", "//", '"', "\\", "\n", "\r", "\r\n", "\0", "\x0c", "\u2028", "foo", "%rd1", "@%p1", "bra", "[", "]"),
    *(".pragma", '"mma_throughput"', ".section", ".debug_str", ".extern", ".weak", ".alias", "0x", ".loc 1 2 3", "<"),
    *(".shared::cluster", "cp.async.bulk.tensor", ".maxntid", "\U0001f600", "a" * 2000, "\udc80", ".file", "L_foo:"),
)


def use_all(text: str) -> None:
    """Read and rewrite a module in every way there is."""
    ways: tuple[Callable[[Ptx], object], ...] = (
        sites,
        ClusterToCta().apply,
        ThroughputPragma().apply,
        lambda ptx: warnings_of(ptx.text, "12.8.93"),
        lambda ptx: [trigger_of(entry, ptx.text, "13.5.37") for entry in ptx.entries],
        lambda ptx: ptx.with_directives("9.0", "sm_120a"),
        lambda ptx: (ptx.target, ptx.version, ptx.only_entry(None)),
        Rename(strip="foo").apply,
    )
    with no_hang():
        try:
            ptx = Ptx(text)
        except PtxError:
            return
        for way in ways:
            with suppress(PtxError):
                way(ptx)
        there_and_back(ptx)


def is_balanced(text: str) -> bool:
    """Whether brackets are in pairs, one kind within another, and no statement ends within a list of parameters; else
    no assembler takes the text."""
    expected: list[str] = []
    for character in text:
        if character in "([{":
            expected.append(")]}"["([{".index(character)])
            continue
        wrong = expected[-1:] == [")"] if character == ";" else expected[-1:] != [character]
        if character in ";)]}" and wrong:
            return False
        if character in ")]}":
            expected.pop()
    return not expected


def there_and_back(ptx: Ptx) -> None:
    if not is_balanced(ptx.text):
        return
    try:
        entries = ptx.entries
        renamed = ptx.rename_entries({entry: f"zz_{index}_{entry}" for index, entry in enumerate(entries)})
    except PtxError:
        return
    assert renamed.entries == tuple(f"zz_{index}_{entry}" for index, entry in enumerate(entries))
    back = {f"zz_{index}_{entry}": entry for index, entry in enumerate(entries)}
    assert renamed.rename_entries(back).text == ptx.text


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_ptx_is_read_or_refused(name: str) -> None:
    settings(ABUSE, max_examples=2 * ABUSE.max_examples)(given(damaged_text(SEEDS[name], WORDS))(use_all))()


@settings(ABUSE, max_examples=5 * ABUSE.max_examples)
@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join) | st.lists(st.sampled_from(WORDS)).map("".join))
@example(SEEDS["functions"].replace("\n", "\r"))
@example(SEEDS["functions"].replace("\n", " "))
@example(".version 8.0 .target sm_90 .address_size 64 .visible .entry k() { ret; }")
@example(".version 8.0\n.target sm_90\n.entry k(){.reg .u32 k;mov.u32 k,1;ret;}")
@example(".version x\n.target\n.entry")
@example(".version " + "9" * 5000 + "\n.target sm_90\n.entry k(){}")
def test_any_words_of_ptx_are_read_or_refused(text: str) -> None:
    use_all(text)


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_bytes_are_read_or_refused(name: str) -> None:
    @settings(ABUSE)
    @given(damaged_bytes(SEEDS[name].encode()))
    def holds(data: bytes) -> None:
        try:
            text = Ptx.from_bytes(data, "damaged").text
        except PtxError:
            return
        use_all(text)

    holds()


_HEAD, _KERNEL = ".version 8.0\n.target sm_90\n", ".visible .entry k(){ret;}\n"
LONG = {
    "one identifier": _HEAD + ".visible .entry " + "k" * 1_000_000 + "(){ret;}",
    "one line": (_HEAD + ".visible .entry k(){").replace("\n", " ") + " add.u32 %r1, %r1, 1;" * 100_000 + "ret;}",
    **{
        repr(word): _HEAD + _KERNEL + word * (600_000 // len(word))
        for word in (
            ".entry ",
            ".version ",
            ".visible .entry k",
            "{",
            "}",
            "(",
            "/*",
            "*/",
            "//",
            '"',
            " ",
            ".",
            "%",
            "@",
        )
    },
    "one register": _HEAD + ".visible .entry k(){ .reg .b32 " + "r" * 300_000 + "; ret; }",
    "many entries": _HEAD + "".join(f".entry k{index}(){{ret;}}" for index in range(3_000)),
    "no version": " " * 3_000_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_text_ends(name: str) -> None:
    use_all(LONG[name])


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("levels", [40, 300])
def test_a_name_that_stands_for_gigabytes_is_shown_mangled(levels: int, tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    name = name_that_doubles(levels)
    path.write_text(f".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry {name}() {{ ret; }}\n")
    code, shown = outcome("show", str(path))
    assert code == 0 and name[:9] in shown and "1 name shown mangled: too long" in " ".join(shown.split())
