"""PTX and machine code give the bits that an H100 stored."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from h100 import code_of, kernels, launch_of, stored  # noqa: E402

from tritonhook.emulate.run import Run, run_code, run_ptx  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402


@pytest.mark.parametrize("form", ["ptx", "sass"])
@pytest.mark.parametrize("name", kernels())
def test_gives_the_h100s_bits(name, form):
    one = kernels()[name]
    launch, given = launch_of(one)
    run = Run(launch, range(int(np.prod(launch.grid))))
    ran = run_ptx(Ptx(one["ptx"]), run, given) if form == "ptx" else run_code(code_of(one), run, given)
    for buffer, wanted in stored(one).items():
        found = np.frombuffer(ran.contents[buffer], np.uint16)
        differ = np.flatnonzero(found != np.frombuffer(wanted, np.uint16))
        assert not differ.size, (buffer, differ[:8])
