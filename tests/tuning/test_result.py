"""Kernels are judged together: a verdict holds for all that may still come."""

from __future__ import annotations

from dataclasses import replace

from tuned import code, comparison, kernel_with

from tritonhook.tuning.race import TriedKernel, Tuned, TuneRun, TuneVerdict, entries, judged

NAME = code("name")
TRIED = TriedKernel(*kernel_with(NAME), "", winner=NAME, comparison=comparison(0.992, 0.005))


def verdict(*tried: TriedKernel, still: int = 0) -> Tuned:
    return judged(tried, still)[0]


def test_a_gain_that_is_certain_for_one_kernel_may_be_chance_for_thousands() -> None:
    alone, among = verdict(TRIED), verdict(TRIED, still=100_000)
    assert alone.verdict is TuneVerdict.WIN and alone.certificate is not None and 1e-6 < alone.certificate.p < 0.05
    assert (
        among.verdict is TuneVerdict.LEAVE and "with 100,001 kernels tried, chance alone could give it" in among.reason
    )
    none = TriedKernel(*kernel_with(), "no lever gives it other code")
    assert verdict(TRIED, *[none] * 1000).verdict is TuneVerdict.WIN, "they cannot win"


def test_a_reason_to_leave_a_kernel_comes_before_its_gain() -> None:
    left = verdict(replace(TRIED, reason="slower elsewhere"))
    assert (left.verdict, left.reason) == (TuneVerdict.LEAVE, "slower elsewhere") and left.certificate.wins
    assert entries(TuneRun((left, verdict(TRIED)), "NVIDIA H200"), "2026-11-22")[0].gain_percent > 0.5
    assert len(entries(TuneRun((left,), "NVIDIA H200"), "2026-11-22")) == 0
