"""`tritonhook emulate script.py --configs`: faults of a script's kernels with several num_stages and num_warps."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
pytest.importorskip("triton", minversion="3.6")

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def both(a, b, c, s, K, B: tl.constexpr, BK: tl.constexpr):  # triton#6691
    r, k = tl.arange(0, B), tl.arange(0, BK)
    acc, total = tl.zeros((B, B), tl.float32), tl.zeros((B,), tl.float32)
    for first in range(0, K, BK):
        at = tl.trans(tl.load(a + (first + k)[:, None] * B + r[None, :]))
        acc = tl.dot(at, tl.load(b + (first + k)[:, None] * B + r[None, :]), acc)
        total += tl.sum(at.to(tl.float32), 1)
    tl.store(c + r[:, None] * B + r[None, :], acc)
    tl.store(s + r, total)

a, c = torch.randn(128, 64, device="cuda").half(), torch.empty(64, 64, device="cuda")
for _ in range(2):
    both[(1,)](a, a, c, torch.empty(64, device="cuda"), 128, 64, 32)
"""


def emulated(folder, *words):
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "tritonhook", "emulate", "script.py", *words, "--json"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1500)


@pytest.mark.nightly
def test_a_race_that_the_compiler_made_is_found_in_the_configurations_that_have_it(tmp_path):
    done = emulated(tmp_path, "--configs", "--arch", "sm_90a")
    assert done.returncode == 1, done.stderr
    kernels = {one["kernel"]: one for one in json.loads(done.stdout)["kernels"]}
    assert len(kernels) == 17 and not any(one["reason"] for one in kernels.values())  # of the first launch only
    faulty = {name for name, one in kernels.items() if one["faults"]}
    assert {f"both[num_stages={n}, num_warps=4]" for n in (2, 3)} <= faulty
    assert not any("num_stages=1" in name for name in faulty)
    text = kernels["both[num_stages=2, num_warps=4]"]["faults"][0]["text"]
    assert "script.py:10, script.py:9" in text and text.endswith("try num_stages=1")


def test_a_script_needs_configs(tmp_path):
    done = emulated(tmp_path)
    assert done.returncode == 2 and "write `emulate SCRIPT.py --configs`" in done.stderr
