"""The summary of each committed result is that of its samples, computed again by its script."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from benchmarks.__main__ import load, names
from benchmarks.common import write_json
from benchmarks.tuning import tune_rows

RESULTS = ROOT / "benchmarks" / "results"
MAKERS: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    **dict.fromkeys(
        (
            *("ab_calibration", "emulate", "equivalent_forms", "gluon_blackwell", "gluon_names"),
            *(
                "foreign_tests",
                "interpret",
                "host_times",
                "lock",
                "miscompiles",
                "name_effect",
            ),
            *("recording", "tune_simulation", "upgrades", "verify_h200"),
        ),
        lambda script, document: script.summary(document["samples"]),
    ),
    **dict.fromkeys(
        ("ab_simulation", "gemm_chain", "sm120_kv_formats_error"),
        lambda script, document: script.summary(document["rows"]),
    ),
    **dict.fromkeys(
        ("sm120_kv_formats_h200", "sm120_serving_h200"),
        lambda script, document: script.summary_of(document),
    ),
    "counters_h100": lambda script, document: script.summary(document["samples"]["launches"]),
    "dry_run": lambda script, document: script.summary(
        document["samples"]["libraries"], document["samples"]["against_gpu"]
    ),
    "end_to_end": lambda script, document: script.document(by_step(document["samples"]))["summary"],
    "large_modules": lambda script, document: script.document_of(document["samples"], document["rounds"], {})[
        "summary"
    ],
    "memory_h100": lambda script, document: script.summarise(document["samples"]),
    "own_sums_h100": lambda script, document: script.summary(document["errors"], document["times"]),
    "sm120_graph_h100": lambda script, document: script.summary_of(document["problems"]),
    "tune_h200": lambda script, document: tune_rows.summed_up([], document)["summary"],
}
NOT_OF_SAMPLES = {  # of the whole run, or words
    "emulate": {"memory_gib"},
    "recording": {"sessions", "sessions_with_launches"},
    "tune_simulation": {"noise_of_comparisons"},
}


def by_step(samples: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [one for one in samples if one["step"] == name] for name in dict.fromkeys(s["step"] for s in samples)}


ROUNDED = {"end_to_end": 2e-3}  # differences of large samples, which are rounded


def differences(committed: Any, again: Any, tolerance: float, path: str = "") -> Iterator[str]:
    if isinstance(committed, dict) and isinstance(again, dict):
        for name in committed.keys() | again.keys():
            yield from differences(committed.get(name), again.get(name), tolerance, f"{path}/{name}")
    elif isinstance(committed, list) and isinstance(again, list) and len(committed) == len(again):
        for number, (one, other) in enumerate(zip(committed, again, strict=True)):
            yield from differences(one, other, tolerance, f"{path}/{number}")
    elif isinstance(committed, float) and isinstance(again, (int, float)):
        if not math.isclose(committed, again, rel_tol=tolerance, abs_tol=1e-6):  # samples are rounded
            yield f"{path}: {committed} is written, the samples give {again}"
    elif committed != again:
        yield f"{path}: {committed} is written, the samples give {again}"


@pytest.mark.parametrize("name", MAKERS)
def test_a_summary_is_that_of_its_samples(name: str, tmp_path: Path) -> None:
    document = json.loads((RESULTS / f"{name}.json").read_text())
    script = next(load(one) for one in names() if getattr(load(one), "RESULT", one) == name)
    write_json(tmp_path / "again.json", {"summary": MAKERS[name](script, document)})
    again = json.loads((tmp_path / "again.json").read_text())["summary"]
    for left in NOT_OF_SAMPLES.get(name, ()):
        again[left] = document["summary"][left]
    assert list(differences(document["summary"], again, ROUNDED.get(name, 2e-4))) == []


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_what_a_summary_leaves_out_is_the_rest_of_what_was_tried(path: Path) -> None:
    summary = json.loads(path.read_text()).get("summary", {})
    if "tried" in summary and "left_out" in summary:
        assert summary["tried"] == summary["judged"] + sum(summary["left_out"].values())
