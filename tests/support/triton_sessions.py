"""What the tests of sessions in Triton's pipeline share. Needs Triton."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import triton
from triton import knobs

import tritonhook
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.module import Ptx

RELEASE = tuple(int(part) for part in triton.__version__.split(".")[:2])


@pytest.fixture(autouse=True)
def slots_are_given_back():
    from triton.compiler import compiler
    from triton.runtime import jit

    functions = jit.get_cache_key, jit.compute_cache_key, compiler.get_cache_key, sys.stdout
    yield
    assert tritonhook.disable() is None, "the test left a session enabled"
    assert knobs.compilation.listener is None
    assert knobs.runtime.add_stages_inspection_hook is None
    assert functions == (jit.get_cache_key, jit.compute_cache_key, compiler.get_cache_key, sys.stdout)


def entries(kernel: Any) -> tuple[str, ...]:
    """The entries of a compiled kernel; its PTX, its cubin and its name must say the same."""
    ptx, cubin = Ptx(kernel.asm["ptx"]).entries, Cubin.from_bytes(kernel.asm["cubin"]).kernels
    assert ptx == cubin == (kernel.name,)
    return ptx


def wrapper_around_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: int, first: str) -> Path:
    """Put a script in front of the ptxas that Triton uses for `arch`; it runs `first`, then the real one."""
    from triton.backends.nvidia.compiler import get_ptxas

    real = get_ptxas(arch).path
    script = tmp_path / "ptxas"
    script.write_text(f'#!/bin/sh\n{first}\nexec "{real}" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    blackwell = arch >= (100 if RELEASE < (3, 9) else 90)
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH" if blackwell else "TRITON_PTXAS_PATH", str(script))
    assert get_ptxas(arch).path == str(script)
    return script
