"""The steps of a visit, from recorded launches to the result: real ptxas, simulated times. No GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from fake_tensors import Storage, Tensor
from repository import SUPPORT
from triton_kernels import add_kernel, fresh, multiply_kernel

import tritonhook
from benchmarks.__main__ import parsed
from benchmarks.tuning import tune_h200
from tritonhook.capture.policy.levers import levers
from tritonhook.capture.policy.model import read_entries
from tritonhook.capture.store import CaptureFolder
from tritonhook.tuning.gpu import GpuProcess

MICROSECONDS = {"add_kernel": 60.0, "multiply_kernel": 3.0}  # the second one is too short to be tuned


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, driver: Any, tmp_path: Path) -> ModuleType:
    """The script, with two kernels that Liger launched, and the lever O1 4% faster."""

    def rough_times(path: Path, others: object = ()) -> list[dict[str, Any]]:
        folder = CaptureFolder.open(path)
        named = {name: MICROSECONDS[name.rpartition("-")[0]] for name in folder.records}
        return [
            {"record": name, "launch": one.key, "count": 1, "us": us}
            for name, us in named.items()
            for one in folder.launches(name)
        ]

    x = Tensor(Storage(1 << 20, 4000))
    with tritonhook.session(tmp_path / "liger", launches=True):
        for kernel in (add_kernel, multiply_kernel):
            fresh(kernel)[(8,)](x, x, x, 1000, BLOCK=128)
    monkeypatch.setattr(tune_h200, "record", lambda *_: SimpleNamespace(wait=lambda seconds: None))
    monkeypatch.setattr(tune_h200, "PROGRAMS", (("liger", "liger", ()),))
    monkeypatch.setattr(tune_h200, "LEVERS", levers("O1,maxnreg=24,name"))
    monkeypatch.setattr(tune_h200, "rough_times", rough_times)
    worker = (sys.executable, str(SUPPORT / "fake_worker.py"))
    for module in (tune_h200, tune_h200.tune_truth):
        monkeypatch.setattr(module, "START", lambda limit: GpuProcess(limit, worker))
    monkeypatch.setenv("FAKE_TUNING", json.dumps({"O1": {"us": 48.0}, "candidate": {"us": 48.0}}))
    return tune_h200


def step(script: ModuleType, work: Path, *words: str) -> Any:
    return script.run(parsed("tune_h200", [*words, "--work", str(work)]))


def test_a_visit_from_launches_to_the_result(script: ModuleType, monkeypatch, tmp_path: Path, capsys) -> None:
    for name in ("record", "assemble", "null", "race", "policy", "again", "applied"):
        with monkeypatch.context() as patch:
            if name == "null":  # copies of the own code take its time
                patch.setenv("FAKE_TUNING", "{}")
            step(script, tmp_path, name)
    (planned,) = json.loads((tmp_path / "plan.json").read_text())
    assert planned["source"] == "liger" and planned["us"] == 60.0
    (entry,) = read_entries(tmp_path / "tritonhook.toml")
    assert (entry.kernel, entry.lever.text, entry.gpu) == ("add_kernel", "O1", "Fake GPU")
    rows = [str(path) for path in sorted((tmp_path / "rows").iterdir())]
    assert len(rows) == 4
    found = step(script, tmp_path, "summary", *rows)
    summary = found["summary"]
    assert (summary["kernels_not_ours"], summary["wins"], summary["null_tunings"], summary["null_wins"]) == (1, 1, 1, 0)
    assert summary["applied"] == {"applies": 1}  # its program ran without the policy
    assert summary["wins_again"] == 1 and summary["wins_reproduced_ratio"] == 1.0
    assert found["environment"]["gpu"] == "Fake GPU"
    (null,) = found["null"]
    assert null["candidates"] == list(script.COPIES) and len(script.COPIES) == 16
    assert summary["null_confirmed"] == 1 and len({block[0] for block in null["blocks"]}) == 7, "forced to its end"
