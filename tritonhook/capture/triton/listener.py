"""Notify sessions of every kernel that Triton compiles or loads from its disk cache.

Triton has one listener, `knobs.compilation.listener`, which other tools overwrite or remove. So tritonhook does not set
it. While a session is attached, a property replaces the attribute. Other code reads and sets the listener as usual.
Only `triton.compile`, which reads it once per compile, gets a different function. This function calls the sessions, and
then the listener that another tool has set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tritonhook.capture.patching import Hooks, Patch
from tritonhook.capture.triton.metadata import constants_of

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

_NAME = "listener"
_COMPILER = "triton.compiler.compiler"  # the module of triton.compile


class Listening(Hooks):
    """The sessions that are notified of kernels."""

    def _patched(self) -> list[Patch]:
        from triton import knobs

        return [Patch(type(knobs.compilation), _NAME, self._property)]

    def _property(self, default: Any) -> property:
        def get(knobs: Any) -> Any:
            held = vars(knobs).get(_NAME, default)
            return self._and_then(held) if sys._getframe(1).f_globals.get("__name__") == _COMPILER else held

        def set_(knobs: Any, value: Any) -> None:
            vars(knobs)[_NAME] = value

        def delete(knobs: Any) -> None:
            if vars(knobs).pop(_NAME, self) is self:
                raise AttributeError(_NAME)

        return property(get, set_, delete)

    def _and_then(self, held: Any) -> Callable[..., None]:
        def hear(**event: Any) -> None:
            self.tell("not all kernels are captured", partial(_read, event))
            if held is not None:
                held(**event)

        return hear


def _read(event: dict[str, Any], session: Observer) -> None:
    constants = constants_of(event.get("src"))
    hit = bool(event["cache_hit"])
    session.read(event["metadata"], event["metadata_group"], hit, constants, {} if hit else _times(event))


def _times(event: dict[str, Any]) -> dict[str, int]:
    """Return microseconds by step: "ir" (first IR), each stage, "store" (writing the cache); see
    triton.knobs.CompileTimes."""
    times = event.get("times")
    if times is None:
        return {}
    return {"ir": times.ir_initialization, **dict(times.lowering_stages), "store": times.store_results}


listening = Listening()
