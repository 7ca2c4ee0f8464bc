"""Two compiles of three kernels: the second after a change of the source, of the options, of nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tritonhook
from tritonhook.cli._inputs import kernels_at
from tritonhook.snapshot.facts import KernelFacts

Compile = Callable[..., Path]


@pytest.fixture
def compiled(tmp_path: Path, triton_cache: Path) -> Compile:
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
