"""What each line of the source became."""

from __future__ import annotations

import json

from msgspec import to_builtins
from msgspec.structs import replace

from tritonhook._util.schema import as_schema
from tritonhook.report.results.capture import CodeFields, Row, source_summary


def row(opcode: str, line: int | None) -> Row:
    return Row("", opcode, "R1,R2", 0, None if line is None else (0, line), None)


def test_each_line_has_its_instructions_live_registers_and_spills() -> None:
    rows = (row("IADD3", 2), row("STL.64", 2), row("LDL", 4), row("EXIT", None))
    texts = {1: "def k():", 2: "    a = 1", 3: "", 4: "    b = 2"}
    code = CodeFields("k", (), ("/u/k.py",), None, rows, sources=(texts,))
    found = source_summary(code)
    assert found.tables[0].rows == (("2", "2", "8", "", "    a = 1"), ("4", "1", "", "4", "    b = 2"))
    assert found.verdict == "3 of 4 instructions have a source line"
    assert any("live registers are not known" in note for note in found.notes)
    counted = source_summary(replace(code, live=(3, 9, 7, 11)))
    assert counted.tables[0].columns == ("line", "instrs", "live", "stored", "loaded", "source")
    assert [line[:3] for line in counted.tables[0].rows] == [("2", "2", "9"), ("4", "1", "7")]
    assert not any("live registers" in note for note in counted.notes)


def test_a_file_whose_text_is_not_known_is_named() -> None:
    found = source_summary(CodeFields("k", (), ("/u/k.py",), None, (row("IADD3", 2),), sources=(None,)))
    assert found.tables[0].rows == (("2", "1", "", "", ""),)
    assert any("source not shown: k.py" in note for note in found.notes)


def test_source_lines_are_read_again_from_json() -> None:
    code = CodeFields("k", (), ("/u/k.py",), None, (row("EXIT", 2),), sources=({2: "    a = 1"},))
    saved = json.loads(json.dumps(to_builtins(code)))  # its keys are texts
    assert as_schema(saved, CodeFields) == code
