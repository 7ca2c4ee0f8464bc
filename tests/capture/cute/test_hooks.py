"""The CuTe DSL's patched methods: its caches, exported objects, and that it gets the methods back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass
from cute_sessions import ADD, PLAIN_ADD, Other, forget_in_memory, names
from cutlass.base_dsl.cache_helpers import JitCacheDict
from cutlass.base_dsl.compiler import Compiler
from cutlass.base_dsl.dsl import BaseDSL
from cutlass.base_dsl.export.external_binary_module import ExternalBinaryModule

import tritonhook
from tritonhook.capture.cute import hooks, state

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
        "  1 CuTe kernel came from a cache or an exported object without PTX: only the cubin is kept"
    ]


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
    assert "without PTX" not in session.summary
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
    assert "without PTX" in session.summary
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
    (BaseDSL, "generate_original_ir"),
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
        assert len(state.holders()) == len(METHODS)
    assert [owner.__dict__[name] for owner, name in METHODS] == before
    assert not set(before) & set(during)
    assert state.holders() == {}


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
    assert names(kernels.compiled()) == [ADD]  # ours, which theirs still calls, only passes the call on
    assert called == ["theirs", "theirs"]
    assert len(session.captures) == 1


def test_a_release_without_a_method_says_so(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = ("base_dsl.dsl", "BaseDSL", "no_such_method", lambda original: original)
    monkeypatch.setattr(hooks, "_POINTS", (*hooks._POINTS, lost))
    with tritonhook.session(out) as session:
        kernels.compiled()
    assert f"CuTe DSL {cutlass.__version__} has no BaseDSL.no_such_method" in session.summary
    assert len(session.captures) == 1
