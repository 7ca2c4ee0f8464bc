"""A kernel of machine code is decoded once: which instructions there are, where threads go, what is not understood."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from tritonhook.cubin.sass import Instruction, Sass  # noqa: E402
from tritonhook.emulate.machine import Geometry, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.sass.decode import decode  # noqa: E402
from tritonhook.emulate.sass.kernel import SassKernel  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402


def decoded(*lines, stack=0x1230, targets=(), immediates=None):
    code = tuple(Instruction(16 * n, guard, opcode, operands, 0) for n, (guard, opcode, operands) in enumerate(lines))
    given = tuple(immediates or [0] * len(code))
    kernel = SassKernel(Sass("k", code, indirect_targets=targets), 90, given, stack, 0, {})
    machine = Machine(Geometry((1, 1, 1), (32, 1, 1), (0,)), Memory())
    return (*decode(kernel, machine, bytes(0x300)), machine)


def test_the_padding_behind_the_code_is_left_out():
    lines = [
        ("", "MOV", "R1,RZ"),
        ("", "NOP", ""),
        ("@!P1", "BRA", "0x0"),
        ("", "EXIT", ""),
        ("", "NOP", ""),
        ("", "NOP", ""),
    ]
    code, unknown, _ = decoded(*lines, targets=(0x10,))
    assert [one.text for one in code.instructions] == ["MOV R1,RZ", "NOP", "@!P1 BRA 0x0", "EXIT"] and unknown == ()
    assert [one.line for one in code.instructions] == [0, 16, 32, 48]
    assert [one.ends for one in code.instructions] == [False, False, True, True]
    assert code.targets == {0, 1} and code.entry == 0
    assert decoded(("", "NOP", ""))[0].instructions == []


@pytest.mark.parametrize(
    "line",
    [
        ("", "FROB", "R1"), ("", "HADD2", "R1,R2.H2_H2,R3"), ("", "HADD2", "R1,-R2.FOO,R3"), ("@Q1", "MOV", "R1,R2"),
        ("", "MOV", "R1,R2,R3"), ("", "MOV", "R300,R2"), ("", "MOV", "R1,c[0x0][0x400]"), ("", "IADD3", "R1,R2"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_listed_and_raised_when_it_is_reached(line):
    code, (error,), machine = decoded(("", "MOV", "R1,RZ"), line, ("", "EXIT", ""))
    assert isinstance(error, NotUnderstood) and len(code.instructions) == 3
    assert code.instructions[1].line == 16 and code.instructions[1].text == line[1]
    assert code.instructions[1].ends
    with pytest.raises(NotUnderstood) as caught:
        machine.run(code)
    assert caught.value is error and error.line == 16
