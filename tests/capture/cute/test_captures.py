"""Captured CuTe kernels in the verbs show, diff and ab."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass

import tritonhook
from tritonhook.cli import main
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, ToolError
from tritonhook.ptxas.toolchain import find_toolchain


@pytest.fixture
def captured(out: Path) -> Path:
    with tritonhook.session(out), contextlib.suppress(CaptureError):
        kernels.compiled(kernels.loop, cutlass.Int32(9))
    with tritonhook.session(out, strip=True):
        kernels.compiled(kernels.loop, cutlass.Int32(9))
    return out


def test_show_and_diff(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(captured)]) == 0
    assert "13." in capsys.readouterr().out
    plain, stripped = sorted((captured / "kernels").iterdir(), key=lambda p: "cutlass" not in p.name)
    assert main(["show", str(plain)]) == 0
    shown = capsys.readouterr().out
    assert "front end" in shown
    assert "Triton hash" not in shown
    assert main(["diff", str(plain), str(stripped), "--json", "--no-control"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)


def test_the_same_ptxas_outside_the_dsl_gives_the_same_code(captured: Path) -> None:
    for capture in tritonhook.CaptureFolder.open(captured).records:
        kept = tritonhook.CaptureFolder.open(captured).capture(capture)
        assert kept.assembler.version is not None
        assert kept.assembler.options is not None
        try:
            toolchain = find_toolchain(kept.assembler.version)
        except ToolError as error:
            pytest.skip(f"needs ptxas {kept.assembler.version}: {error}")
        again = toolchain.assemble_or_raise(kept.ptx, kept.assembler.options).cubin
        before = {(s.name, s.data) for s in Cubin.from_bytes(kept.cubin).sections}
        different = {name for name, _ in before ^ {(s.name, s.data) for s in again.sections}}
        # the note holds the build of the tool, and its option -v
        assert different <= {".note.nv.tkinfo"}


def test_ab(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = next(path for path in (captured / "kernels").iterdir() if "cutlass" in path.name)
    version = tritonhook.CaptureFolder.open(captured).capture(plain.name).assembler.version
    try:
        find_toolchain(version)
    except ToolError as error:
        pytest.skip(f"needs ptxas {version}: {error}")
    code = main(["diff", str(plain), "--strip", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert document["ptxas"]["version"] == version
