"""What is captured of a compile by the CuTe DSL: kernels, PTX, cubins, options."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass
from cute_sessions import ADD, ARCH, DOUBLE, PLAIN_ADD, names

import tritonhook
from tritonhook.capture.cute import hooks, modules, rename
from tritonhook.capture.model import Stage
from tritonhook.cubin.image import Cubin


def test_a_compile_is_captured_whole(out: Path) -> None:
    with tritonhook.session(out) as session:
        function = kernels.compiled()
    (capture,) = session.captures
    assert (capture.kernel, capture.arch, capture.cache_hit, capture.note) == (ADD, ARCH, False, None)
    assert capture.ptx.entries == (ADD,)
    assert capture.ptx.target == ARCH
    assert capture.cubin == kernels.cubin_in(function)
    assert Cubin.from_bytes(capture.cubin).kernels == (ADD,)
    assert capture.options["cute_dsl"] == cutlass.__version__
    assert capture.options["opt_level"] == 3
    assert capture.metadata["front_end"] == "cute"
    assert capture.metadata["function"] == "add"
    assert capture.metadata["function_at"].startswith(kernels.__file__)
    assert capture.metadata["kernel_at"].startswith(kernels.__file__)
    assert "dump-ptx-path" not in capture.metadata["pipeline"]
    assert session.summary == f"tritonhook: 1 kernel seen, 0 from cache; captures in {out}"
    assert set(tritonhook.CaptureFolder.open(out).compile_us(session.records[0])) == {"trace", "pipeline"}


def test_the_ptxas_is_the_one_the_cubin_names(out: Path) -> None:
    with tritonhook.session(out) as session:
        kernels.compiled()
    (capture,) = session.captures
    assert capture.assembler.path is None
    assert capture.assembler.version == Cubin.from_bytes(capture.cubin).ptxas_version
    assert capture.assembler.version in capture.ptx.text  # libNVVM and ptxas come from one toolkit
    assert capture.assembler.arguments == ("-O3", f"--gpu-name={ARCH}")


@pytest.mark.parametrize(
    ("options", "arguments", "kept"),
    [
        ("--opt-level 1", ("-O1",), {"opt_level": 1}),
        ("--generate-line-info", ("-lineinfo", "-O3"), {"line_info": True}),
        ("--enable-assertions", ("-O3",), {"assertions": True}),
        ("--ptxas-options '-maxrregcount=64'", ("-maxrregcount", "64", "-O3"), {"ptxas_options": "-maxrregcount=64"}),
    ],
)
def test_options_are_kept(out: Path, options: str, arguments: tuple[str, ...], kept: dict[str, Any]) -> None:
    with tritonhook.session(out) as session:
        kernels.compiled(options=options)
    (capture,) = session.captures
    assert capture.assembler.options == arguments
    assert kept.items() <= capture.options.items()


def test_capturing_changes_nothing(out: Path) -> None:
    alone = kernels.compiled(kernels.both)
    with tritonhook.session(out):
        watched = kernels.compiled(kernels.both)
    assert kernels.cubin_in(watched) == kernels.cubin_in(alone)
    assert str(watched.ir_module) == str(alone.ir_module)
    assert watched.kernel_info == alone.kernel_info
    assert (watched.__ptx__, watched.__cubin__) == (None, None)


def test_what_the_user_keeps_stays_as_it_was(out: Path, tmp_path: Path) -> None:
    def kept(folder: Path) -> tuple[Any, ...]:
        folder.mkdir()
        function = kernels.compiled(options=f"--keep-ptx --keep-cubin --dump-dir={folder}")
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        return function.__ptx__, function.__cubin__, files

    alone = kept(tmp_path / "alone")
    with tritonhook.session(out) as session:
        watched = kept(tmp_path / "watched")
    assert watched == alone
    assert len(alone[2]) == 2
    (capture,) = session.captures
    assert capture.ptx.text == alone[0].rstrip("\0")
    assert capture.cubin == alone[1]


def test_two_kernels_of_one_module_are_two_captures(out: Path) -> None:
    with tritonhook.session(out) as session:
        kernels.compiled(kernels.both)
    assert sorted(c.kernel for c in session.captures) == sorted([ADD, DOUBLE])
    assert all(set(c.ptx.entries) == {ADD, DOUBLE} for c in session.captures)
    with tritonhook.session(out, only="double") as session:
        kernels.compiled(kernels.both)
    assert [c.kernel for c in session.captures] == [DOUBLE]


def test_the_tvm_ffi_path(out: Path) -> None:
    pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    alone = kernels.compiled(options="--enable-tvm-ffi")
    with tritonhook.session(out, strip=True) as session:
        function = kernels.compiled(options="--enable-tvm-ffi")
    assert names(alone) == [ADD]
    assert names(function) == [PLAIN_ADD]
    assert type(function) is type(alone)
    assert "__tvm_ffi_" in str(function.ir_module)
    assert session.captures[0].ptx.entries == (PLAIN_ADD,)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (rename, "wanted_names"),
        (rename, "substitute"),
        (modules, "places"),
        (modules, "cubins"),
        (modules, "assembler_of"),
        (hooks, "_folder"),
    ],
)
def test_errors_of_ours_are_reported_once_and_the_compile_goes_on(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: ModuleType, function: str
) -> None:
    def fail(*arguments: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(module, function, fail)
    with tritonhook.session(out, strip=True):
        for _ in range(2):
            assert kernels.kernels_in(kernels.compiled()) in ([ADD], [PLAIN_ADD])
    said = capsys.readouterr().err
    assert "ValueError: broken" in said
    assert len(said.splitlines()) == len(set(said.splitlines()))
    assert "Traceback" not in said


def test_a_full_disk_costs_the_capture_only(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    with tritonhook.session(out) as session:
        monkeypatch.setattr(session._writer, "add_files", full)
        assert names(kernels.compiled()) == [ADD]
    assert "No space left on device" in session.summary


def test_ptx_that_cannot_be_written_becomes_a_note(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the DSL reports no error if it cannot write
    plan = modules.Dump.of
    monkeypatch.setattr(modules.Dump, "of", lambda pipeline, folder: plan(pipeline, f"{folder}/nowhere"))
    with tritonhook.session(out) as session:
        assert names(kernels.compiled()) == [ADD]
    (capture,) = session.captures
    assert list(capture.artifacts) == [Stage.CUBIN]
    assert capture.note is not None
    assert "without PTX" in session.summary
