"""A kernel for the tests of the command line, and how to run a command that must fail."""

from __future__ import annotations

import pytest

from tritonhook.cli import main
from tritonhook.lab.published_table import Condition

_ARITHMETIC = "".join(
    f" ex2.approx.ftz.f32 %f{i}, %f{i}; fma.rn.f32 %f{i}, %f{i}, %f{i + 1}, %f{i + 2};\n" for i in range(8)
)
# A loop that ptxas schedules otherwise under the cutlass name, on every target.
EXP = Condition(
    "exp",
    "exp loop",
    " ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%rd1]; ld.global.v4.f32 {%f4,%f5,%f6,%f7}, [%rd1+16];\n"
    " ld.global.v2.f32 {%f8,%f9}, [%rd1+32];\n"
    f"L:\n{_ARITHMETIC} add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r1; @%p2 bra L;\n"
    + "".join(f" st.global.f32 [%rd1+{4 * i}], %f{i};\n" for i in range(8)),
)
TARGET = {"target": "sm_90a", "version": "8.0"}  # every ptxas from 12.0 on reads this


def failing(capsys: pytest.CaptureFixture, *words: str) -> str:
    """Run a command that must fail; its one error message."""
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.strip()
