"""The linked toolkit that comes first on PATH under `tritonhook run`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_ptxas import make_ptxas, works

from tritonhook.capture.ptxas_wrapper.install import find_target, install
from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, path_environment


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """A toolkit with NVIDIA's folders, and with an nvcc.profile."""
    top = tmp_path / "cuda 13"
    ptxas = make_ptxas(top / "bin")
    for name in ("include", "nvvm"):
        (top / name).mkdir()
    (top / "bin" / "nvcc.profile").write_text("TOP = $(_HERE_)/..\nPATH += $(TOP)/nvvm/bin:$(_HERE_):\n")
    for name in ("nvcc", "cudafe++"):
        shutil.copy(ptxas, top / "bin" / name)
    return top


def test_the_toolkit_of_links(toolkit: Path, tmp_path: Path) -> None:
    home = WrapperHome(tmp_path / "wrappers" / "toolkits", sys.executable)
    other = tmp_path / "other"
    other.mkdir()
    base = {"PATH": f"{other}:{toolkit}/bin:/usr/bin", "A": "1"}
    environment = path_environment(base, home)
    first, linked, *rest = environment["PATH"].split(":")
    assert (first, rest) == (str(other), [f"{toolkit}/bin", "/usr/bin"])  # other folders keep their order
    bin_folder = Path(linked)
    assert {p.name for p in bin_folder.iterdir()} == {"nvcc", "ptxas", "cudafe++", "nvcc.profile"}
    assert (bin_folder / "nvcc").readlink() == toolkit / "bin" / "nvcc"
    assert {p.name for p in bin_folder.parent.iterdir()} == {"bin", "include", "nvvm"}
    profile = (bin_folder / "nvcc.profile").read_text()
    assert f"TOP = {toolkit}/bin/..\n" in profile  # the paths of headers and libraries stay
    assert profile.rstrip().endswith(f"PATH += {linked}:")
    assert works(bin_folder / "ptxas")
    # the copy is made once for all runs, also for a run within a run
    again = path_environment(environment, home)
    assert again["PATH"] == environment["PATH"]
    # after an upgrade a new copy is made
    os.utime(toolkit / "bin" / "ptxas", ns=(1, 1))
    assert path_environment(base, home)["PATH"] != environment["PATH"]


def test_an_installed_wrapper_is_not_wrapped_again(toolkit: Path, tmp_path: Path) -> None:
    target = find_target(str(toolkit / "bin"))
    install(target)
    home = WrapperHome(tmp_path / "wrappers" / "toolkits", sys.executable)
    environment = path_environment({"PATH": f"{toolkit}/bin"}, home)
    script = Path(environment["PATH"].split(":")[0], "ptxas").read_text()
    assert f"real='{target.real}'" in script
    assert not Path(environment["PATH"].split(":")[0], "ptxas.real").exists()


def test_an_nvcc_that_is_a_script_says_where_its_toolkit_is(toolkit: Path, tmp_path: Path) -> None:
    front = tmp_path / "usr" / "bin"
    front.mkdir(parents=True)
    (front / "nvcc").write_text(f'#!/bin/sh\necho "#$ _HERE_={toolkit}/bin" >&2\n')
    (front / "nvcc").chmod(0o755)
    home = WrapperHome(tmp_path / "wrappers" / "toolkits", sys.executable)
    path = path_environment({"PATH": str(front)}, home)["PATH"].split(":")
    assert path[1] == str(front)
    assert (Path(path[0]) / "cudafe++").exists()


def test_a_path_without_cuda_stays(tmp_path: Path) -> None:
    home = WrapperHome(tmp_path / "wrappers" / "toolkits", sys.executable)
    assert path_environment({"PATH": f"{tmp_path}::/none"}, home)["PATH"] == f"{tmp_path}::/none"


def test_a_cache_that_cannot_be_written_costs_the_wrapper_only(toolkit: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = WrapperHome(tmp_path / "file" / "toolkits", sys.executable)
    assert path_environment({"PATH": f"{toolkit}/bin"}, home)["PATH"] == f"{toolkit}/bin"


def test_tileiras_meets_the_linked_toolkit_unless_the_user_names_one(toolkit: Path, tmp_path: Path) -> None:
    shows = make_ptxas(tmp_path / "x", '#!/bin/sh\necho "$CUDA_ROOT"\n')
    shutil.copy(shows, toolkit / "bin" / "tileiras")
    home = WrapperHome(tmp_path / "wrappers" / "toolkits", sys.executable)
    linked = Path(path_environment({"PATH": f"{toolkit}/bin"}, home)["PATH"].split(":")[0])

    def root(**environment: str) -> str:
        return subprocess.run([str(linked / "tileiras")], env=environment, capture_output=True, text=True).stdout

    assert root() == f"{linked.parent}\n"
    assert root(CUDA_HOME=str(toolkit)) == f"{linked.parent}\n"
    assert root(CUDA_HOME="/opt/other") == "\n"
    assert root(CUDA_ROOT="/opt/other") == "/opt/other\n"
