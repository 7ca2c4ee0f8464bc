"""What each line of the source became."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tritonhook.report.results.capture import CodeFields, Row, source_summary


def row(opcode: str, line: int | None) -> Row:
    return Row("", opcode, "R1,R2", 0, None if line is None else (0, line), None)


def test_each_line_has_its_instructions_live_registers_and_spills(tmp_path: Path) -> None:
    source = tmp_path / "k.py"
    source.write_text("def k():\n    a = 1\n\n    b = 2\n")
    rows = (row("IADD3", 2), row("STL.64", 2), row("LDL", 4), row("EXIT", None))
    code = CodeFields("k", (), (str(source),), None, rows)
    found = source_summary(code)
    assert found.tables[0].rows == (("2", "2", "8", "", "    a = 1"), ("4", "1", "", "4", "    b = 2"))
    assert found.verdict == "3 of 4 instructions have a line"
    assert any("live registers are not known" in note for note in found.notes)
    counted = source_summary(replace(code, live=(3, 9, 7, 11)))
    assert counted.tables[0].columns == ("line", "instrs", "live", "stored", "loaded", "source")
    assert [line[:3] for line in counted.tables[0].rows] == [("2", "2", "9"), ("4", "1", "7")]
    assert not any("live registers" in note for note in counted.notes)
