"""Note which configuration torch.compile's own autotuner chooses, and make other sides launch the same one.

For timed comparisons only; capture/inductor.py is what captures Inductor's kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_CHOSEN_MS, _OTHER_MS = 1e-6, 1e6  # times for the autotuner if the choice is already made


@contextmanager
def inductor_choices(side: dict[str, str], fixed: dict[str, str] | None = None) -> Iterator[None]:
    """Note in `side`, within a `with` block, what each tuning chooses: kernel and sizes -> configuration.

    fixed: configurations that are launched without a measurement. Kernels that it lacks are tuned.
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
    """Clear torch.compile's caches in this process (functions, kernels, modules it wrote), so that the next call
    compiles anew. A module loaded before would launch the kernel that was compiled for another side."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    forget_modules()


def forget_modules() -> None:
    """Forget as forget_compiled does, but keep compiled functions."""
    for module, name in (("async_compile", "CompiledTritonKernels"), ("codecache", "PyCodeCache")):
        kept = getattr(sys.modules.get(f"torch._inductor.{module}"), name, None)
        if kept is not None:
            kept.cache_clear()
