"""Forward attention kernels in Triton Gluon, for experiments with entry names and as baselines.

`attention` picks the kernel for the GPU. Importing this package loads neither Triton nor torch.
"""

from importlib import import_module
from typing import Any

# Public name -> the module that defines it.
_HOME = {
    "AttentionConfig": "blackwell.config",
    "HopperConfig": "hopper.config",
    "MmaConfig": "mma.config",
    "attention": "api",
    "compile_offline": "offline",
    "attention_reference": "verify.reference",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
