"""Recheck: kept PTX under the same ptxas, under another one, and under one that draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.snapshot.conftest import Compile
from tritonhook.capture.model import Stage
from tritonhook.cli._inputs import kernels_at
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.pool import sweep
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.snapshot.assembled import Task, disassembler, recheck
from tritonhook.snapshot.facts import Disassemble


@pytest.fixture
def tasks(compiled: Compile, tools: Toolchain) -> list[Task]:
    """The addition and the matrix product as they were compiled."""
    return [
        Task(facts, str(capture.text(Stage.PTX)), tools.ptxas, facts.options or ())
        for capture, facts in kernels_at(str(compiled("captures")))[0][0]
    ]


def test_a_ptxas_gets_ptx_of_a_newer_version_with_the_newest_that_it_reads(tasks: list[Task]) -> None:
    newer = [replace(task, ptx=Ptx(task.ptx).with_directives("9.9").text) for task in tasks]
    assert all("\n.version 9.9" in task.ptx for task in newer)
    assert recheck(newer, sweep, disassembler()) == [task.locked for task in tasks]


def test_instructions_are_counted_where_the_code_is_a_new_one_only(tasks: list[Task]) -> None:
    counted: list[str] = []
    real: Disassemble = disassembler()
    options = [tasks[0].options, ("-O1", "-v")]
    changed = [replace(task, options=given) for task, given in zip(tasks, options, strict=True)]

    def counting(kernels: Sequence[tuple[Cubin, str]]) -> Sequence[Sass]:
        counted.extend(kernel for _, kernel in kernels)
        return real(kernels)

    found = recheck(changed, sweep, counting)
    assert counted == ["gemm_kernel"]
    assert found[0] == tasks[0].locked
    assert found[1].codes != tasks[1].locked.codes
    assert found[1].options == ("-O1", "-v")
    assert found[1].figures["instructions"] != tasks[1].locked.figures["instructions"]
    assert found[1].figures["shared"] == tasks[1].locked.figures["shared"]
