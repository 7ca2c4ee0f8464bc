"""`tritonhook.emulate` by itself: the example of docs/reference/python.md, and that kernel from its machine code."""

from __future__ import annotations

import pytest
from repository import ROOT

np = pytest.importorskip("numpy")

from tritonhook.emulate.run import run_code  # noqa: E402
from tritonhook.emulate.sass.kernel import read_sass_kernel  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402
from tritonhook.ptxas.toolchain import Assembled, assemble, find_toolchain  # noqa: E402


def test_the_example_of_the_reference():
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    (code,) = (block for block in page.split("```python\n")[1:] if "run_ptx" in block)
    names: dict = {}
    exec(code.partition("```")[0], names)
    tools = find_toolchain()
    made = assemble(tools.ptxas, Ptx(names["PTX"]), [])
    assert isinstance(made, Assembled)
    kernel = read_sass_kernel(made.cubin, tools.disassemble(made.cubin)["twice"])
    run = names["Run"](names["launch"], ctas=range(1))
    assert run_code(kernel, run, [names["x"].tobytes()]).contents == (names["stored"],)
