"""Two compiles of three kernels: the second after a change of the source, of the options, of nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tritonhook
from tritonhook.cli._inputs import kernels_at
from tritonhook.snapshot.facts import KernelFacts

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def captured_before(tmp_path_factory: pytest.TempPathFactory) -> Callable[[object], Path]:
    """Where captures of some kind are kept for all tests."""
    folder, kinds = tmp_path_factory.mktemp("captured-before"), list[object]()

    def place(kind: object) -> Path:
        if kind not in kinds:
            kinds.append(kind)
        return folder / str(kinds.index(kind))

    return place


@pytest.fixture
def compiled(compile_now: Compile, captured_before: Callable[[object], Path], tmp_path: Path) -> Compile:
    """As compile_now, in an empty folder: what another test has compiled is copied."""

    def copy(name: str, block: int = 128, adds: Any = None, **options: Any) -> Path:
        out = tmp_path / name
        if out.exists():
            return compile_now(name, block, adds, **options)
        kept = captured_before((block, adds and adds.src, options))
        if not kept.exists():
            shutil.copytree(compile_now(name, block, adds, **options), kept)
        else:
            shutil.copytree(kept, out)
        return out

    return copy


@pytest.fixture
def compile_now(tmp_path: Path, triton_cache: Path) -> Compile:
    """Capture an addition and a matrix product for sm_90a; keywords change options of both. Returns the folder."""
    kernels = pytest.importorskip("triton_kernels", reason="needs Triton")

    def compile(name: str, block: int = 128, adds: Any = None, **options: Any) -> Path:
        out = tmp_path / name
        with tritonhook.session(out=out):
            kernels.compile_kernel(kernels.fresh(adds or kernels.add_kernel), block=block, **options)
            kernels.compile_gemm(**options)
        return out

    return compile


@pytest.fixture
def facts(compiled: Compile) -> list[KernelFacts]:
    """Facts of the addition and the matrix product, in the order of their names."""
    return [facts for _, facts in kernels_at(str(compiled("facts")))[0][0]]
