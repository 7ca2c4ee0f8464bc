"""The rewrite `mma-throughput` for CuTe kernels: the pragma as inline PTX in the DSL's module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

import cute_kernels as kernels
from cute_sessions import ADD, captured_loop, code, names

import tritonhook
from tritonhook.capture.cute import rename
from tritonhook.ptx.throughput_pragma import ThroughputPragma, entries_with_pragma


def test_the_pragma_gives_the_code_that_the_name_gives(out: Path) -> None:
    plain = captured_loop(out / "plain", strip=True)
    named = captured_loop(out / "named")
    rewritten = captured_loop(out / "pragma", strip=True, rewrites="mma-throughput")
    assert code(rewritten) == code(named) != code(plain)
    assert rewritten.kernel == plain.kernel
    assert entries_with_pragma(rewritten.ptx) == (plain.kernel,)
    assert entries_with_pragma(plain.ptx) == entries_with_pragma(named.ptx) == ()
    assert [each.rewrites for each in (plain, named, rewritten)] == [None, None, "mma-throughput"]


def test_kernels_keep_their_names_and_their_host_code(out: Path) -> None:
    with tritonhook.session(out, rewrites="mma-throughput") as session:
        function = kernels.compiled()
    assert names(function) == [ADD] == kernels.kernels_in(function)
    assert [capture.rewrites for capture in session.captures] == ["mma-throughput"]
    assert [capture.rewritten_from for capture in session.captures] == [None]
    assert f'{ADD}: .pragma "mma_throughput" added' in session.notes


@pytest.mark.parametrize("wish", [{"only": "double"}, {"rewrites": ThroughputPragma(("other",))}])
def test_other_kernels_stay(out: Path, wish: dict[str, Any]) -> None:
    with tritonhook.session(out, **{"rewrites": "mma-throughput", **wish}) as session:
        plain = kernels.compiled()
    assert all(capture.rewrites is None for capture in session.captures)
    assert kernels.cubin_in(plain) == kernels.cubin_in(kernels.compiled())


def test_plain_and_rewritten_kernels_have_cache_keys_of_their_own(out: Path, dsl_cache: Path) -> None:
    plain = kernels.cubin_in(kernels.called())
    with tritonhook.session(out, rewrites="mma-throughput"):
        rewritten = kernels.called()
        assert kernels.called() is rewritten
    assert kernels.cubin_in(kernels.called()) == plain


def test_a_module_that_does_not_compile_with_it_is_compiled_plain(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rename, "DIRECTIVE", "no.such.instruction;")
    with tritonhook.session(out, rewrites="mma-throughput") as session:
        function = kernels.compiled()
    assert kernels.kernels_in(function) == [ADD]
    assert [capture.rewrites for capture in session.captures] == [None]
    assert f"{ADD} does not get the pragma" in session.summary
