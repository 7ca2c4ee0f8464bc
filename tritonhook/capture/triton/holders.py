"""The holders of Triton's hooks in this process, for `tritonhook.status`. Reads only."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tritonhook.capture.triton.listener import listening
from tritonhook.capture.triton.rewriting import rewriting


def holders() -> dict[str, str]:
    """Return the holder of each of Triton's hooks, by hook. tritonhook holds none. It is named first for the hook
    where it listens, and for cache keys, which it extends while a session rewrites."""
    from triton import knobs

    of_runtime = ("add_stages_inspection", "jit_cache", "jit_post_compile", "launch_enter", "launch_exit")
    slots = ["compilation.listener", *(f"runtime.{name}_hook" for name in of_runtime)]
    if hasattr(knobs.autotuning, "listener"):  # since Triton 3.8
        slots.append("autotuning.listener")
    named = {name: _holder(attrgetter(name)(knobs)) for name in slots}
    if listening.sessions:
        held = named["compilation.listener"]
        named["compilation.listener"] = "tritonhook" if held == "free" else f"tritonhook, then {held}"
    return named | {"cache keys": "tritonhook" if rewriting.sessions else "free"}


def _holder(value: Any) -> str:
    """Name the owner of an object in a slot: "free", or a class or function."""
    if value is None:
        return "free"
    calls = getattr(value, "calls", None)
    if isinstance(calls, list):
        return ", ".join(_holder(call) for call in calls) or "free"
    owner = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}.{owner}"
