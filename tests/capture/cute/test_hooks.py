"""Capturing and renaming CuTe DSL kernels. `make test-cute` runs these in an environment that has the DSL."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

os.environ.setdefault("CUTE_DSL_ARCH", "sm_120a")  # read when cutlass is imported; there is no GPU to ask
pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass
from cutlass.base_dsl.cache_helpers import JitCacheDict
from cutlass.base_dsl.compiler import Compiler
from cutlass.base_dsl.dsl import BaseDSL
from cutlass.base_dsl.export.external_binary_module import ExternalBinaryModule
from repository import ROOT, SUPPORT

import tritonhook
from tritonhook.capture.cute import hooks, modules, rename, state
from tritonhook.capture.model import Stage
from tritonhook.cli import main
from tritonhook.cubin.image import Cubin
from tritonhook.errors import CaptureError, ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import find_toolchain
from tritonhook.rename import Rename
from tritonhook.timing.plan import Plan
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
from tritonhook.timing.variant import Variant

ARCH = os.environ["CUTE_DSL_ARCH"]
ADD = "kernel_cutlass_add_kernel_tensorptrf32gmemo1281_tensorptrf32gmemo1281_0"
DOUBLE = "kernel_cutlass_double_kernel_tensorptrf32gmemo1281_tensorptrf32gmemo1281_1"
PLAIN_ADD = ADD.replace("cutlass_", "")
RELEASE = tuple(int(part) for part in cutlass.__version__.split(".")[:3])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working folder in which nothing may appear, caches of our own, and no session left behind."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield
    assert state.attached == ()
    assert list(folder.iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def dsl_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The DSL's caches, empty: the folder, and what this process holds."""
    monkeypatch.setattr("cutlass.base_dsl.cache_helpers.default_generated_ir_path", str(tmp_path / "dsl"))
    monkeypatch.setenv("CUTE_DSL_CACHE_DIR", str(tmp_path / "dsl"))
    (tmp_path / "dsl").mkdir()
    forget_in_memory()
    return tmp_path / "dsl"


def forget_in_memory() -> None:
    cutlass.cutlass_dsl.CuTeDSL._get_dsl().jit_cache.clear()


def names(function: Any) -> list[str]:
    """The kernels a compiled function has; the host must ask for exactly these."""
    assert kernels.asked_for(function) == kernels.kernels_in(function)
    return kernels.kernels_in(function)


# --- capturing -----------------------------------------------------------------------------------


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


# --- renaming ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"strip": True}, PLAIN_ADD),
        ({"rename": "cutlass_"}, f"cutlass_{ADD}"),
        ({"rename": {ADD: "kernel_x"}}, "kernel_x"),
        ({"rename": "x_", "only": "add"}, f"x_{ADD}"),
        ({"rename": "x_", "only": "other"}, ADD),
        ({"rename": {"other": "add"}}, ADD),
        ({"rename": tritonhook.Rename(prefix="x_", entry=ADD)}, f"x_{ADD}"),
        ({"rename": tritonhook.Rename(prefix="x_", entry="other")}, ADD),
    ],
)
def test_the_host_asks_for_the_new_name(out: Path, wish: dict[str, Any], expected: str) -> None:
    with tritonhook.session(out, **wish) as session:
        function = kernels.compiled()
    assert names(function) == [expected]
    assert list(function.kernel_info) == [expected]
    for capture in session.captures:
        assert capture.kernel == expected
        assert capture.ptx.entries == (expected,)
        assert Cubin.from_bytes(capture.cubin).kernels == (expected,)
        assert capture.rewritten_from == (None if expected == ADD else ADD)
    assert len(session.captures) == (0 if wish.get("only") == "other" else 1)


@pytest.mark.skipif(RELEASE < (4, 6, 2), reason=f"CuTe DSL {cutlass.__version__} has no remove_cutlass_symbol")
def test_strip_gives_what_the_dsls_own_naming_gives(out: Path, tmp_path: Path) -> None:
    # given the kernel compiled under the name that the DSL's own API takes "cutlass" out of
    kernels.add_kernel.set_name_prefix("", remove_cutlass_symbol=True)
    try:
        with tritonhook.session(tmp_path / "own") as own:
            kernels.compiled()
    finally:
        kernels.add_kernel.set_name_prefix("")
    with tritonhook.session(out, strip=True) as ours:
        kernels.compiled()
    (expected,), (capture,) = own.captures, ours.captures
    assert capture.kernel == expected.kernel
    assert capture.ptx.text == expected.ptx.text
    assert capture.cubin == expected.cubin
    # and nothing global is left: the next compile has the DSL's usual name
    assert names(kernels.compiled()) == [ADD]


def without_comments(ptx: Ptx) -> list[str]:
    return [line for line in ptx.text.splitlines() if not line.lstrip().startswith("//")]


def test_a_rename_is_the_rename_of_the_ptx(out: Path, tmp_path: Path) -> None:
    with tritonhook.session(tmp_path / "plain") as plain:
        kernels.compiled(kernels.loop, cutlass.Int32(9))
    with tritonhook.session(out, strip=True) as stripped:
        kernels.compiled(kernels.loop, cutlass.Int32(9))
    (before,), (after,) = plain.captures, stripped.captures
    renamed = tritonhook.Rename(strip="cutlass").apply(before.ptx)
    # the comment `// .globl NAME` is the one line that a rename of the text leaves alone
    assert without_comments(after.ptx) == without_comments(renamed)
    assert without_comments(after.ptx) != without_comments(before.ptx)


def test_each_kernel_of_a_module_gets_its_name(out: Path) -> None:
    with tritonhook.session(out, rename="x_", only="double"):
        assert names(kernels.compiled(kernels.both)) == sorted([ADD, f"x_{DOUBLE}"])
    with tritonhook.session(out, strip=True):
        assert names(kernels.compiled(kernels.both)) == sorted([PLAIN_ADD, DOUBLE.replace("cutlass_", "")])
    assert names(kernels.compiled(kernels.both)) == sorted([ADD, DOUBLE])


def test_nested_sessions_rename_one_after_the_other(out: Path, tmp_path: Path) -> None:
    with (
        tritonhook.session(out, rename="a_") as outer,
        tritonhook.session(tmp_path / "inner", rename="b_", strip=True) as inner,
    ):
        assert names(kernels.compiled()) == [f"b_a_{PLAIN_ADD}"]
    for session in (outer, inner):
        assert [(c.kernel, c.rewritten_from) for c in session.captures] == [(f"b_a_{PLAIN_ADD}", ADD)]


def test_a_name_that_is_taken_is_not_given(out: Path) -> None:
    with tritonhook.session(out, rename={DOUBLE: ADD}) as session:
        assert names(kernels.compiled(kernels.both)) == sorted([ADD, DOUBLE])
    assert f"{DOUBLE} keeps its name: '{ADD}' is taken" in session.summary


class Other:
    """A rewrite of PTX: the DSL's ptxas has its PTX from nobody but the DSL."""

    key = "other"

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx


def test_other_rewrites_are_refused_in_a_sentence(out: Path) -> None:
    with tritonhook.session(out, rewrites=Other()) as session:
        assert names(kernels.compiled()) == [ADD]
    assert "Other: CuTe kernels can be renamed, but not be rewritten in other ways" in session.summary


# --- where a rename does not work ----------------------------------------------------------------


def forgetful(host_only: bool) -> Callable[..., None]:
    """A substitution that leaves out the host code's symbols, or only the kernels' own."""

    def substitute(module: Any, new_names: dict[str, str]) -> None:
        for operation in modules.kernel_ops(module):
            if not host_only:
                operation.attributes["sym_name"] = cutlass._mlir.ir.StringAttr.get(
                    new_names[modules.name_of(operation)], module.context
                )

    return substitute


@pytest.mark.parametrize("host_only", [True, False])
def test_a_kernel_the_host_would_not_find_keeps_its_name(
    out: Path, monkeypatch: pytest.MonkeyPatch, host_only: bool
) -> None:
    alone = kernels.compiled()
    monkeypatch.setattr(rename, "substitute", forgetful(host_only))
    with tritonhook.session(out, strip=True) as session:
        function = kernels.compiled()
    assert names(function) == [ADD]
    assert str(function.ir_module) == str(alone.ir_module)
    assert function.kernel_info == alone.kernel_info
    assert session.summary.count("keeps its name") == 1
    assert [(c.kernel, c.rewritten_from) for c in session.captures] == [(ADD, None)]


def test_the_names_the_host_asks_for_are_compared(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a compiled module in which one lookup still has the old name
    strings = modules.strings
    monkeypatch.setattr(
        modules,
        "strings",
        lambda module, kind="llvm.mlir.global": [*strings(module, kind), f"{ADD}\0".encode()],
    )
    with tritonhook.session(out, strip=True) as session:
        assert names(kernels.compiled()) == [ADD]
    assert f"{ADD} keeps its name, not {PLAIN_ADD}: the host code still asks for {ADD}" in session.summary


def test_the_tvm_ffi_entry_is_there_after_a_second_compile(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    alone = kernels.compiled(options="--enable-tvm-ffi")
    monkeypatch.setattr(rename, "substitute", forgetful(host_only=True))
    with tritonhook.session(out, strip=True):
        function = kernels.compiled(options="--enable-tvm-ffi")
    # MLIR numbers types of equal name within a context, which has seen one more of them by now
    texts = [re.sub(r'"(\w+)\.\d+"', r'"\1"', str(f.ir_module)) for f in (function, alone)]
    assert texts[0] == texts[1]
    assert "__tvm_ffi_" in texts[0]
    assert type(function) is type(alone)


def test_a_compile_that_fails_under_the_new_name_is_done_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a DSL that cannot compile a kernel of that name, and leaves the module half lowered
    original = Compiler.compile
    tried: list[bool] = []

    def fails(self: Any, module: Any, *arguments: Any, **options: Any) -> Any:
        tried.append("x_kernel" in str(module))
        result = original(self, module, *arguments, **options)
        if tried[-1]:
            raise RuntimeError("PTXAS_ERROR")
        return result

    monkeypatch.setattr(Compiler, "compile", fails)
    with tritonhook.session(out, rename="x_") as session:
        function = kernels.compiled()
    assert tried == [True, False]
    assert names(function) == [ADD]
    assert "the DSL does not compile it under that name (RuntimeError)" in session.summary


def test_a_compile_that_fails_anyway_fails_as_without_us(out: Path) -> None:
    wrong = "--ptxas-options '--no-such-option'"
    with pytest.raises(Exception) as alone:
        kernels.compiled(options=wrong)
    for wish in ({}, {"strip": True}):
        with tritonhook.session(out, **wish) as session, pytest.raises(type(alone.value)) as watched:  # type: ignore[arg-type]
            kernels.compiled(options=wrong)
        assert str(watched.value) == str(alone.value)
        assert session.captures == ()


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (rename, "wanted_names"),
        (rename, "substitute"),
        (modules, "places"),
        (modules, "cubins"),
        (modules, "_assembler"),
        (hooks, "_folder"),
    ],
)
def test_errors_of_ours_are_said_once_and_the_compile_goes_on(
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


def test_ptx_that_cannot_be_written_is_missed_in_a_sentence(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the DSL says nothing where it cannot write
    plan = modules.Dump.of
    monkeypatch.setattr(modules.Dump, "of", lambda pipeline, folder: plan(pipeline, f"{folder}/nowhere"))
    with tritonhook.session(out) as session:
        assert names(kernels.compiled()) == [ADD]
    (capture,) = session.captures
    assert list(capture.artifacts) == [Stage.CUBIN]
    assert capture.note is not None
    assert "no PTX" in session.summary


# --- the DSL's caches ----------------------------------------------------------------------------

POINTERS = "kernel_cutlass_add_kernel_tensorptrf32gmemalign16o1281_tensorptrf32gmemalign16o1281_0"


def test_a_kernel_from_the_file_cache_is_seen(out: Path, dsl_cache: Path) -> None:
    kernels.called()
    assert list(dsl_cache.glob("*.mlir"))
    forget_in_memory()
    with tritonhook.session(out) as session:
        function = kernels.called()
    (capture,) = session.captures
    assert (capture.kernel, capture.cache_hit, capture.binary_only) == (POINTERS, True, True)
    assert capture.cubin == kernels.cubin_in(function)
    assert capture.note == "from the CuTe DSL's cache, which keeps no PTX"
    assert session.summary.splitlines()[1:] == [
        "  1 CuTe kernel ran from a cache or an exported object that kept no PTX: the cubin is all there is"
    ]


def test_a_kernel_from_memory_is_seen(out: Path, dsl_cache: Path) -> None:
    kernels.called()
    with tritonhook.session(out) as session:
        kernels.called()
        kernels.called()
    assert [(c.kernel, c.cache_hit) for c in session.captures] == [(POINTERS, True)]


def test_a_hit_finds_the_ptx_of_an_earlier_capture(out: Path, dsl_cache: Path) -> None:
    with tritonhook.session(out) as session:
        kernels.called()
        kernels.called()
    assert [(c.cache_hit, c.binary_only) for c in session.captures] == [(False, False)]
    forget_in_memory()
    with tritonhook.session(out) as session:
        kernels.called()
    (capture,) = session.captures
    assert capture.cache_hit is True
    assert capture.ptx.entries == (POINTERS,)
    assert "no PTX" not in session.summary
    assert len(list((out / "kernels").iterdir())) == 1


@pytest.mark.parametrize("in_memory", [True, False])
def test_caches_stay_clean(out: Path, dsl_cache: Path, in_memory: bool) -> None:
    def in_turn(**wish: Any) -> list[str]:
        if not in_memory:
            forget_in_memory()
        with tritonhook.session(out, **wish) as session:
            found = names(kernels.called())
        assert [c.kernel for c in session.captures] == found
        return found

    stripped = POINTERS.replace("cutlass_", "")
    for _ in range(2):  # the second time all come from caches
        assert in_turn() == [POINTERS]
        assert in_turn(strip=True) == [stripped]
        assert in_turn(rename="x_") == [f"x_{POINTERS}"]
        assert in_turn() == [POINTERS]
    assert names(kernels.called()) == [POINTERS]
    assert len(list(dsl_cache.glob("*.mlir"))) == 3


def test_a_renamed_kernel_from_cache_still_knows_its_name(out: Path, dsl_cache: Path, tmp_path: Path) -> None:
    with tritonhook.session(out, strip=True):
        kernels.called()
    forget_in_memory()
    with tritonhook.session(tmp_path / "second", strip=True) as session:
        kernels.called()
    (capture,) = session.captures
    assert (capture.cache_hit, capture.rewritten_from) == (True, POINTERS)


@pytest.mark.parametrize("wish", [{}, {"rewrites": Other()}])
def test_what_renames_nothing_takes_from_the_users_cache(out: Path, dsl_cache: Path, wish: dict[str, Any]) -> None:
    kernels.called()
    before = {path.name for path in dsl_cache.iterdir()}
    forget_in_memory()
    with tritonhook.session(out, **wish):
        kernels.called()
    assert {path.name for path in dsl_cache.iterdir()} == before


# --- exported objects ----------------------------------------------------------------------------


def exported(folder: Path, **wish: Any) -> tuple[Path, Any]:
    with tritonhook.session(folder / "made", **wish) as session:
        function = kernels.compiled()
        (folder / "object").mkdir()
        function.export_to_c(file_path=str(folder / "object"), file_name="add", function_prefix="add")
    return folder / "object" / "add.o", session


def test_kernels_of_an_exported_object_are_seen(out: Path, tmp_path: Path) -> None:
    path, made = exported(tmp_path)
    with tritonhook.session(out) as session:
        loaded = cutlass.cute.runtime.load_module(str(path))
        assert loaded.add is not None
    (capture,) = session.captures
    assert (capture.kernel, capture.binary_only, capture.cache_hit) == (ADD, True, True)
    assert capture.cubin == made.captures[0].cubin
    assert capture.note == f"from the exported object {path}, which holds no PTX"
    assert "kept no PTX" in session.summary
    assert "was exported" not in made.summary


def test_an_exported_object_keeps_its_names(out: Path, tmp_path: Path) -> None:
    path, _ = exported(tmp_path)
    with tritonhook.session(out, strip=True) as session:
        cutlass.cute.runtime.load_module(str(path))
    assert f"{ADD} came from the exported object {path} and keeps its name" in session.summary


def test_exporting_a_renamed_kernel_is_said(tmp_path: Path) -> None:
    path, made = exported(tmp_path, strip=True)
    assert f"{PLAIN_ADD} was exported under this name" in made.summary
    assert PLAIN_ADD.encode() in path.read_bytes()
    assert b"kernel_cutlass" not in path.read_bytes().replace(f"@kernels::@{ADD}".encode(), b"")


# --- hooks ---------------------------------------------------------------------------------------

METHODS = [
    (Compiler, "compile"),
    (BaseDSL, "compile_and_cache"),
    (BaseDSL, "get_module_hash"),
    (JitCacheDict, "get"),
    (ExternalBinaryModule, "__init__"),
]


def test_the_dsl_gets_its_methods_back(out: Path, tmp_path: Path) -> None:
    before = [owner.__dict__[name] for owner, name in METHODS]
    with tritonhook.session(out):
        during = [owner.__dict__[name] for owner, name in METHODS]
        with tritonhook.session(tmp_path / "inner"):
            assert [owner.__dict__[name] for owner, name in METHODS] == during
        assert [owner.__dict__[name] for owner, name in METHODS] == during
        assert len(hooks.holders()) == len(METHODS)
    assert [owner.__dict__[name] for owner, name in METHODS] == before
    assert not set(before) & set(during)
    assert hooks.holders() == {}


def test_another_tools_wrapper_around_ours_stays(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    with tritonhook.session(out) as session:
        ours = Compiler.compile

        def theirs(*arguments: Any, **options: Any) -> Any:
            called.append("theirs")
            return ours(*arguments, **options)

        monkeypatch.setattr(Compiler, "compile", theirs)
        kernels.compiled()
    assert Compiler.compile is theirs
    assert names(kernels.compiled()) == [ADD]  # and ours, left inside theirs, only passes on
    assert called == ["theirs", "theirs"]
    assert len(session.captures) == 1


def test_a_release_without_a_method_says_so(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ("base_dsl.dsl", "BaseDSL", "no_such_method", lambda original: original)
    monkeypatch.setattr(hooks, "_POINTS", (*hooks._POINTS, lost))
    with tritonhook.session(out) as session:
        kernels.compiled()
    assert f"CuTe DSL {cutlass.__version__} has no BaseDSL.no_such_method" in session.summary
    assert len(session.captures) == 1


def test_enable_and_disable(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONHOOK_QUIET", "1")
    tritonhook.enable(out)
    kernels.compiled()
    tritonhook.enable(out, strip=True)
    kernels.compiled()
    session = tritonhook.disable()
    kernels.compiled(kernels.both)
    assert session is not None
    assert [c.kernel for c in session.captures] == [ADD, PLAIN_ADD]


# --- other processes -----------------------------------------------------------------------------


def python(tmp_path: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python in another process and folder, with the tests' kernels at hand."""
    base = {n: v for n, v in os.environ.items() if not n.startswith("TRITONHOOK")}
    paths = [str(ROOT), str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=base | {"PYTHONPATH": os.pathsep.join(paths)} | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_enabling_imports_no_cutlass_and_waits_for_it(tmp_path: Path) -> None:
    code = f"""
import sys, tritonhook
session = tritonhook.enable({str(tmp_path / "out")!r}, strip=True)
assert "cutlass" not in sys.modules
import cute_kernels
cute_kernels.compiled()
assert not any(type(finder).__name__ == "AfterImport" for finder in sys.meta_path)
print([c.kernel for c in session.captures])
"""
    done = python(tmp_path, "-c", code)
    assert done.stdout.strip() == str([PLAIN_ADD])
    assert "tritonhook: 1 kernel seen" in done.stderr


@pytest.mark.parametrize(
    ("options", "expected"), [((), ADD), (("--strip",), PLAIN_ADD), (("--prefix", "x_"), f"x_{ADD}")]
)
def test_run(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    script = tmp_path / "script.py"
    script.write_text("import cute_kernels as k\nprint(k.kernels_in(k.compiled()), k.asked_for(k.compiled()))\n")
    done = python(tmp_path, "-m", "tritonhook", "run", "--out", "out", *options, str(script))
    assert done.stdout.strip() == f"{[expected]} {[expected]}"
    assert "tritonhook: 1 kernel seen, 0 from cache" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".py") == ["cwd", "out", "tmp"]


def test_a_program_that_enables_within_a_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tritonhook, cute_kernels as k\ntritonhook.enable('mine', rename='b_')\n"
        "print(k.kernels_in(k.compiled()))\ntritonhook.disable()\nprint(k.kernels_in(k.compiled()))\n"
    )
    done = python(tmp_path, "-m", "tritonhook", "run", "--out", "out", "--prefix", "a_", str(script))
    assert done.stdout.split() == [f"['b_a_{ADD}']", f"['a_{ADD}']"]


def test_the_example(tmp_path: Path) -> None:
    done = python(tmp_path, str(ROOT / "examples" / "cute_dsl.py"))
    plain, stripped = done.stdout.splitlines()
    assert plain.startswith("kernel_cutlass_scale_kernel_")
    assert stripped.startswith("kernel_scale_kernel_")
    done = python(tmp_path, "-m", "tritonhook", "run", "--strip", str(ROOT / "examples" / "cute_dsl.py"), "--plain")
    assert "tritonhook: 1 kernel seen" in done.stderr


def test_a_package_called_cutlass_that_is_no_dsl(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "cutlass.py").write_text("__version__ = '3.5'\n")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'old')!r})\nimport cutlass\nprint(cutlass.__version__)"
    )
    done = python(tmp_path, "-m", "tritonhook", "run", "--out", "out", str(script))
    assert done.stdout.strip() == "3.5"
    assert "tritonhook: 0 kernels seen" in done.stderr
    assert "Error" not in done.stderr


# --- the rest of tritonhook, on what was captured ------------------------------------------------


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
        # the note says who built the tool, and that it was called with -v
        assert different <= {".note.nv.tkinfo"}


def test_ab(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = next(path for path in (captured / "kernels").iterdir() if "cutlass" in path.name)
    version = tritonhook.CaptureFolder.open(captured).capture(plain.name).assembler.version
    try:
        find_toolchain(version)
    except ToolError as error:
        pytest.skip(f"needs ptxas {version}: {error}")
    code = main(["ab", str(plain), "--strip", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert document["ptxas"]["version"] == version


def test_the_sides_of_a_timed_comparison(out: Path) -> None:
    """Given a kernel with the word in its name; then the candidate is without, and the control has it misspelt: as long
    as the reference's."""
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
