"""Code in a terminal: lines that differ."""

from __future__ import annotations

import io

import pytest

from tritonhook.report.render.code import render_code_diff, render_text_diff
from tritonhook.report.results.capture import CodeFields, Row


def code(*rows: Row, files: tuple[str, ...] = ("k.py",)) -> CodeFields:
    return CodeFields("k", (), files, None, rows)


def row(opcode: str, operands: str = "R1,R2", line: int | None = 1) -> Row:
    return Row("", opcode, operands, 0, None if line is None else (0, line), None)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_renamed_register_is_no_difference_and_an_opcode_is() -> None:
    same = [row("IADD3"), row("MOV")]
    a = code(*same, row("MUFU.EX2", line=2))
    b = code(row("IADD3", "R7,R8"), same[1], row("MUFU.SIN", line=2))
    said = lines(render_code_diff(a, b, io.StringIO()))
    assert said[-3:] == ["@ k.py:2", "- 0020  MUFU.EX2 R1, R2", "+ 0020  MUFU.SIN R1, R2"]
    assert not any(line.startswith(("-", "+", "<", ">")) for line in said[:-3])
    assert lines(render_code_diff(a, a, io.StringIO())) == ["no line differs"]


def test_what_moved_is_no_addition() -> None:
    parts = [row(f"OP{n}") for n in range(6)]
    said = lines(render_code_diff(code(*parts), code(*parts[1:], parts[0]), io.StringIO()))
    assert [line[0] for line in said if line[0] in "-+<>"] == ["<", ">"]


def test_positions_are_no_difference_of_a_text_and_are_shown_beside_it() -> None:
    a = '%0 = math.exp %x loc(#loc1)\n%1 = same loc(#loc1)\n#loc1 = loc("/src/k.py":5:3)\n'
    b = a.replace("exp", "sin").replace(":5:3", ":6:3")
    said = lines(render_text_diff(a, b, io.StringIO()))
    assert said == ["@ k.py:5", "- %0 = math.exp %x", "@ k.py:6", "+ %0 = math.sin %x", "  %1 = same"]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (  # a call of a library is charged to its caller; names are looked through
            'f(%x: f32 loc("x"(#loc))) {\n%0 = math.exp %x loc(#loc4)\n#loc = loc("/src/k.py":1:1)\n'
            '#loc1 = loc("/lib/triton/language/standard.py":9:3)\n#loc2 = loc("/src/k.py":2:3)\n'
            '#loc3 = loc("y"(#loc2))\n#loc4 = loc(callsite(#loc1 at #loc3))',
            ("exp", "sin"),
            ["  f(%x: f32) {", "@ k.py:2  y = exp(x)", "- %0 = math.exp %x", "+ %0 = math.sin %x"],
        ),
        (
            '.file 1 "/src/k.py"\n.loc 1 2 44\nmul.f32 a;\n.loc 1 3 1\nret;',
            ("mul", "add"),
            ['  .file 1 "/src/k.py"', "@ k.py:2  y = exp(x)", "- mul.f32 a;", "+ add.f32 a;", "@ k.py:3", "  ret;"],
        ),
    ],
    ids=["ttgir", "ptx"],
)
def test_lines_of_a_stage_have_their_source_with_its_text(a: str, b: tuple[str, str], said: list[str]) -> None:
    sources = {"/src/k.py": "def f(x):\n    y = exp(x)\n"}
    assert lines(render_text_diff(a, a.replace(*b).replace("2 44", "2 45"), io.StringIO(), (sources, sources))) == said
