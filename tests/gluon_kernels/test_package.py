"""What importing the package loads, and the short paths of the kernels."""

import subprocess
import sys


def test_importing_the_package_loads_neither_triton_nor_torch():
    code = "import sys, gluon_kernels as g; g.AttentionConfig().why_not(100); g.compile_offline; g.__all__; "
    code += "sys.exit('triton' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
