"""Policy and Entry: levers for kernels, each known by its normalised PTX. Values only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.capture.policy.levers import Lever
from tritonhook.capture.policy.pins import Pin
from tritonhook.ptx.normal_form import normal_sha256

_NUMBER = re.compile(r"_\d+$")
Identity = tuple[str, str, str, str]  # of a kernel: its name, architecture, front end, and the hash of its PTX


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel, the lever that won for it, and how it won.

    kernel: its own name. ptx: the hash of its normalised PTX. ptxas: the compiler's own, whose code the lever beat.
    code: the hash of the machine code that was timed. controls: the hash of the lever's controls file; None without
    one. gain_percent: by how much less time the kernel takes; interval_percent: its 95% interval. gpu, date: where and
    when that was measured. assembling: the lever's ptxas and options as they are here.
    """

    kernel: str
    arch: str
    front_end: str
    ptx: str
    ptxas: str
    lever: Lever
    code: str
    gain_percent: float
    interval_percent: tuple[float, float]
    gpu: str
    date: str
    controls: str | None = None
    assembling: Assembling | None = None

    @property
    def identity(self) -> Identity:
        """What makes two entries the same kernel's; entries are sorted by it."""
        return self.kernel, self.arch, self.front_end, self.ptx

    @property
    def key(self) -> str:
        """Names what it does to the kernel, in cache keys."""
        how = "" if self.assembling is None else self.assembling.key
        return "|".join((stem(self.kernel), *self.identity[1:], self.ptxas, self.lever.text, self.code, how))


def stem(kernel: str) -> str:
    """A kernel's name without the number behind it. torch.compile numbers the kernels of a graph: one more kernel in
    front gives all others new names."""
    return _NUMBER.sub("", kernel)


@dataclass(frozen=True, slots=True)
class Policy:
    """Entries that can be applied here. notes: why others cannot be.

    path: of the file, for messages. pins: configurations that autotuned functions get. key: names what the entries do,
    in cache keys; empty if there are none. A pin needs no key: each configuration has a key of its own.
    """

    entries: tuple[Entry, ...]
    path: str = ""
    notes: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    key: str = field(init=False)
    _by_stem: Mapping[str, tuple[Entry, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = "\n".join(sorted(entry.key for entry in self.entries))
        object.__setattr__(self, "key", f"policy-1:{hashlib.sha256(keys.encode()).hexdigest()}" if keys else "")
        by_stem: dict[str, tuple[Entry, ...]] = {}
        for entry in self.entries:
            by_stem[stem(entry.kernel)] = (*by_stem.get(stem(entry.kernel), ()), entry)
        object.__setattr__(self, "_by_stem", by_stem)

    def pin_for(
        self, function: str, arch: str, key: tuple[str, ...], gpu: Callable[[], str] = lambda: ""
    ) -> Pin | None:
        """The configuration of an autotuned function for a key; None if the policy has none. gpu: the name of the GPU,
        asked for where several GPUs of the architecture have one; the first one's is for all others, so that all ranks
        run the same code."""
        pins = [pin for pin in self.pins if (pin.function, pin.arch, pin.key) == (function, arch, key)]
        if len(pins) < 2:
            return pins[0] if pins else None
        name = gpu()
        return next((pin for pin in pins if pin.gpu == name), pins[0])

    def only(self, entries: Iterable[Entry]) -> Policy:
        return replace(self, entries=tuple(entries))

    def of_kernel(self, kernel: str) -> Policy:
        """The entries for kernels of this name. The others need not be in the cache key of such a kernel."""
        return self.only(self._by_stem.get(stem(kernel), ()))

    @property
    def without_renames(self) -> Policy:
        return self.only(entry for entry in self.entries if not entry.lever.renames)

    def entry_for(self, text: str, entry: str, own: str) -> Entry | None:
        """The entry for a kernel's PTX; None if there is none. entry: its name in the PTX; own: its own name."""
        entries = self._by_stem.get(stem(own), ())
        if not entries:
            return None
        ptx = normal_sha256(text, entry)
        return next((e for e in sorted(entries, key=lambda e: e.kernel != own) if e.ptx == ptx), None)


def unnumbered(identity: Identity) -> Identity:
    """The identity of a kernel, whatever the number behind its name."""
    return (stem(identity[0]), *identity[1:])


def updated(entries: Iterable[Entry], won: Iterable[Entry], tried: Mapping[Identity, Collection[str]]) -> list[Entry]:
    """A policy's entries after another tuning, sorted: those that won now, and earlier ones. tried: the levers that
    were judged for each kernel; an earlier entry goes if its lever is one of them, or its kernel won with another."""
    new = {entry.identity: entry for entry in won}
    replaced = {unnumbered(identity) for identity in new}
    judged = {unnumbered(identity): levers for identity, levers in tried.items()}
    by_identity = new.copy()
    for earlier in entries:
        kernel = unnumbered(earlier.identity)
        if kernel not in replaced and earlier.lever.text not in judged.get(kernel, ()):
            by_identity[earlier.identity] = earlier
    return [by_identity[identity] for identity in sorted(by_identity)]


def updated_pins(pins: Iterable[Pin], won: Iterable[Pin], before: Iterable[Entry], after: Iterable[Entry]) -> list[Pin]:
    """A policy's pins after another tuning, sorted: those that won now, and earlier ones but for those whose entry has
    gone."""
    gone = {entry.ptx for entry in before} - {entry.ptx for entry in after}
    kept = {pin.identity: pin for pin in pins if pin.ptx is None or pin.ptx not in gone}
    kept |= {pin.identity: pin for pin in won}
    return [kept[identity] for identity in sorted(kept)]
