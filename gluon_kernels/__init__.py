"""Gluon kernels: subjects for entry-name experiments, and baselines. Importing it loads neither Triton nor torch."""

from importlib import import_module

_HOME = {
    "AttentionConfig": "config",
    "HopperConfig": "config_hopper",
    "MmaConfig": "config_mma",
    "attention": "operators",
    "compile_offline": "offline",
    "attention_reference": "reference",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
