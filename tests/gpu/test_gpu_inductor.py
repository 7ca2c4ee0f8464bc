"""On a GPU: torch.compile under `tritonhook run`, with cold and warm caches, and CUDA graphs. Executed where there is
one. The whole matrix is benchmarks/in_the_wild/inductor.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

from tritonhook.capture.store import CaptureFolder

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="requires an NVIDIA GPU"),
]


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_plain_renamed_and_plain_again_in_one_cache(tmp_path: Path, mode: str) -> None:
    """Each launches the right kernels, computes the same, and what is launched is captured, warm or not."""
    from benchmarks.in_the_wild.inductor import problems, run_one

    steps = ["plain", "prefixed", "prefixed", "captured", "stripped", "plain"]
    runs = [run_one(mode, variant, "", tmp_path / "shared", tmp_path / str(n)) for n, variant in enumerate(steps)]
    for step, run in zip(steps, runs, strict=True):
        assert problems(run, runs[0], mode) == [], step
    assert all(name.startswith("cutlass_") for name in runs[1]["triton"])
    assert runs[1]["renamed"] > 0
    assert runs[2]["triton"] == runs[1]["triton"]
    assert runs[5]["triton"] == runs[0]["triton"]
    hits = runs[2]["graph_cache"]["fxgraph_cache_hit"] + runs[2]["autograd_cache"].get("autograd_cache_hit", 0)
    assert hits > 0, "the second renamed run did not find the first one's graph"


GRAPH = """
import json, sys, torch, triton, triton.language as tl
import tritonhook

@triton.jit
def double(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)

first_inside, hooked = sys.argv[1] == "inside", sys.argv[2] == "hooked"
if hooked:
    tritonhook.enable(sys.argv[3], rename="cutlass_")
x, y = torch.arange(1000.0, device="cuda"), torch.zeros(1000, device="cuda")
call = lambda: double[(4,)](x, y, 1000, B=256)
if not first_inside:
    call()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph, capture_error_mode="relaxed" if first_inside else "global"):
        call()
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    outcome = "right" if torch.equal(y, x * 2) else "wrong"
except Exception as error:
    outcome = f"{type(error).__name__}: {error}"
print(json.dumps({"outcome": outcome}))
"""


@pytest.mark.parametrize("when", ["before", "inside"])
def test_a_graph_is_captured_as_without_us(tmp_path: Path, when: str) -> None:
    """A kernel compiled before the stream captures, and one first compiled while it does."""
    (tmp_path / "graph.py").write_text(GRAPH)

    def outcome(how: str) -> Any:
        env = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / f"cache-{how}"), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "graph.py", when, how, str(tmp_path / "out")]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])["outcome"]

    plain, hooked = outcome("plain"), outcome("hooked")
    assert hooked == plain
    if when == "before":
        assert hooked == "right"

    folder = CaptureFolder.open(tmp_path / "out")
    assert {folder.capture(record).kernel for record in folder.records} == {"cutlass_double"}
