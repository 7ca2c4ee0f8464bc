"""Requirements of a subcommand, checked before it starts, so that it does not fail after minutes of work."""

from __future__ import annotations

import os
from pathlib import Path

from ..compile.compiler import import_dsl


def require_gpu() -> None:
    """Raise ImportError without torch or the DSL, RuntimeError without a GPU, ValueError for an unsupported GPU."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"needs torch, which cannot be imported ({error}); install it with: pip install torch"
        ) from error
    if not torch.cuda.is_available():
        raise RuntimeError("needs an NVIDIA GPU that torch can use; `python -m sm120_attn inspect` needs no GPU")
    from ..launch.prepare import device_facts

    device_facts(0)
    import_dsl()


def require_folder(path: Path | None) -> None:
    """Raise ValueError if an output file could not be written at the end of the subcommand."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder: must be a file")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written; name another file")
