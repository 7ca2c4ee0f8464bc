"""`diff` of kernels with equal code: what else the driver loads differs. And verdicts of other numbers of threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tritonhook.cli import main

MODULE = """
.version 8.0
.target sm_90a
.address_size 64
.global .align 4 .u32 a = 1;
.global .align 4 .u32 b = 2;
.global .align 8 .u64 pointers[2] = {POINTERS};
.shared .align ALIGN .b8 memory[2048];
.visible .entry work(.param .u64 out, .param WIDTH unused) BOUNDS {
  .reg .u64 %d<4>; .reg .u32 %r<4>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, memory; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;
  st.shared.u32 [%r2], %r1; bar.sync 0; ld.shared.u32 %r1, [%r2+4];
  ld.global.u64 %d2, [pointers]; ld.global.u32 %r3, [%d2]; add.u32 %r1, %r1, %r3;
  st.global.u32 [%d1], %r1;
  ret;
}
"""
SECOND = ".visible .entry more() { ret; }\n"


def module(path: str, second: str = "", **changed: str) -> str:
    values = {"POINTERS": "a, b", "ALIGN": "16", "WIDTH": ".u32", "BOUNDS": ".maxntid 128", **changed}
    text = MODULE
    for name, value in values.items():
        text = text.replace(name, value)
    Path(path).write_text(text + second)
    return path


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"POINTERS": "b, a"}, "relocations"),
        ({"WIDTH": ".u64"}, "parameters"),
        ({"ALIGN": "1024"}, "data"),
        ({"BOUNDS": ".maxntid 64"}, "launch bounds"),
    ],
)
@pytest.mark.parametrize("second", ["", SECOND])
def test_what_the_driver_loads_besides_the_code_counts(
    changed: dict[str, str], part: str, second: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = module("a.ptx", second), module("b.ptx", second, **changed)
    assert main(["diff", a, b]) == 1
    shown = capsys.readouterr().out
    assert main(["diff", a, b, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    if second:
        assert not document["same_code"]
        assert {"work"} <= {kernel["a"] for kernel in document["kernels"] if kernel["verdict"] != "same code"}
    else:
        assert f"Same code, other {part}" in shown
        assert document["verdict"] == "same code, loaded otherwise" and part in document["loaded_changed"]
    assert main(["diff", a, a]) == 0


def test_registers_of_other_numbers_of_threads_are_not_judged(tmp_path: Path, monkeypatch, capsys) -> None:
    """More registers for fewer threads are neither worse nor better; for as many they are worse."""
    monkeypatch.chdir(tmp_path)
    few = module("few.ptx", BOUNDS=".reqntid 256 .maxnreg 16")
    sides = {threads: module(f"{threads}.ptx", BOUNDS=f".reqntid {threads}") for threads in (128, 256)}
    for path in (few, *sides.values()):
        text = Path(path).read_text()
        wide = "".join(f"ld.global.u32 %w{n}, [%d1+{4 * n}];\n" for n in range(60))
        wide += "".join(f"st.global.u32 [%d1+{4 * n}], %w{59 - n};\n" for n in range(60))
        text = text.replace("  ret;\n}", f"  .reg .u32 %w<60>;\n  bar.sync 0;\n{wide}  ret;\n}}")
        Path(path).write_text(text)
    judged = {}
    for threads, path in sides.items():
        assert main(["diff", few, path, "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        (registers,) = (row for row in document["resources"] if row["field"] == "registers")
        assert registers["b"] > registers["a"]
        assert main(["diff", few, path]) == 1
        judged[threads] = [line for line in capsys.readouterr().out.splitlines() if "registers" in line]
    assert any("worse" in line for line in judged[256]) and not any("worse" in line for line in judged[128])
