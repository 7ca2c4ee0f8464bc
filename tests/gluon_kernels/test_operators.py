"""Which kernel computes an operator on which GPU, and the command line where there is none."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gluon_kernels.operators import attention, kernels_for

ROOT = Path(__file__).parents[2]


def test_every_architecture_has_its_kernels_fastest_first():
    assert kernels_for(80) == kernels_for(120) == kernels_for(121) == ("attention_mma",)
    assert kernels_for(90) == ("attention_hopper", "attention_mma")
    assert kernels_for(100) == kernels_for(103) == ("attention_blackwell",)
    with pytest.raises(ValueError, match="sm_75: there are kernels for sm_80, sm_90"):
        kernels_for(75)


def test_a_tensor_that_is_not_on_a_gpu_is_named():
    pytest.importorskip("torch", reason="needs torch")
    q = SimpleNamespace(device=SimpleNamespace(type="cpu", __str__=lambda self: "cpu"))
    with pytest.raises(ValueError, match="the kernels run on CUDA devices"):
        attention(q, q, q)


@pytest.mark.parametrize("verb", ["check", "bench", "tune"])
def test_without_a_gpu_the_command_says_so_in_one_sentence(verb):
    environment = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-m", "gluon_kernels", verb], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"python -m gluon_kernels {verb}: needs" in done.stderr
