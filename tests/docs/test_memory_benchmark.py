"""benchmarks/memory/pool.py runs, here against the model of a GPU."""

from __future__ import annotations

import json

from ended import python_ended
from repository import ROOT


def test_it_runs_against_the_model_of_a_gpu(tools, tmp_path, warm_start) -> None:
    line = ["-m", "benchmarks", "pool", "--fake", "--only", "E3,E7", "--out", str(tmp_path / "none.json")]
    done = python_ended(*line, folder=ROOT)
    summary = json.loads(done.stdout[done.stdout.rindex("\n{") :])
    assert summary["failed"] == {}
    rows = [json.loads(text.split(" ", 1)[1]) for text in done.stdout.splitlines() if text.startswith("E7 ")]
    assert [row["result"] for row in rows] == [2, 2, 0]
    assert not (tmp_path / "none.json").exists()  # a model's figures are no results
