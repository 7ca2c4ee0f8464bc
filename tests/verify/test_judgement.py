"""Verdicts from what builds stored."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from tritonhook.capture.launches.contents import DENORMALS, NORMAL, SPECIAL, ZEROS
from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar
from tritonhook.verify.contents import difference
from tritonhook.verify.judgement import Latitude, judge
from tritonhook.verify.model import Difference, Failure, FailureKind, Outside, Ran, Verdict

LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1), (Pointer("out", 0, dtype="float32"),), (Buffer(64, "float32"),))


def apart(*values: float, dtype: str = "float32", reference: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)) -> Difference:
    code = {"float32": "f", "int32": "i", "float64": "d"}[dtype]
    a, b = (struct.pack(f"<4{code}", *map({"i": int}.get(code, float), side)) for side in (reference, values))
    found = difference(0, dtype, a, b)
    assert found is not None
    return found


def verdict(*ran: Ran, **latitude: Any) -> Verdict:
    return judge([Ran(NORMAL, "12.8.93 -O3", us=1.0), *ran], LAUNCH, Latitude(**latitude)).verdict


def other(label: str = "13.5.37 -O3", **fields: Any) -> Ran:
    return Ran(NORMAL, label, **fields)


ONE_ULP = apart(1.0, 2.0, 4.0, 8.000001)
FAR = apart(1.0, 2.0, 4.0, 9.0)
NAN = apart(1.0, 2.0, float("nan"), 8.0)


def test_equal_builds_are_the_same() -> None:
    assert verdict(other()) is Verdict.SAME
    assert judge([other()], LAUNCH, Latitude()).verdict is Verdict.SKIPPED, "one build is compared with nothing"


@pytest.mark.parametrize(
    ("found", "latitude", "wanted"),
    [
        (ONE_ULP, {}, Verdict.DIFFERENT),
        (ONE_ULP, {"contraction": True}, Verdict.DIFFERENT),  # the builds are made without contraction
        (ONE_ULP, {"approximate": ("ex2.approx.f32",), "share": 1e-5}, Verdict.ROUNDING),
        (FAR, {"approximate": ("ex2.approx.f32",), "share": 1e-5}, Verdict.DIFFERENT),
        (NAN, {"approximate": ("ex2.approx.f32",), "share": 1e-5}, Verdict.DIFFERENT),
        (ONE_ULP, {"contracted": True}, Verdict.ROUNDING),
        (ONE_ULP, {"pairs": True, "approximate": ("ex2.approx.f32",), "share": 1e-5}, Verdict.ROUNDING),
        (apart(1.0, 2.0, 4.0, 8.001), {"pairs": True}, Verdict.DIFFERENT),
        (ONE_ULP, {"float_atomics": True}, Verdict.NONDETERMINISTIC),
        (FAR, {"float_atomics": True}, Verdict.DIFFERENT),
        (apart(1, 2, 4, 9, dtype="int32"), {"approximate": ("ex2.approx.f32",), "share": 0.05}, Verdict.DIFFERENT),
    ],
)
def test_numbers_may_differ_as_far_as_ptx_allows(found: Difference, latitude: Any, wanted: Verdict) -> None:
    assert verdict(other(differences=(found,)), **latitude) is wanted


def test_the_build_as_used_may_contract() -> None:
    for found, wanted in ((ONE_ULP, Verdict.ROUNDING), (FAR, Verdict.DIFFERENT)):
        ran = [Ran(NORMAL, "a"), Ran(NORMAL, "b", (found,))]
        assert judge(ran, LAUNCH, Latitude(contraction=True), ["b"]).verdict is wanted
        assert judge(ran, LAUNCH, Latitude(contraction=True), ["a"]).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(("contracted", "wanted"), [("b", Verdict.ROUNDING), ("a", Verdict.DIFFERENT)])
def test_contraction_decides_what_overflows_among_special_numbers(contracted: str, wanted: Verdict) -> None:
    """x * s - m * s is inf - inf without contraction where x * s overflows, and 0 with it: a softmax."""
    ran = [Ran(SPECIAL, "a"), Ran(SPECIAL, "b", (NAN,))]
    assert judge(ran, LAUNCH, Latitude(contraction=True), [contracted]).verdict is wanted
    integers = [Ran(SPECIAL, "a"), Ran(SPECIAL, "b", (apart(1, 2, 4, 9, dtype="int32"),))]
    assert judge(integers, LAUNCH, Latitude(contraction=True), [contracted]).verdict is Verdict.DIFFERENT


def test_payloads_of_nans_are_open() -> None:
    a, b = (struct.pack("<4I", 0, 0, 0, bits) for bits in (0x7FFFFFFF, 0x7FC00001))
    found = difference(0, "float32", a, b)
    assert found is not None and verdict(other(differences=(found,))) is Verdict.ROUNDING


def test_a_build_that_differs_from_itself_is_nondeterministic() -> None:
    assert verdict(other(unsteady=(ONE_ULP,))) is Verdict.NONDETERMINISTIC
    assert verdict(other(unsteady=(ONE_ULP,), differences=(ONE_ULP,))) is Verdict.NONDETERMINISTIC
    assert verdict(other(unsteady=(ONE_ULP,), differences=(FAR,))) is Verdict.DIFFERENT, "far beyond its own spread"


def test_failures_and_writes_outside_are_worst() -> None:
    crash, hang = Failure(FailureKind.CRASH, "CUDA_ERROR_ILLEGAL_ADDRESS"), Failure(FailureKind.HANG, "10 s")
    assert verdict(other(failure=crash), other("b", differences=(FAR,))) is Verdict.CRASH
    assert verdict(other(failure=hang)) is Verdict.HANG
    assert verdict(other(failure=Failure(FailureKind.REFUSED, "too many registers"))) is Verdict.SKIPPED
    wrote = judge([Ran(NORMAL, "a"), other(outside=(Outside(0, 68, 64),))], LAUNCH, Latitude())
    assert wrote.verdict is Verdict.CRASH and wrote.worst is not None
    assert "13.5.37" in wrote.worst.text and "argument out" in wrote.worst.text and "4 bytes beyond" in wrote.worst.text


def test_contents_on_which_no_build_ends_say_nothing_of_the_builds() -> None:
    hang = Failure(FailureKind.HANG, "10 s")
    both = [Ran(DENORMALS, label, failure=hang) for label in ("a", "b")]
    found = judge([Ran(NORMAL, "a"), Ran(NORMAL, "b"), *both], LAUNCH, Latitude())
    assert (found.verdict, found.unfit) == (Verdict.SAME, (DENORMALS,))
    again = [Ran(NORMAL, label, failure=hang) for label in ("a", "b")]
    assert judge(again, LAUNCH, Latitude()).verdict is Verdict.HANG


def said(*ran: Ran, launch: Launch = LAUNCH, **latitude: Any) -> list[tuple[Verdict, str, str, str | None]]:
    found = judge(ran, launch, Latitude(**latitude))
    return [(one.verdict, one.text, one.input, one.build) for one in found.findings]


def test_findings_are_told_the_worst_first() -> None:
    launch = Launch("k", (1, 1, 1), (1, 1, 1), (Scalar("n", "i32", 1), Pointer("in", 1)), (Buffer(64, "float32"),) * 2)
    hang, unknown = Failure(FailureKind.HANG, "no end"), Failure(FailureKind.NOT_UNDERSTOOD, "wgmma")
    ran = [
        Ran(NORMAL, "a", unsteady=(replace(ONE_ULP, buffer=1),)),
        Ran(NORMAL, "b", (FAR,), (replace(FAR, buffer=1),)),
        Ran(NORMAL, "c", outside=(Outside(1, -8, 64), Outside(0, 99, 64))),
        Ran(NORMAL, "d", failure=hang),
        Ran(NORMAL, "e", failure=unknown),
        Ran(SPECIAL, "c", failure=hang),
        Ran(ZEROS, "a", outside=(Outside(0, 70, 64),)),
    ]
    assert [(verdict, name, build) for verdict, _, name, build in said(*ran, launch=launch)] == [
        (Verdict.CRASH, NORMAL, "c"),
        (Verdict.CRASH, ZEROS, None),
        (Verdict.HANG, NORMAL, "d"),
        (Verdict.DIFFERENT, NORMAL, "b"),
        (Verdict.NONDETERMINISTIC, NORMAL, "a"),
        (Verdict.NOT_UNDERSTOOD, NORMAL, "e"),
    ]
    crash = Failure(FailureKind.CRASH, "lost")
    assert [one[::3] for one in said(Ran(NORMAL, "a", failure=crash), Ran(NORMAL, "b", failure=hang))] == [
        (Verdict.CRASH, None)
    ]
