"""Rows of a timing benchmark that are measured again take the place of their old ones; the others stay."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.__main__ import parsed
from benchmarks.timing import mma_throughput_h200, name_effect

OLD = {"verdict": "inconclusive", "comparison": {"blocks": [1]}}
NEW = {"verdict": "slower", "comparison": {"blocks": [2, 3]}}


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A result of two rows, on a machine without GPU and torch."""
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_name=lambda: "a GPU"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    nothing = SimpleNamespace(take=print, refill=lambda: None, end=lambda: None)
    monkeypatch.setattr(name_effect, "Spares", lambda *_, **__: nothing)
    monkeypatch.setattr(name_effect, "environment", lambda *_: {})

    def measure(target: str, ptxas: str, *others: Any) -> dict[str, Any]:
        assert others[-1] == "mma-throughput"
        return {"kernel": target, "ptxas": ptxas, **NEW}

    monkeypatch.setattr(name_effect, "measure", measure)
    result = tmp_path / "mma_throughput_h200.json"
    rows = [{"kernel": kernel, "ptxas": "13.5.37", **OLD} for kernel in ("ab_liger_targets:jsd", "softmax")]
    result.write_text(json.dumps({"samples": rows}))
    monkeypatch.setattr(mma_throughput_h200, "RESULTS", tmp_path)
    return result


def timed(result: Path, *words: str) -> dict[str, Any]:
    mma_throughput_h200.run(parsed("mma_throughput_h200", [*words, "--out", str(result)]))
    return json.loads(result.read_text())


def test_one_row_is_measured_again_and_the_others_stay(result: Path) -> None:
    document = timed(result, "--only", "jsd", "--each", "120")
    assert document["samples"] == [
        {"kernel": "ab_liger_targets:jsd", "ptxas": "13.5.37", **NEW},
        {"kernel": "softmax", "ptxas": "13.5.37", **OLD},
    ]
    assert (document["summary"]["slower"], document["summary"]["inconclusive"]) == (1, 1)


def test_without_only_every_row_is_measured(result: Path) -> None:
    rows = timed(result)["samples"]
    assert sorted(row["kernel"] for row in rows) == sorted(mma_throughput_h200.TARGETS)
    assert {row["verdict"] for row in rows} == {"slower"}
