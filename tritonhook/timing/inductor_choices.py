"""Record the configuration that torch.compile's autotuner chooses, and make the other sides use the same one.

For timed comparisons only; capture/inductor.py captures Inductor's kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_CHOSEN_MS, _OTHER_MS = 1e-6, 1e6  # fake times, by which the autotuner makes a fixed choice


@contextmanager
def inductor_choices(side: dict[str, str], fixed: dict[str, str] | None = None) -> Iterator[None]:
    """Record the choice of each autotuning in the `with` block in the dict `side`: kernel and sizes -> configuration.

    fixed: configurations to choose without a measurement; kernels that are not in it are tuned.
    """
    tuner = getattr(sys.modules.get(HEURISTICS), "CachingAutotuner", None)
    if tuner is None:
        yield
        return
    tune, bench = tuner.autotune_to_one_config, tuner.bench

    def autotune_to_one_config(self: Any, *arguments: Any, **named: Any) -> Any:
        result = tune(self, *arguments, **named)
        if getattr(self, "launchers", None):
            side[_name(self)] = str(self.launchers[0].config)
        return result

    def measure(self: Any, launcher: Any, *arguments: Any, **named: Any) -> Any:
        wanted = None if fixed is None else fixed.get(_name(self))
        if wanted is None:
            return bench(self, launcher, *arguments, **named)
        return _CHOSEN_MS if str(launcher.config) == wanted else _OTHER_MS

    tuner.autotune_to_one_config, tuner.bench = autotune_to_one_config, measure
    try:
        yield
    finally:
        tuner.autotune_to_one_config, tuner.bench = tune, bench


def _name(tuner: Any) -> str:
    sizes = getattr(tuner, "size_hints", None)
    return f"{tuner.fn.__name__} {sizes}" if sizes else str(tuner.fn.__name__)


def forget_compiled() -> None:
    """Clear torch.compile's caches in this process (functions, kernels, generated modules), so that the next call
    compiles again. A module that is already loaded would launch the kernel that was compiled for another side."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    forget_modules()


def forget_modules() -> None:
    """Clear torch.compile's caches of kernels and generated modules, but keep compiled functions."""
    for module, name in (("async_compile", "CompiledTritonKernels"), ("codecache", "PyCodeCache")):
        kept = getattr(sys.modules.get(f"torch._inductor.{module}"), name, None)
        if kept is not None:
            kept.cache_clear()
