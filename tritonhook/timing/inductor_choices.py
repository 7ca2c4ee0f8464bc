"""Which configuration torch.compile's own autotuner launches, noted, and for other sides held to one made before.

For a timed comparison only (ab_worker); what sessions capture of Inductor is inductor_capture.py's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HEURISTICS = "torch._inductor.runtime.triton_heuristics"
_CHOSEN_MS, _OTHER_MS = 1e-6, 1e6  # what a configuration is said to take, where the choice is made already


@contextmanager
def inductor_choices(side: dict[str, str], fixed: dict[str, str] | None = None) -> Iterator[None]:
    """Note in `side` what each tuning chose, by kernel and sizes, for the length of a `with` block.

    fixed: choices that are taken as they are, of kernels that it has; others are measured.
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
    """What torch.compile keeps in this process, of functions, kernels and the modules it wrote: the next call compiles
    anew. A module that was loaded once would bring the kernel along that was compiled for another side."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    for module, name in (("async_compile", "CompiledTritonKernels"), ("codecache", "PyCodeCache")):
        kept = getattr(sys.modules.get(f"torch._inductor.{module}"), name, None)
        if kept is not None:
            kept.cache_clear()
