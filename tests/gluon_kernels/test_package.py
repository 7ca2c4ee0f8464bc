"""What importing the package loads, and the short paths of the kernels."""

import importlib
import subprocess
import sys

import pytest


def test_importing_the_package_loads_neither_triton_nor_torch():
    code = "import sys, gluon_kernels as g; g.AttentionConfig().why_not(100); g.compile_offline; g.__all__; "
    code += "sys.exit('triton' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("kernel", ["blackwell", "hopper", "mma"])
def test_the_short_paths_have_the_kernels(kernel):
    pytest.importorskip("triton", reason="needs triton")
    short = importlib.import_module(f"gluon_kernels.attention_{kernel}")
    assert short.attention is importlib.import_module(f"gluon_kernels.{kernel}.launch").attention
    with pytest.raises(ValueError, match=f"{kernel} attention on sm_75: arch 75"):
        short.compile_offline(arch=75)
