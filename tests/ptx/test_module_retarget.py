"""Another architecture and PTX ISA version for a module, and which version a ptxas reads."""

from __future__ import annotations

import pytest
from ptx_modules import module

from tritonhook.ptx.module import Ptx, lowered_for, newest_version, version_for
from tritonhook.ptxas.toolchain import Assembled, Toolchain


@pytest.mark.parametrize(
    ("ptxas", "newest"),
    [
        *[("11.8.89", "7.8"), ("12.0.140", "8.0"), ("12.4.131", "8.4"), ("12.5.82", "8.5"), ("12.6.85", "8.5")],
        *[("12.8.93", "8.7"), ("12.9.86", "8.8"), ("13.0.88", "9.0"), ("13.5.37", "9.5")],
    ],
)
def test_the_newest_version_that_a_ptxas_reads(ptxas: str, newest: str) -> None:
    assert newest_version(ptxas) == newest


@pytest.mark.parametrize(
    ("own", "arch", "newest", "version"),
    [
        ("8.0", "sm_120", None, "8.7"),  # the first that has the architecture
        ("9.0", "sm_120", None, "9.0"),  # newer already
        ("10.0", "sm_120", None, "10.0"),
        ("8.0", "sm_999", None, "8.0"),  # an architecture of the future
        ("8.0", "sm_120", "9.5", "8.7"),
        ("9.2", "sm_80", "8.5", "8.5"),  # an older ptxas
        ("10.0", "sm_80", "9.5", "9.5"),
    ],
)
def test_the_version_that_a_module_needs(own: str, arch: str, newest: str | None, version: str) -> None:
    assert version_for(own, arch, newest) == version


def test_a_retargeted_module_differs_in_two_directives() -> None:
    before = module("k")
    after = before.with_directives("8.8", "sm_120a")
    assert after.text == before.text.replace("sm_90a", "sm_120a").replace("8.7", "8.8")
    assert after.with_directives("8.8", "sm_120a") is after


@pytest.mark.parametrize(("ptxas", "version"), [("12.5.82", "8.5"), ("12.8.93", "8.7"), ("13.0.88", "8.7")])
def test_a_module_is_lowered_to_what_a_ptxas_reads(ptxas: str, version: str) -> None:
    assert lowered_for(module("k"), ptxas) == Ptx(module("k").text.replace("8.7", version))


def test_ptxas_itself_agrees(tools: Toolchain) -> None:
    def assembles(version: str) -> bool:
        text = f".version {version}\n.target sm_80\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
        return isinstance(tools.assemble(Ptx(text)), Assembled)

    newest = newest_version(tools.ptxas.version)
    major, minor = newest.split(".")
    assert assembles(newest)
    assert not assembles(f"{major}.{int(minor) + 1}")
