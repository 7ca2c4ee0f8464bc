"""Kernels before and after that have another number of threads: figures of one thread are no verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tritonhook.report.results.snapshot import KernelChange
from tritonhook.snapshot.changes import Change
from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts


def kernel(threads: int | None, **figures: int) -> KernelFacts:
    known = {"spill_stores": 0, "spill_loads": 0, "stack": 0, "registers": 64, "shared": 1024, **figures}
    return KernelFacts(
        identity=Identity("k", "sm_90a", "Triton", ()),
        entry="k",
        stages={},
        ptx_sha256=None,
        ptxas="12.8.93",
        options=(),
        codes=(str(figures),),
        figures=dict.fromkeys(FIGURES) | known,
        threads=threads,
    )


@pytest.mark.parametrize(
    ("old", "new", "worse", "judgement"),
    [
        (kernel(128, instructions=776), kernel(256, instructions=1_224), (), ""),
        (kernel(128, instructions=776), kernel(128, instructions=1_224), ("instructions",), "worse"),
        (kernel(256, instructions=1_224), kernel(128, instructions=776), (), ""),
        (kernel(128, instructions=1_224), kernel(128, instructions=776), (), "better"),
        (kernel(None, instructions=776), kernel(128, instructions=1_224), ("instructions",), "worse"),
        (kernel(128), kernel(256, registers=255), ("registers",), "worse"),  # 8 warps in place of 32 fit into an SM
        (kernel(128, registers=33), kernel(256, registers=40), (), ""),
    ],
)
def test_a_figure_of_one_thread_is_judged_for_as_many_threads(
    old: KernelFacts, new: KernelFacts, worse: tuple[str, ...], judgement: str
) -> None:
    change = Change(old, new)
    assert change.worse == worse
    assert KernelChange.of(change, ()).judgement == judgement


def test_the_numbers_of_threads_are_shown_where_they_differ() -> None:
    old, new = kernel(128), kernel(256)
    assert KernelChange.of(Change(old, new), ()).threads == (128, 256)
    assert not KernelChange.of(Change(old, replace(new, threads=128)), ()).threads
