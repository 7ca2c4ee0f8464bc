"""List which tools have set Triton's hooks in this process, for `tritonhook.status`."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from tritonhook.capture.triton.listener import listening
from tritonhook.capture.triton.rewriting import rewriting


def holders() -> dict[str, str]:
    """Return the owner of each of Triton's hooks, by hook. tritonhook sets no hook itself. But while a session is
    attached, it is named first for the hook at which it listens. While a session rewrites, it is named for "cache
    keys", because it extends them."""
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
    """Return the name of the class or function set as a hook; "free" for None."""
    if value is None:
        return "free"
    calls = getattr(value, "calls", None)
    if isinstance(calls, list):
        return ", ".join(_holder(call) for call in calls) or "free"
    owner = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}.{owner}"
