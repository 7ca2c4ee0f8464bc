"""Questions that have no answer are errors that say why; each of these once ended with 0 and an empty answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import failing

from tritonhook.cli import main
from tritonhook.errors import ToolError
from tritonhook.ptxas import install
from tritonhook.ptxas.tool import find_ptxas


def test_a_probe_for_an_architecture_that_no_ptxas_knows(plain: Path, capsys: pytest.CaptureFixture) -> None:
    error = failing(capsys, "lab", "probe", str(plain), "--arch", "sm_999")
    assert f"sm_999: not a target of ptxas {find_ptxas().version}; give one of sm_" in error and "sm_90a" in error


def test_a_rename_of_a_module_without_a_kernel(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source, out = tmp_path / "functions.ptx", tmp_path / "out.ptx"
    source.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .func f() { ret; }\n")
    for how in (("--prefix", "x_"), ("--rewrite", "mma-throughput")):
        error = failing(capsys, "rename", str(source), *how, "-o", str(out))
        assert "functions.ptx: no kernel (.entry) in it" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("only", "groups"), [("TMA", {"TMA", "warp and sync"}), ("tma", {"TMA", "warp and sync"}), ("trix", {"matrix"})]
)
def test_a_probe_of_instructions_begins_with_the_word_asked_for(
    only: str, groups: set[str], capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path))
    assert main(["lab", "caps", "--only", only, "--arch", "sm_90a", "--json"]) == 0
    (version,) = json.loads(capsys.readouterr().out)["ptxas"].values()
    assert {probe.partition(":")[0] for probe in version["cells"]} == groups


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package index with three versions, and pip's answer for any other."""
    released = {"nvidia-cuda-nvcc": ["13.5.37"], "nvidia-cuda-nvcc-cu12": ["12.8.93", "12.9.86"]}
    monkeypatch.setattr(install, "_listed", lambda package: (released.get(package, []), "none"))

    def download(requirement: str, folder: Path) -> Path:
        raise ToolError(f"{requirement}: pip could not fetch it: ERROR: No matching distribution found")

    monkeypatch.setattr(install, "_download", download)


def test_a_version_that_does_not_exist_lists_all_that_do(index: None, capsys: pytest.CaptureFixture) -> None:
    error = failing(capsys, "ptxas", "add", "99.9.9")
    assert error.endswith("ptxas 99.9.9: no such version. There are: 13.5.37, 12.9.86, 12.8.93")


def test_what_can_be_fetched_is_listed(index: None, capsys: pytest.CaptureFixture) -> None:
    assert main(["ptxas", "list", "--available", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["available"] == ["13.5.37", "12.9.86", "12.8.93"]
    assert main(["ptxas", "list", "--available"]) == 0
    shown = capsys.readouterr().out
    assert "Versions that `tritonhook ptxas add VERSION` can fetch" in shown
    assert ["12.9", "12.9.86"] in [line.split()[:2] for line in shown.splitlines()]
    assert main(["ptxas", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["available"] is None


def test_an_index_that_cannot_be_reached_is_no_empty_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(install, "_listed", lambda package: ([], "connection refused"))
    assert "could not list the versions of ptxas: connection refused" in failing(capsys, "ptxas", "list", "--available")
