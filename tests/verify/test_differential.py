"""Verifying one kernel: what is run, run again, and allowed. No GPU: what builds store is made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ptx_modules import HEADER

from tritonhook.capture.launches.contents import NORMAL, RECORDED, ZEROS
from tritonhook.capture.launches.record import Buffer, Launch, Pointer
from tritonhook.ptx.module import Ptx
from tritonhook.verify.differential import Built, Case, Verified, case_of, inputs_for, verify
from tritonhook.verify.judgement import Latitude
from tritonhook.verify.model import Build, Difference, Order, Ran, Verdict

LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1), (Pointer("out", 0, dtype="float32"),), (Buffer(64, "float32"),))
FAR = Difference(0, "float32", 16, 1, "other", (), ulps=9999, share=0.01)
A, B, C = (Build(label, Path("k.cubin"), "k", label, ("-O3",)) for label in "abc")


class Stored:
    """An executor whose builds store what `of` says: by order's number, input and build's label."""

    def __init__(self, of: Callable[[int, str, str], dict[str, Any]]) -> None:
        self.of, self.orders = of, list[Order]()

    def run(self, order: Order) -> tuple[Ran, ...]:
        self.orders.append(order)
        number = len(self.orders)
        return tuple(
            Ran(name, build.label, stored=1, **self.of(number, name, build.label))
            for name in order.inputs
            for build in order.builds
        )


def verified(executor: Any, *builds: Build, latitude: Latitude | None = None) -> Verified:
    case = Case("k", LAUNCH, latitude or Latitude(), ())
    return verify(case, Built(builds, (), ()), executor, (NORMAL, ZEROS))


def differs(*labels: str) -> Callable[[int, str, str], dict[str, Any]]:
    return lambda number, name, label: {"differences": (FAR,)} if label in labels and name == ZEROS else {}


def test_builds_that_differ_run_again_and_a_rare_race_is_found() -> None:
    def of(number: int, name: str, label: str) -> dict[str, Any]:
        if number == 1:
            return differs("b")(number, name, label)
        return {"unsteady": (FAR,)} if label == "b" else {}

    executor = Stored(of)
    assert verified(executor, A, C, B).verdict is Verdict.NONDETERMINISTIC
    first, again = executor.orders
    assert (first.inputs, first.builds, first.runs) == ((NORMAL, ZEROS), (A, C, B), 3)
    assert (again.inputs, again.builds) == ((ZEROS,), (A, B)) and again.runs > first.runs


def test_builds_that_differ_in_every_run_stay_different() -> None:
    executor = Stored(differs("b"))
    found = verified(executor, A, B, C)
    assert found.verdict is Verdict.DIFFERENT and len(executor.orders) == 2
    assert found.groups == (("a", "c"), ("b",))


def test_builds_that_store_the_same_run_once() -> None:
    executor = Stored(differs())
    assert verified(executor, A, B).verdict is Verdict.SAME and len(executor.orders) == 1


def test_a_build_that_is_alone_is_compared_with_itself() -> None:
    executor = Stored(differs())
    assert verified(executor, A).verdict is Verdict.SAME
    assert [build.label for build in executor.orders[0].builds] == ["a", "a, again"]


@pytest.mark.parametrize(("as_used", "wanted"), [((), Verdict.DIFFERENT), (("b",), Verdict.ROUNDING)])
def test_only_the_build_as_used_may_contract(as_used: Sequence[str], wanted: Verdict) -> None:
    builds = [replace(one, as_used=one.label in as_used) for one in (A, B)]
    executor = Stored(differs("b"))
    assert verified(executor, *builds, latitude=Latitude(contraction=True)).verdict is wanted
    assert len(executor.orders) == (2 if wanted is Verdict.DIFFERENT else 1)


def test_only_the_buffers_that_steer_keep_their_contents() -> None:
    text = ".visible .entry k(.param .u64 a, .param .u64 b)\n{\n.reg .pred %p1; .reg .b32 %r1; .reg .b64 %rd<3>;\n"
    text += "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.global.b32 %r1, [%rd1];\n"
    text += "setp.eq.s32 %p1, %r1, 0; @%p1 bra L; st.global.b32 [%rd2], %r1;\nL: ret;\n}\n"
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (Pointer("a", 0), Pointer("b", 1)), (Buffer(4, "int32"),) * 2)
    assert case_of("k", launch, None, Ptx(HEADER + text), Latitude()).keep == (0,)
    assert case_of("k", launch, None, None, Latitude()).keep == (0, 1)


@pytest.mark.parametrize(
    ("dtype", "keep", "wanted", "inputs"),
    [
        ("float32", (), (RECORDED, NORMAL, ZEROS), (NORMAL, ZEROS)),
        ("int32", (), (RECORDED, NORMAL, ZEROS), (RECORDED, NORMAL, ZEROS)),
        ("float32", (), (RECORDED, ZEROS), (RECORDED, ZEROS)),
        ("float32", (0,), (NORMAL, RECORDED, ZEROS), (RECORDED,)),
        ("float32", (0,), (NORMAL, ZEROS), (NORMAL,)),
    ],
)
def test_inputs_that_would_be_equal_are_run_once(
    dtype: str, keep: tuple[int, ...], wanted: Sequence[str], inputs: Sequence[str]
) -> None:
    launch = replace(LAUNCH, buffers=(Buffer(64, dtype),))
    assert inputs_for(Case("k", launch, Latitude(), keep), wanted) == inputs
