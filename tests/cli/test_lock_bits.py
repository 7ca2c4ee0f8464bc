"""`tritonhook lock --bits` and `check --fail-on bits`: which kernels store something else after a change."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")
pytest.importorskip("triton", minversion="3.6")

from tritonhook.cli import main

SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def total(x, y, B: tl.constexpr, TWICE: tl.constexpr):
    values = tl.load(x + tl.arange(0, B))
    tl.store(y, tl.sum(values, 0) if TWICE else tl.sum(values, 0))

total[(1,)](torch.randn(1024, device="cuda"), torch.zeros(1, device="cuda"), 1024, 0, num_warps=4)
"""


def test_only_other_bits_fail(tmp_path, triton_cache, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def ran(*words: str, status: int = 0) -> str:
        code, said = main([*words]), "".join(capsys.readouterr())
        assert code == status, said
        return " ".join(said.split())

    script, at = tmp_path / "script.py", ("script.py", "--arch", "sm_90a")
    script.write_text(SCRIPT)
    ran("lock", *at, "--bits")
    script.write_text(SCRIPT.replace("tl.sum(values, 0)\n", "tl.sum(values, 0) * 1.0\n"))
    ran("check", *at, "--fail-on", "bits")
    assert "give captures with launches" in ran("check", "--fail-on", "bits", status=2)
    script.write_text(SCRIPT.replace("tl.load(x + tl.arange(0, B))", "tl.load(x + tl.arange(0, B)) * 1.1"))
    said = ran("check", *at, "--fail-on", "bits", status=1)
    assert "total sm_90a" in said and "stores other bits, changed by" in said and "1 of 1 elements, by up to" in said
