"""Every benchmark runs in its quick form, or says in one line what it needs that is not here."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from ended import ended
from repository import ROOT

from benchmarks.__main__ import load, main, names, why_not
from benchmarks.common import RESULTS

pytestmark = pytest.mark.usefixtures("warm_start")
LONG = {  # more than three seconds
    *("counters_h100", "emulate", "fuzz_ptxas", "gluon_blackwell", "large_modules", "miscompiles"),
    *("overhead", "published_table", "seeded", "upgrades"),
}


def test_the_long_ones_are_benchmarks() -> None:
    assert set(names()) > LONG


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in LONG else []) for name in names()]
)
def test_every_benchmark_runs_or_says_what_it_needs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "tritonhook"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # what times a GPU is run by hand
    monkeypatch.setattr("benchmarks.needs._has_gpu", lambda: False)
    monkeypatch.chdir(ROOT)
    module = load(name)
    needs = why_not(module, getattr(module, "QUICK", ()))
    if needs is not None:
        for constant in getattr(module, "SMALL", {}):
            monkeypatch.setattr(module, constant, getattr(module, constant))  # what it is afterwards
        with pytest.raises(SystemExit, match=f"^{re.escape(f'{name} needs {needs}')}$"):
            main([name, "--quick"])
        return
    before = {path: path.stat().st_mtime_ns for path in RESULTS.iterdir()}
    command = [sys.executable, "-m", "benchmarks", name, "--quick"]
    done = ended(command, ROOT, os.environ)
    assert {path: path.stat().st_mtime_ns for path in RESULTS.iterdir()} == before
    assert done.stdout
