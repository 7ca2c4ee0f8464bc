"""Results of the benchmarks: how they are written, and which script makes which."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from repository import ROOT

from benchmarks import common, goals
from benchmarks.__main__ import load, names

BENCHMARKS = ROOT / "benchmarks"
RESULTS = sorted(path.stem for path in (BENCHMARKS / "results").iterdir())


def test_measurements_are_rounded_and_nothing_else(tmp_path: Path) -> None:
    document = {
        "samples": [{"us": [2728.288, 0.000123456], "bytes": 1234567890, "sha256": "1234567.123", "ratio": 0.9998765}],
        "environment": {"cpus": 16},
        "summary": {"ok": True, "none": None},
        "format": 1,
    }
    path = tmp_path / "some" / "result.json"
    common.write_json(path, document)
    written = json.loads(path.read_text())
    assert list(written) == ["format", "summary", "environment", "samples"]
    (sample,) = written.pop("samples")
    assert sample == {"us": [2728.3, 0.00012346], "bytes": 1234567890, "sha256": "1234567.123", "ratio": 0.999876}
    assert written == {name: document[name] for name in written}
    common.write_json(path, document, digits=6)
    assert json.loads(path.read_text())["samples"][0]["us"] == [2728.29, 0.000123456]


@pytest.mark.parametrize("name", RESULTS)
def test_a_committed_result_is_written_as_its_script_writes(name: str, tmp_path: Path) -> None:
    committed = (BENCHMARKS / "results" / f"{name}.json").read_text()
    common.write_json(tmp_path / "again.json", json.loads(committed), digits=9)
    assert (tmp_path / "again.json").read_text() == committed


def test_the_readme_names_every_script_and_every_result() -> None:
    rows = re.findall(
        r"^\| `(\S+\.py)` \|.*?\| (`[^|]*`|pictures[^|]*|-) \|", (BENCHMARKS / "README.md").read_text(), re.M
    )
    assert sorted(Path(script).stem for script, _ in rows) == names()
    made = {result: script for script, results in rows for result in re.findall(r"`(\w+)`", results)}
    gone = set(re.findall(r"^\| `(\w+)` \|", (BENCHMARKS / "README.md").read_text(), re.M))
    assert set(RESULTS) <= set(made) | gone and gone <= set(RESULTS) - set(made)
    # Another GPU's, another layout's, and one that was made by hand.
    others = {
        "counters_kernels_h100",
        "counters_patterns_h100",
        "gluon_ab",
        "gluon_h100",
        "mma_throughput_h200",
        "same_bits_h100",
        "sm120_kv_formats_hnd_h200",
        "sm120_nvfp4_causes_h200",
    }
    for result in set(RESULTS) - others - gone:
        name = Path(made[result]).stem
        assert getattr(load(name), "RESULT", name) == result


def test_every_goal_is_about_a_figure_of_a_result() -> None:
    found = goals.goals()
    assert found
    for goal in (goal for goal in found if goals.figure(goal) is None):  # not measured: null in the summary
        assert goal.figure in json.loads((BENCHMARKS / "results" / f"{goal.result}.json").read_text())["summary"]


def test_a_goal_is_in_force_or_retired_with_its_bound_and_a_reason() -> None:
    assert not {f"{goal.result}.{goal.figure}" for goal in goals.goals()} & goals.retired().keys()
    for why in goals.retired().values():
        assert re.match(r"at (most|least) [\d.]+: \w", why)
