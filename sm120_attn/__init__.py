"""Flash attention forward for RTX 50 and GB10 (sm_12x), in the CuTe DSL. Its import loads neither torch nor the DSL.

Callers use `attention` and, over a KV cache, `attention_with_kv_cache`. `plan` and `plan_cache` choose the kernel for a
shape and give the reason; `why_not` explains why a kernel cannot be built. `python -m sm120_attn` has the subcommands
check, bench, inspect and selftest.
"""

from importlib import import_module
from typing import Any

# Public name -> the module that defines it.
_HOME = {
    "attention": "api",
    "attention_with_kv_cache": "kv_cache.api",
    "CachePlan": "kv_cache.planner",
    "CacheShape": "kv_cache.planner",
    "plan_cache": "kv_cache.planner",
    "quantize": "quantization.api",
    "quantize_qkv": "quantization.api",
    "Config": "config",
    "Shape": "planner",
    "Plan": "planner",
    "plan": "planner",
    "why_not": "config",
    "attention_reference": "verify.reference",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
