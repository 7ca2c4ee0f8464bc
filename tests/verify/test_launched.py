"""Trials are judged by what two builds store: assembled by both sides, launched on the trial's buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ptx_modules import HEADER

from tritonhook.capture.launches.contents import RECORDED
from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.ptxas.tool import available_ptxas, find_ptxas
from tritonhook.verify.differential import Recipe
from tritonhook.verify.minimise import Trial, minimise
from tritonhook.verify.model import Difference, Failure, FailureKind, Order, Outside, Ran
from tritonhook.verify.reproduce import RUNS, LaunchedJudge, _tried

TEXT = (
    HEADER
    + """.visible .entry kernel(.param .u64 a, .param .u64 b)
{
 .reg .b64 %rd<4>; .reg .f32 %f<9>;
 ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
 ld.global.f32 %f1, [%rd2]; ld.global.f32 %f2, [%rd2+4]; ld.global.f32 %f3, [%rd2+8];
 mul.f32 %f4, %f1, %f2; add.f32 %f5, %f4, %f3; add.f32 %f6, %f5, 0f40000000;
 st.global.f32 [%rd1], %f6; st.global.f32 [%rd1+4], %f1;
 ret;
}
"""
)
LAUNCH = Launch(
    "kernel", (1, 1, 1), (1, 1, 1), (Pointer("a", 0), Pointer("b", 1)), (Buffer(8, "float32"), Buffer(12, "float32"))
)
TRIAL = Trial(TEXT, "kernel", LAUNCH, (bytes(8), bytes(range(12))))
DIFFERENCE = Difference(0, "float32", 2, 1, "other", ())


def sides(*options: str) -> tuple[Recipe, Recipe]:
    first, second = (Recipe(find_ptxas(), (option,)) for option in options)
    return first, second


def judge(folder: Path, answer: Callable[[Order], Sequence[Ran]], *options: str) -> LaunchedJudge:
    return LaunchedJudge(sides(*(options or ("--fmad=true", "--fmad=false"))), answer, folder)


def ran(order: Order, first: Ran | None = None, second: Ran | None = None) -> tuple[Ran, Ran]:
    a, b = (build.label for build in order.builds)
    return replace(first or Ran("", a), build=a), replace(second or Ran("", b, (DIFFERENCE,)), build=b)


def test_both_builds_run_on_the_contents(tmp_path: Path) -> None:
    orders: list[Order] = []
    assert judge(tmp_path, lambda order: orders.append(order) or ran(order))([TRIAL]) == [True]
    (order,) = orders
    assert (order.inputs, order.runs, order.folder) == ((RECORDED,), RUNS, tmp_path)
    assert [(tmp_path / str(buffer.values)).read_bytes() for buffer in order.launch.buffers] == list(TRIAL.contents)
    assert [build.options for build in order.builds] == [("--fmad=true",), ("--fmad=false",)]
    codes = [build.path.read_bytes() for build in order.builds]
    assert codes[0] != codes[1] and all(code[:4] == b"\x7fELF" for code in codes)


def test_equal_codes_and_what_cannot_be_assembled_are_not_launched(tmp_path: Path) -> None:
    def answer(order: Order) -> Sequence[Ran]:
        raise AssertionError("launched")

    bad = replace(TRIAL, ptx=TEXT.replace("add.f32", "ad.f32"))
    plain = replace(TRIAL, ptx=TEXT.replace("mul.f32", "mul.rn.f32"))
    assert judge(tmp_path, answer)([bad, plain]) == [False, False]
    assert judge(tmp_path, answer)([replace(TRIAL, launch=None)]) == [False]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (None, Ran("", "")),
        (None, Ran("", "", failure=Failure(FailureKind.CRASH, "lost"))),
        (None, Ran("", "", (DIFFERENCE,), outside=(Outside(0, 8, 8),))),
        (None, Ran("", "", (DIFFERENCE,), unsteady=(DIFFERENCE,))),
        (Ran("", "", unsteady=(DIFFERENCE,)), None),
    ],
)
def test_only_a_steady_difference_counts(first: Ran | None, second: Ran | None, tmp_path: Path) -> None:
    assert judge(tmp_path, lambda order: ran(order, first, second))([TRIAL]) == [False]


def test_an_order_that_ended_early_is_no_difference(tmp_path: Path) -> None:
    lost = Ran("", "", failure=Failure(FailureKind.CRASH, "lost"))
    assert judge(tmp_path, lambda order: ran(order, lost, None)[:1])([TRIAL]) == [False]


def test_a_kernel_is_minimised_by_launches(tmp_path: Path) -> None:
    """The fake GPU finds a difference wherever the codes differ: the contraction of mul and add is what is left."""
    found = minimise(TRIAL, judge(tmp_path, ran))
    text = found.trial.ptx
    assert text.count("mul.f32") == 1 and text.count("add.f32") == 1 and text.count("st.global") == 1
    assert found.trial.lines < 20


def test_what_is_stored_is_read_back(tmp_path: Path) -> None:
    def answer(order: Order) -> Sequence[Ran]:
        for side, build in enumerate(order.builds):
            assert build.path.is_file() and order.save is not None
            for number in (0, 1):
                (order.save / f"{RECORDED}-{side}-{number}.bin").write_bytes(bytes([side, number]))
        return ran(order)

    assert judge(tmp_path, answer).stored(TRIAL) == ((b"\0\0", b"\0\1"), (b"\1\0", b"\1\1"))


@pytest.mark.parametrize(("seen", "finding"), [(True, "as ptxas {0}"), (False, "not known")])
def test_which_side_further_versions_agree_with(seen: bool, finding: str, tmp_path: Path) -> None:
    """Another ptxas has the first side's options."""
    further = {tool.version for tool in available_ptxas()} - {find_ptxas().version}
    if not further:
        pytest.skip("needs two versions of ptxas")

    def answer(order: Order) -> Sequence[Ran]:
        a, b = order.builds
        return ran(order, None, None if seen and a.options != b.options else Ran("", ""))

    found = judge(tmp_path, answer, "-O3", "-O0")
    tried = list(_tried(TRIAL, found))
    assert {one.label for one in tried} == {f"ptxas {version} -O3" for version in further}
    assert {one.finding for one in tried} == {finding.format(*(side.label for side in found.sides))}
