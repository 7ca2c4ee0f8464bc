"""Which PTX ISA version a ptxas reads."""

from __future__ import annotations

import pytest

from tritonhook.ptx.module import Ptx
from tritonhook.ptx.retarget import newest_version
from tritonhook.ptxas.assembler import Assembled
from tritonhook.ptxas.toolchain import Toolchain


@pytest.mark.parametrize(
    ("ptxas", "newest"),
    [
        *[("11.8.89", "7.8"), ("12.0.140", "8.0"), ("12.4.131", "8.4"), ("12.5.82", "8.5"), ("12.6.85", "8.5")],
        *[("12.8.93", "8.7"), ("12.9.86", "8.8"), ("13.0.88", "9.0"), ("13.5.37", "9.5")],
    ],
)
def test_the_newest_version_that_a_ptxas_reads(ptxas: str, newest: str) -> None:
    assert newest_version(ptxas) == newest


def test_ptxas_itself_agrees(tools: Toolchain) -> None:
    def assembles(version: str) -> bool:
        text = f".version {version}\n.target sm_80\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
        return isinstance(tools.assemble(Ptx(text)), Assembled)

    newest = newest_version(tools.ptxas.version)
    major, minor = newest.split(".")
    assert assembles(newest)
    assert not assembles(f"{major}.{int(minor) + 1}")
