"""`tritonhook emulate`: kernels run on the CPU, and faults of the kernels themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from command_line import failing

from tritonhook.cli import main

PTX = """.version 8.0
.target sm_90a
.address_size 64
.file 1 "/home/add.py"
.shared .align 16 .b8 room[256];
.visible .entry work(.param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
.loc 1 12 3
ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, room; add.u32 %r3, %r3, %r2;
st.shared.b32 [%r3], %r1;
bar.sync 0;
xor.b32 %r4, %r3, 128; ld.shared.b32 %r5, [%r4];
cvt.u64.u32 %rd2, %r2; add.u64 %rd1, %rd1, %rd2;
st.global.b32 [%rd1], %r5;
ret;
}
"""
LAUNCH = {
    "format": 1,
    "kernel": "work",
    "grid": [1, 1, 1],
    "block": [64, 1, 1],
    "parameters": [{"name": "out", "dtype": "int32", "shape": [64]}],
}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("kernel.ptx").write_text(PTX)
    Path("launch.json").write_text(json.dumps(LAUNCH))
    return ["emulate", "kernel.ptx", "--args", "launch.json"]


def test_one_launch_runs_and_its_buffers_are_kept(kernel, capsys) -> None:
    assert main([*kernel, "--contents", "out", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["kernels"]
    assert one["reason"] == "" and one["faults"] == [] and len(one["stored"]) == 1 and one["steps"] > 0
    data = Path("out/work-0.bin").read_bytes()
    assert [int.from_bytes(data[at : at + 4], "little") for at in range(0, 256, 4)] == [*range(32, 64), *range(32)]


def test_a_fault_is_told_with_its_lines(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", ""))
    assert main(kernel) == 1
    said = capsys.readouterr().out
    assert "1 of 1 kernel finished: 1 fault" in said and "race in work" in said
    assert "write by warp 1 of CTA 0" in said and "read by warp 0 of CTA 0" in said
    assert "add.py:12" in said and "st.shared.b32 [%r3], %r1" in said


def test_what_is_not_understood_is_no_fault(kernel, capsys) -> None:
    Path("kernel.ptx").write_text(PTX.replace("bar.sync 0;", "mov.u32 %r6, %clock;"))
    assert main(kernel) == 2
    assert "NOT UNDERSTOOD: line 12" in capsys.readouterr().out


def test_options_are_checked(kernel, capsys) -> None:
    assert "--ctas and --limit must be positive" in failing(capsys, *kernel, "--ctas", "0")
    assert "no recorded launch" in failing(capsys, "emulate", "kernel.ptx")
