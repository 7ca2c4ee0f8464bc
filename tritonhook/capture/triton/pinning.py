"""Make Triton's Autotuner use the configurations that policies pin, without measuring.

For a new key only, the Autotuner calls `prune_configs` to select configurations, and `_bench` to measure them. Here
`prune_configs` returns only the pinned configuration, and `_bench` returns without a measurement. Then the
configuration is in the Autotuner's own cache. So later launches cost the same as without a pin.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tritonhook.capture.patching import Hooks, Patch
from tritonhook.capture.triton.autotuner import function_name, key_texts, source_hash
from tritonhook.capture.triton.metadata import arch_name

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer
    from tritonhook.capture.policy.model import Pin


class Pinning(Hooks):
    """The sessions of this process whose policies have pins."""

    def __init__(self) -> None:
        super().__init__()
        self._pinned = threading.local()

    def _patched(self) -> list[Patch]:
        from triton.runtime.autotuner import Autotuner

        return [Patch(Autotuner, "prune_configs", self._pruning), Patch(Autotuner, "_bench", self._bench)]

    def _pruning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def prune_configs(tuner: Any, named: Mapping[str, Any], *rest: Any) -> Any:
            configs = original(tuner, named, *rest)
            self._pinned.config = None
            for session in self.sessions:
                try:
                    config = _pinned(session, tuner, named, configs)
                except Exception as error:
                    session.contain(f"the configuration of {function_name(tuner)} is not pinned", error)
                    continue
                if config is not None:
                    self._pinned.config = config
            return configs if self._pinned.config is None else [self._pinned.config]

        return prune_configs

    def has(self, config: Any) -> bool:
        """Check whether this configuration was pinned by the latest `prune_configs` in this thread."""
        return config is not None and config is getattr(self._pinned, "config", None)

    def _bench(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(tuner: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
            if self.has(config):
                self._pinned.config = None
                return [0.0] * 3
            return original(tuner, *arguments, config=config, **meta)

        return bench


def _pinned(session: Observer, tuner: Any, named: Mapping[str, Any], configs: Any) -> Any:
    """Return the configuration that a session's policy pins for this call; None if there is no pin."""
    policy, function = session.settings.policy, function_name(tuner)
    if policy is None or not any(pin.function == function for pin in policy.pins):
        return None
    from triton.runtime import driver

    arch = arch_name(driver.active.get_current_target().arch)
    pin: Pin | None = session.settings.pin_for(function, arch, key_texts(tuner, key_of(tuner, named)))
    if pin is None:
        return None
    if pin.source is not None and pin.source != source_hash(tuner):
        session.note(f"{policy.path}: the source of {function} has changed since it was pinned; pin it again")
        return None
    config = next((config for config in configs if str(config) == pin.config), None)
    if config is None:
        session.note(f"{policy.path}: {function} has no configuration {pin.config!r} any more; tune or pin again")
    return config


def key_of(tuner: Any, named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the autotuning key of a call, computed as in Autotuner.run (triton/runtime/autotuner.py, 3.6 to 3.9)."""
    given = {name: value for name, value in {**tuner.nargs, **named}.items() if name in tuner.arg_names}
    key = [given[name] for name in tuner.keys if name in given]
    return (*key, *(str(value.dtype) for value in given.values() if hasattr(value, "dtype")))


pinning = Pinning()
