"""Seeded alterations: each is one bit of one instruction whose result is stored, and nvdisasm reads it as one word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from benchmarks.verify import neutral, seeded, seeded_kernels
from tritonhook.cubin.image import Cubin


@pytest.fixture
def polynomial(triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Any, dict[str, Any]]:
    kernels = {"polynomial": seeded_kernels._KERNELS["polynomial"]}
    monkeypatch.setattr(seeded_kernels, "_KERNELS", kernels)
    return next(seeded_kernels.compiled())


def test_each_alteration_is_one_bit_and_one_word(polynomial: tuple[str, Any, dict[str, Any]]) -> None:
    name, made, _ = polynomial
    cubin = Cubin.from_bytes(made.asm["cubin"])
    found = list(seeded.alterations(name, cubin))
    kinds = [alteration.kind for alteration, _ in found]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("immediate", "predicate", "register", "rounding", "comparison"), seeded.PER_KIND
    )
    alteration, data = found[0]
    seeded.check(cubin, data, alteration)
    with pytest.raises(AssertionError):
        seeded.check(cubin, data, found[1][0])
    with pytest.raises(AssertionError):
        seeded.check(cubin, cubin.data, alteration)


def test_what_stays_the_same_has_a_checked_reason_and_nothing_else_has() -> None:
    import json

    rows = json.loads((ROOT / "benchmarks" / "results" / "verify_h200.json").read_text())["samples"]["seeded"]
    assert {row["found"] for row in rows} == {"DIFFERENT", "SAME"}
    for row in rows:
        assert (neutral.why(row) is not None) == (row["found"] == "SAME"), row
        assert row["why"] == neutral.why(row)
