"""Captured CuTe kernels in the verbs show, diff and ab."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass
from cute_sessions import ADD, PLAIN_ADD

import tritonhook
from tritonhook.cli import main
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, ToolError
from tritonhook.ptxas.toolchain import find_toolchain
from tritonhook.rename import Rename
from tritonhook.timing.plan import Plan
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
from tritonhook.timing.variant import Variant


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


def test_the_time_of_each_stage_is_kept(captured: Path) -> None:
    folder = tritonhook.CaptureFolder.open(captured)
    for times in map(folder.compile_us, folder.records):
        assert set(times) == {"trace", "pipeline"} and min(times.values()) > 0


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


def test_the_sides_of_a_timed_comparison(out: Path) -> None:
    """The candidate has "cutlass" removed from its name. The control has "cutlasz" instead, which is as long."""
    rename = Rename(strip="cutlass")
    plan = Plan("m:f", out, rename)
    sides = {
        name: Variant(name, plan, list, rewrites)
        for name, rewrites in ((REFERENCE, ()), (CANDIDATE, (rename,)), (CONTROL, (plan.control,)))
    }
    for side in sides.values():
        with side.active():
            kernels.compiled()
    names = {name: [capture.kernel for capture in side.session.captures] for name, side in sides.items()}
    assert names == {REFERENCE: [ADD], CANDIDATE: [PLAIN_ADD], CONTROL: [ADD.replace("cutlass", "cutlasz")]}
    assert {name: list(side.kernels()) for name, side in sides.items()} == {side: [ADD] for side in sides}
    assert [note for side in sides.values() for note in side.session.notes] == []
