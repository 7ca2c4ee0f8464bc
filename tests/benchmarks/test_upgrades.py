"""The audit of upgrades: two kernels under two ptxas, what counts as worse, what a second run does again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from triton_kernels import add_kernel, compile_gemm, compile_kernel

import tritonhook
from benchmarks import upgrades
from benchmarks.__main__ import parsed
from benchmarks.upgrading import audit
from tritonhook.snapshot.facts import KernelFacts

TRITONS = "12.8.93", "12.9.86"  # both come with Triton 3.6


@pytest.fixture
def folder(triton_cache: Path, tmp_path: Path) -> Path:
    with tritonhook.session(out=tmp_path / "library"):
        compile_kernel(add_kernel)
        compile_gemm()
    return tmp_path / "library"


def audited(folder: Path, cache: Path, *more: str) -> Any:
    words = ["--captures", str(folder), "--ptxas", ",".join(TRITONS), "--cache", str(cache), "--jobs", "1", *more]
    return upgrades.run(parsed("upgrades", words, cache))


def test_two_kernels_under_two_ptxas(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = audited(folder, tmp_path / "cache")
    assert document["corpus"] == [{"library": "library", "arch": "sm_90a", "triton": "3.6.0", "kernels": 2}]
    rows = {row["kernel"]: row for row in document["samples"]["kernels"]}
    assert set(rows) == {"add_kernel", "gemm_kernel"}
    for row in rows.values():
        assert row["own"] == "12.8.93" and row["figures"]["registers"] > 0
        assert list(row["by"]) == list(TRITONS)
        assert row["by"]["12.8.93"][0] == audit.SAME and len(row["by"]["12.8.93"]) == 3

    def none_runs(*_: Any) -> None:
        raise AssertionError("assembled again")

    monkeypatch.setattr("tritonhook.ptxas.pool.start_limited", none_runs)
    assert audited(folder, tmp_path / "cache")["samples"] == document["samples"]


def kernel_of(folder: Path) -> audit.Kernel:
    (found,) = (one for one in audit.read(folder) if one.capture.kernel == "gemm_kernel")
    return found


def facts(folder: Path, **figures: int) -> KernelFacts:
    own = kernel_of(folder).facts
    return replace(own, codes=("other",), figures={**own.figures, **figures})


def test_worse_are_spills_stack_and_fewer_blocks(folder: Path) -> None:
    old = facts(folder)
    registers = old.figures["registers"]
    assert registers is not None
    assert audit.verdict(old, old) == audit.SAME
    assert audit.verdict(old, replace(old, codes=("new",))) == audit.CHANGED
    assert audit.verdict(old, facts(folder, spill_stores=8)) == audit.WORSE
    assert audit.verdict(facts(folder, spill_stores=8), old) == audit.BETTER
    assert audit.verdict(old, facts(folder, registers=32, spill_stores=8)) == audit.WORSE
    assert audit.verdict(old, facts(folder, registers=255)) == audit.WORSE
    assert audit.verdict(facts(folder, registers=254), facts(folder, registers=255)) == audit.CHANGED
    assert audit.verdict(old, replace(old, figures={}, failure="no memory")) == audit.FAILED
