"""Tokens of any text: what is found, and that the work grows with the text and no faster."""

from __future__ import annotations

import pytest
from ptx_modules import HEADER, kernel

from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx, statements
from tritonhook.ptx.tokens import scan, symbol_uses


def test_code_has_no_comments_strings_and_keyword_directives() -> None:
    text = '.version 8.7 // a\n.target sm_90a, debug\n.file 1 "b.c", 3, 4\n.loc 1 2 3\nmov.u32 %r1, k; /* c\n */'
    tokens = scan(text)
    assert len(tokens.code) == len(text)
    assert tokens.code.split() == ["mov.u32", "%r1,", "k;"]
    assert (tokens.version, tokens.target, tokens.options) == (("8.7", 9), ("sm_90a", 26), ("debug",))


def test_the_first_header_counts() -> None:
    tokens = scan(".version 8.7\n.target sm_90a\n.version 8.8\n.target sm_80\n")
    assert (tokens.version, tokens.target) == (("8.7", 9), ("sm_90a", 21))


@pytest.mark.parametrize(
    "marked",
    [
        "{ ret; ret a; } ret; A: ret; A : ret; ; ret",
        "; @p ret; @!p ret; @ ! %p1 ret; @ %p1 \t ret; @!%p$_1 ret;",
        "; mov `ret`, [`ret`+4]; p `ret`; !p `ret`; call.uni `ret`; @p call `ret`; x, p `ret`; {`ret`, `ret`};",
        "; `ret`: ret; @p `ret`, a; `ret`+1;",
        ".entry `ret`.maxntid; .func `ret`.noreturn; .func (.reg a) `ret`.align; .entry p ret.u8; q ret.b8; p::ret;",
        "entry ret.u8; .entry  `ret` .u8 .funcs ret.u8;",
        "p ret.u8",
    ],
)
def test_opcodes_behind_labels_and_guards_are_no_symbols(marked: str) -> None:
    """The symbols are those in backticks."""
    code, found = "", []
    for number, part in enumerate(marked.split("`")):
        if number % 2:
            found.append(len(code))
        code += part
    assert [use.start for use in symbol_uses(code, {"ret"})] == found


N = 100_000
# Each text takes minutes where the work grows with the square of its length.
TEXTS: dict[str, str] = {
    "a long identifier": "a" * N,
    "a long list of parameters": ".entry k(.param .u64 " + "a" * N + " b",
    "one line": kernel("k").replace("\n", " ") * (N // 80),
    **{repr(word): word * (N // len(word)) for word in (".entry ", ".version ", ".target ", ".func(", ".entry a(")},
    **{
        repr(word): word * (N // len(word)) for word in (".func .attribute(()", ".loc 1 1 ", ".section a {}", "{}", "}")
    },
    **{repr(word): word * (N // len(word)) for word in ("/*", "/* * ", "//\n", '""', '"', "@ ! ", "::", "k ", "A: ")},
    "vector operands": "x " + "{a}," * (N // 4),
    "brackets": ".entry k() { mov " + "[" * N + "; }",
    "sums": ".entry k() { mov a, " + "a+" * N + "; }",
    "blanks": (".version" + " " * 1000) * (N // 1000),
    "digits": ".version " + "9" * N,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_is_read_in_one_pass(text: str) -> None:
    for before, after in (("", HEADER), (HEADER + kernel("k"), "")):
        try:
            ptx = Ptx(before + text + after)
        except PtxError:  # a comment or a string that hides the header
            continue
        assert ptx.target == "sm_90a"
        assert sum(1 for _ in statements(ptx)) >= 0
        if "k" in ptx.entries:
            assert "new" in ptx.rename_entries({"k": "new"}).entries


@pytest.mark.parametrize(
    "code, names",
    [
        ("a a.b .a %a a% _a a1 1a ab; a: {a,b}\n[a+4] @a ba b.a.b $a\ta", {"a", "b", "ab"}),
        ("ba, a\u00e9, ab, a, bba, bab, (ba)", {"a", "ba", "bab"}),  # one within another
        ("[a$b], a$, [$b], a$b$, .a$b, %a$b, ab", {"a$b", "a$", "$b"}),
        ("xxab, axab, [xab+ab], xabx, .xab", {"ab", "xab", "xxab"}),
    ],
)
def test_few_names_and_many_are_found_alike(code: str, names: set[str]) -> None:
    many = names | {f"other{number}" for number in range(100)}
    found = [(span.text, span.start) for span in symbol_uses(code, names)]
    assert found == [(span.text, span.start) for span in symbol_uses(code, many)]
    assert names == {text for text, _ in found} and not list(symbol_uses(code, ()))
