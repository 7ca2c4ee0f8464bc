"""What a verb needs: asked for before it starts, so that nobody learns after minutes that it was missing."""

from __future__ import annotations

import os
from pathlib import Path

from ..compile import cache as compiled


def require_gpu() -> None:
    """Raises ImportError without torch or the DSL, RuntimeError without a GPU, ValueError for one of another kind."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"needs torch, which cannot be imported ({error}); install it with: pip install torch"
        ) from error
    if not torch.cuda.is_available():
        raise RuntimeError("needs an NVIDIA GPU that torch can use; `python -m sm120_attn inspect` works without one")
    from ..launch import prepare as launch

    launch.device_facts(0)
    compiled.import_dsl()


def require_hypothesis() -> None:
    """Raises ImportError without it: the random cases come after minutes of others, whose verdicts would be lost."""
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"random cases are drawn by hypothesis, which cannot be imported ({error}); install it with: "
            "pip install hypothesis"
        ) from error


def require_folder(path: Path | None) -> None:
    """Raises ValueError where a file that is written in the end could not be."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{path} may not be written here; name a file that may")
