"""What a kernel is called among others, and which kernels a user means: `matmul[BM=64,num_warps=4]`.

One form for what verbs print and what they take: the name, and of its configuration what tells it from the others.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tritonhook._util.demangle import function_name

_COUNTS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_SELECTOR = re.compile(r"(?P<name>[^\[\]/]+?)(?:\[(?P<settings>[^\[\]]*)\])?")
Key = TypeVar("Key", bound=Hashable)
Settings = Mapping[str, str]


def settings_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What an autotuner varies, by name: the constexprs, num_warps, num_stages, num_ctas, maxnreg. options: of a
    capture."""
    constants = options.get("constants")
    given = dict(constants) if isinstance(constants, Mapping) else {}
    given |= {name: options.get(name) for name in _COUNTS}
    return {str(name): str(value) for name, value in given.items() if value is not None}


def title(name: str, settings: Iterable[str]) -> str:
    """A name with its settings, each as "BM=64"."""
    inside = ",".join(settings)
    return f"{name}[{inside}]" if inside else name


def titles(kernels: Mapping[Key, tuple[str, str, Settings]]) -> dict[Key, str]:
    """The title of each kernel: its name, with the settings that tell it from others of its name and target. kernels:
    name, target and settings."""
    common: dict[tuple[str, str], frozenset[tuple[str, str]]] = {}
    for name, target, settings in kernels.values():
        own = frozenset(settings.items())
        common[name, target] = common.get((name, target), own) & own
    return {
        key: title(name, (f"{n}={value}" for n, value in settings.items() if (n, value) not in common[name, target]))
        for key, (name, target, settings) in kernels.items()
    }


@dataclass(frozen=True, slots=True)
class KernelSelector:
    """Kernels by name and by some of their settings."""

    name: str
    settings: Settings

    @classmethod
    def of(cls, text: str) -> KernelSelector | None:
        """Read `matmul` or `matmul[BM=64,num_warps=4]`; None for another text."""
        match = _SELECTOR.fullmatch(text)
        pairs = [part.partition("=") for part in filter(None, (match["settings"] or "").split(","))] if match else []
        if match is None or not all(name and equals for name, equals, _ in pairs):
            return None
        return cls(match["name"], {name.strip(): value.strip() for name, _, value in pairs})

    def fits(self, kernel: str, options: Mapping[str, Any]) -> bool:
        """Whether a captured kernel is meant. kernel: its name in the PTX."""
        if self.name not in (kernel, function_name(kernel)):
            return False
        own = settings_of(options) if self.settings else {}
        return all(own.get(name) == value for name, value in self.settings.items())


def fits(wanted: str | None, kernel: str, options: Mapping[str, Any]) -> bool:
    """Whether a kernel is meant by a name or a selector; None means all."""
    if wanted in (None, kernel):
        return True
    selector = KernelSelector.of(wanted or "")
    return selector is not None and selector.fits(kernel, options)
