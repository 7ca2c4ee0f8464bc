"""What a benchmark may need, and whether it is here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_IN_WORDS = {
    "gpu": "an NVIDIA GPU",
    "cutlass": "the CuTe DSL (nvidia-cutlass-dsl)",
    "liger_kernel": "liger-kernel",
    "fla": "flash-linear-attention",
    "flash_attn": "FlashAttention 4 (flash-attn-4)",
    "TRITON_TUTORIALS": "TRITON_TUTORIALS, the folder python/tutorials of Triton's repository",
    "mutants/": "the outcomes of `make mutants`",
    "chromium": "a Chromium and chromedriver on PATH",
}


def missing(needs: Sequence[str]) -> str | None:
    """The first thing that is not here, in words.

    A need: gpu, chromium, a folder/, "ptxas 13.5.37" or "ptxas 13.3+", a VARIABLE, or a package.
    """
    return next((_IN_WORDS.get(need, need) for need in needs if not _is_here(need)), None)


def _is_here(need: str) -> bool:
    if need == "gpu":
        return _has_gpu()
    if need == "chromium":
        from browser import why_none

        return why_none() is None
    if need.endswith("/"):
        return Path(need).is_dir()
    if need.startswith("ptxas "):
        from tritonhook._util.versions import version_key
        from tritonhook.ptxas.tool import available_ptxas

        wanted = need.removeprefix("ptxas ")
        exact, least = wanted.count(".") == 2, version_key(wanted.removesuffix("+"))
        return any(
            tool.version == wanted if exact else version_key(tool.version) >= least for tool in available_ptxas()
        )
    return need in os.environ if need.isupper() else find_spec(need) is not None


def _has_gpu() -> bool:
    """Asked in a process of its own: here, CUDA begins with the benchmark."""
    look = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    return subprocess.run([sys.executable, "-c", look], capture_output=True).returncode == 0
