"""What the tests of sessions in Triton's pipeline share. Needs Triton."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton

import tritonhook
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Assembled, assemble

RELEASE = tuple(int(part) for part in triton.__version__.split(".")[:2])


def entries(kernel: Any) -> tuple[str, ...]:
    """The entries of a compiled kernel; checks that its PTX, its cubin and its name agree."""
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


# For `wrapper_around_ptxas`: SIGSEGV on a PTX file that contains "cutlass_".
CRASH_ON_CUTLASS = (
    'for file in "$@"; do case "$file" in *.ptx) grep -q cutlass_ "$file" && kill -SEGV $$;; esac; done; true'
)


def assemble_again(capture: tritonhook.Capture) -> bytes:
    path, version, arguments = capture.assembler.path, capture.assembler.version, capture.assembler.arguments
    assert path and version and arguments
    listed = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"V{version}" in listed
    made = assemble(Tool(Path(path), version, "Triton"), capture.ptx, arguments)
    assert isinstance(made, Assembled), made
    return made.cubin.data
