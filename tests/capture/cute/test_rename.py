"""Renaming CuTe kernels in the DSL's modules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
import cutlass
from cute_sessions import ADD, DOUBLE, PLAIN_ADD, RELEASE, Other, names
from cutlass.base_dsl.compiler import Compiler

import tritonhook
from tritonhook.capture.cute import modules, rename
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.module import Ptx


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
    # given the kernel under the name from which the DSL's own API has removed "cutlass"
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
    # and nothing global has changed: the next compile has the DSL's usual name
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
    # a rename of the PTX leaves one line as it is: the comment `// .globl NAME`
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
    assert f"{DOUBLE} is not renamed: '{ADD}' is taken" in session.summary


def test_other_rewrites_become_a_note(out: Path) -> None:
    with tritonhook.session(out, rewrites=Other()) as session:
        assert names(kernels.compiled()) == [ADD]
    assert "Other is not possible for CuTe kernels" in session.summary


# --- where a rename does not work ----------------------------------------------------------------


def forgetful(host_only: bool) -> Callable[..., None]:
    """A broken `substitute`: it renames the kernels only and not the host code's symbols, or nothing (host_only)."""

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
    assert session.summary.count("is not renamed") == 1
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
    assert f"{ADD} is not renamed to {PLAIN_ADD}: the host code still looks up {ADD}" in session.summary


def test_the_tvm_ffi_entry_is_there_after_a_second_compile(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    alone = kernels.compiled(options="--enable-tvm-ffi")
    monkeypatch.setattr(rename, "substitute", forgetful(host_only=True))
    with tritonhook.session(out, strip=True):
        function = kernels.compiled(options="--enable-tvm-ffi")
    # MLIR numbers types of equal name within a context, and this context has one more of them
    texts = [re.sub(r'"(\w+)\.\d+"', r'"\1"', str(f.ir_module)) for f in (function, alone)]
    assert texts[0] == texts[1]
    assert "__tvm_ffi_" in texts[0]
    assert type(function) is type(alone)


def test_a_compile_that_fails_under_the_new_name_is_done_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a DSL that fails on a kernel of that name, after some of its passes
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
