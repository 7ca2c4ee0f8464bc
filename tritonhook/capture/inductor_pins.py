"""The configuration that a policy pins for a kernel which torch.compile generates.

A kernel is identified by a hash of its source, without its number and without the parts that change from one compile to
the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.policy.model import Policy, stem

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

BY = "Inductor"
_SOURCE = "source="
_PASSING = re.compile(r"""(?<=index=)\d+|(?<='backend_hash': ')\w+""")
_OPTIONS = ("num_warps", "num_stages")


def key_of(filename: str | None, inductor_meta: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Return the name of a generated kernel without its number, and the key of its pin; None without its source."""
    name = inductor_meta.get("kernel_name")
    if not filename or not isinstance(name, str):
        return None
    text = _PASSING.sub("", Path(filename).read_text("utf-8")).replace(name, "KERNEL")
    return stem(name), (f"{_SOURCE}{hashlib.sha256(text.encode()).hexdigest()[:16]}",)


def key_of_pins(policy: Policy | None) -> str:
    """Hash the pins for Inductor, for Inductor's cache keys: a graph in its cache holds the configurations that were
    compiled. Empty without pins."""
    pins = () if policy is None else policy.pins
    own = [f"{pin.function} {pin.key} {pin.config}" for pin in pins if pin.key[0].startswith(_SOURCE)]
    return hashlib.sha256("\n".join(own).encode()).hexdigest() if own else ""


def pinned(session: Observer, configs: Sequence[Any], filename: str | None, inductor_meta: Mapping[str, Any]) -> Any:
    """Return the configuration that a session's policy pins; None without one."""
    policy = session.settings.policy
    if policy is None or not key_of_pins(policy) or (key := key_of(filename, inductor_meta)) is None:
        return None
    pin = next((pin for pin in policy.pins if (pin.function, pin.key) == key), None)
    if pin is None:
        return None
    config = next((config for config in configs if str(config) == pin.config), None) or _made(pin.config, configs)
    if config is None:
        session.note(f"{policy.path}: {pin.function} has no configuration {pin.config!r} any more; pin it again")
    else:
        config.found_by_coordesc = config.found_by_combo_autotune = True  # stops Inductor from searching around it
    return config


def _made(text: str, configs: Sequence[Any]) -> Any:
    """Make a configuration from its text, for one that coordinate descent added to the list; None if it has other
    names."""
    values = dict(part.split(": ", 1) for part in text.split(", ") if ": " in part)
    names = set(configs[0].kwargs) if configs else set()
    numbers = {name: int(value) for name, value in values.items() if value.isdigit()}
    if not names or not names | set(_OPTIONS) <= numbers.keys():
        return None
    kwargs = {name: numbers[name] for name in configs[0].kwargs}
    made = type(configs[0])(kwargs, **{name: numbers[name] for name in _OPTIONS})
    return made if str(made) == text else None
