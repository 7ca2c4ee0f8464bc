"""Recheck: kept PTX under the same ptxas, under another one, and under one that draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest

from tests.snapshot.conftest import Compile
from tritonhook.capture.model import Stage
from tritonhook.cli._inputs import kernels_at
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import Sass
from tritonhook.lab.result_cache import Outcome, OutcomeKind
from tritonhook.lab.sweep import Job, Limits, sweep
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain
from tritonhook.snapshot.captured import Task, codes_of, disassembler, recheck
from tritonhook.snapshot.facts import Disassemble


@pytest.fixture
def tasks(compiled: Compile, tools: Toolchain) -> list[Task]:
    """The addition and the matrix product as they were compiled."""
    return [
        Task(facts, str(capture.text(Stage.PTX)), tools.ptxas, facts.options or ())
        for capture, facts in kernels_at(str(compiled("captures")))[0][0]
    ]


def test_the_same_ptxas_gives_the_same_facts(tasks: list[Task]) -> None:
    assert recheck(tasks, sweep, disassembler()) == [task.locked for task in tasks]


def test_a_ptxas_gets_ptx_of_a_newer_version_with_the_newest_that_it_reads(tasks: list[Task]) -> None:
    newer = [replace(task, ptx=Ptx(task.ptx).with_directives("9.9", "sm_90a").text) for task in tasks]
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


def of_draws(tasks: list[Task], draws: list[int]) -> object:
    """A sweep in which draw 0 gives other code than was locked, and only the draws named give the locked code."""
    real = {job.ptx: outcome for job, outcome in sweep([task.job(0) for task in tasks])}

    def run(jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            outcome = real[job.ptx]
            assert outcome.image is not None
            image = (
                outcome.image if job.draw in draws else replace(outcome.image, program_sha256=f"draw {job.draw % 2}")
            )
            yield job, replace(outcome, image=image)

    return run


def test_a_code_that_a_later_draw_gives_is_no_change(tasks: list[Task]) -> None:
    found = recheck(tasks, of_draws(tasks, [5]), disassembler())  # type: ignore[arg-type]
    assert found == [task.locked for task in tasks]


def test_a_code_that_no_draw_gives_is_a_change(tasks: list[Task]) -> None:
    for task, facts in zip(tasks, recheck(tasks, of_draws(tasks, []), disassembler()), strict=True):  # type: ignore[arg-type]
        assert not set(facts.codes) & set(task.locked.codes)


def test_another_ptxas_is_not_asked_for_draws(tasks: list[Task]) -> None:
    """Its code is another one with good reason."""
    other = [replace(task, options=("-O3", "-v")) for task in tasks]
    asked: list[int] = []
    run = of_draws(other, [])

    def counting(jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        jobs = list(jobs)
        asked.extend(job.draw for job in jobs)
        yield from run(jobs)  # type: ignore[operator]

    recheck(other, counting, disassembler())
    assert set(asked) == {0}


def test_all_codes_of_all_draws_are_found(tasks: list[Task]) -> None:
    for codes in codes_of(tasks, of_draws(tasks, [0])):  # type: ignore[arg-type]
        assert len(codes) == 3


def test_a_ptxas_that_fails_is_said(tasks: list[Task]) -> None:
    def run(jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            yield job, Outcome(OutcomeKind.CRASHED, "Segmentation fault", -11, "SIGSEGV", 0.1, 0.1, Limits())

    for facts in recheck(tasks, run, disassembler()):
        assert (facts.codes, facts.failure) == ((), "ptxas 12.8.93: crashed: Segmentation fault")
