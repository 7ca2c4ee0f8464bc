"""Policy: levers for kernels (ways to get faster code, see levers.py) and pins (configurations for autotuned
functions). Kernels are identified by their normalised PTX. This module also reads and writes the policy file
tritonhook.toml. It has a block for each kernel; the blocks are sorted, for code review and merges.

A process of `tritonhook run` reads a JSON copy of the policy instead: its Python may have no TOML library, and the copy
contains the paths of the ptxas binaries.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tritonhook._util.files import read_given, write_given, write_whole
from tritonhook._util.text import visible
from tritonhook._util.toml import toml_block
from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.capture.policy.levers import Lever, lever
from tritonhook.errors import PolicyError, ToolError, UsageError
from tritonhook.ptx.normal_form import normal_sha256

if TYPE_CHECKING:
    from tritonhook.capture.policy.schema import PolicyFile, PolicyKernel


@dataclass(frozen=True, slots=True)
class Pin:
    """A configuration for one key of an autotuned function.

    function: name of the function. arch: e.g. "sm_90a". key: as in a capture folder: "name=value" of each argument in
    the autotuner's key, then the dtypes. config: text in Triton's format. ptx: hash of the configuration's PTX, if the
    policy has a lever for it; None for a pin without a lever. gpu, date: where and when the configuration won. source:
    hash of the function's source; if None, a change of the function is not noticed.
    """

    function: str
    arch: str
    key: tuple[str, ...]
    config: str
    ptx: str | None = None
    gpu: str = ""
    date: str = ""
    source: str | None = None

    @property
    def identity(self) -> tuple[str, str, tuple[str, ...], str]:
        """Function, architecture, key and GPU. Two pins with equal values contradict each other. Pins are sorted by
        these values."""
        return self.function, self.arch, self.key, self.gpu


_NUMBER = re.compile(r"_\d+$")
Identity = tuple[str, str, str, str]  # of a kernel: name, architecture, front end, hash of its normalised PTX


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel, its winning lever, and the measurement.

    kernel: its own name. ptx: hash of its normalised PTX. ptxas: version of the compiler's own ptxas, the baseline of
    the measurement. code: hash of the timed machine code. controls: hash of the lever's controls file; None if the
    lever has none. gain_percent: reduction of the kernel's time; interval_percent: its 95% interval. gpu, date: where
    and when it was measured. assembling: the lever's ptxas and options on this machine; None for the compiler's own.
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
        """Name, architecture, front end and PTX. Entries of the same kernel have equal values. Entries are sorted by
        these values."""
        return self.kernel, self.arch, self.front_end, self.ptx

    @property
    def key(self) -> str:
        """Text for cache keys that identifies the entry's effect on the kernel."""
        how = "" if self.assembling is None else self.assembling.key
        return "|".join((stem(self.kernel), *self.identity[1:], self.ptxas, self.lever.text, self.code, how))


def stem(kernel: str) -> str:
    """Strip the trailing number from a kernel's name, e.g. "_12". torch.compile numbers the kernels of a graph; if a
    kernel is added, the numbers of all later kernels change."""
    return _NUMBER.sub("", kernel)


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of a policy that can be applied on this machine.

    path: path of the policy file, for messages. notes: why some entries cannot be applied. pins: configurations for
    autotuned functions. key: text for cache keys that identifies the effect of the entries; "" if there are none. Pins
    are not part of the key: Triton's cache key of a kernel already contains the configuration.
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
        """Find the pin for a key of an autotuned function; None if there is no pin.

        gpu: returns the name of this GPU; called only if several GPUs of the architecture have a pin. A GPU without a
        pin of its own gets the first pin, so that all ranks run the same code.
        """
        pins = [pin for pin in self.pins if (pin.function, pin.arch, pin.key) == (function, arch, key)]
        if len(pins) < 2:
            return pins[0] if pins else None
        name = gpu()
        return next((pin for pin in pins if pin.gpu == name), pins[0])

    def only(self, entries: Iterable[Entry]) -> Policy:
        return replace(self, entries=tuple(entries))

    def of_kernel(self, kernel: str) -> Policy:
        """Select the entries for kernels of this name. So a change of other entries does not change the cache key of
        such a kernel."""
        return self.only(self._by_stem.get(stem(kernel), ()))

    @property
    def without_renames(self) -> Policy:
        return self.only(entry for entry in self.entries if not entry.lever.renames)

    def entry_for(self, text: str, entry: str, own: str) -> Entry | None:
        """Find the entry for a kernel's PTX; None if there is none. text: the PTX. entry: the kernel's name in the PTX.
        own: the kernel's own name, before renames."""
        entries = self._by_stem.get(stem(own), ())
        if not entries:
            return None
        ptx = normal_sha256(text, entry)
        return next((e for e in sorted(entries, key=lambda e: e.kernel != own) if e.ptx == ptx), None)


def unnumbered(identity: Identity) -> Identity:
    """Strip the number from the name in a kernel's identity."""
    return (stem(identity[0]), *identity[1:])


def updated(entries: Iterable[Entry], won: Iterable[Entry], tried: Mapping[Identity, Collection[str]]) -> list[Entry]:
    """Merge a policy's entries with the winners of a new tuning. Returns them sorted. An earlier entry is dropped if
    its kernel has a new winner, or if its lever was tested again and did not win. tried: levers tested, by kernel."""
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
    """Merge a policy's pins with the winners of a new tuning. Returns them sorted. An earlier pin is dropped if its
    entry was dropped. before, after: the policy's entries before and after this tuning."""
    gone = {entry.ptx for entry in before} - {entry.ptx for entry in after}
    kept = {pin.identity: pin for pin in pins if pin.ptx is None or pin.ptx not in gone}
    kept |= {pin.identity: pin for pin in won}
    return [kept[identity] for identity in sorted(kept)]


# --- the file -------------------------------------------------------------------------------------


USUAL_NAME = "tritonhook.toml"
_HEADER = """\
# Levers that make kernels faster, certified by `tritonhook tune`, and pins, the configurations that won an autotuning.
# `tritonhook tune --check -o {name}` explains them.
# A kernel is not changed if its PTX, architecture or ptxas differs from its block.
format = {format}
"""


def policy_text(entries: Iterable[Entry], name: str = USUAL_NAME, pins: Sequence[Pin] = ()) -> str:
    """Format a policy as the text of its file."""
    blocks = [toml_block("kernel", _values(entry)) for entry in sorted(entries, key=lambda entry: entry.identity)]
    blocks += [toml_block("pin", _pin_values(pin)) for pin in sorted(pins, key=lambda pin: pin.identity)]
    return "\n".join([_HEADER.format(name=visible(name), format=2 if pins else 1), *blocks])


def write_policy(path: Path, entries: Iterable[Entry], pins: Sequence[Pin] = ()) -> None:
    """Write a policy file. Raises PolicyError if it cannot be written."""
    text = policy_text(entries, path.name, pins)
    try:
        write_given(path, text)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be written: {error.strerror}") from None


def _values(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.kernel,
        "arch": entry.arch,
        "front_end": entry.front_end,
        "lever": entry.lever.text,
        "gain_percent": round(entry.gain_percent, 2),
        "interval_percent": [round(bound, 2) for bound in entry.interval_percent],
        "gpu": entry.gpu,
        "date": entry.date,
        "ptxas": entry.ptxas,
        "ptx": entry.ptx,
        "code": entry.code,
        **({"controls": entry.controls} if entry.controls is not None else {}),
    }


def _pin_values(pin: Pin) -> dict[str, Any]:
    return {name: value for name, value in asdict(pin).items() if value not in (None, "")}


class Blocks(NamedTuple):
    """The blocks of a policy file."""

    entries: tuple[Entry, ...]
    pins: tuple[Pin, ...]


def read_blocks(path: Path) -> Blocks:
    """Read a policy file. Raises PolicyError if the file is missing, is not a policy, or has two entries for a kernel
    or two pins for one key and GPU."""
    file = _read(path)
    entries = tuple(_entry(kernel, path) for kernel in file.kernel)
    by_identity: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        if (other := by_identity.setdefault(entry.identity, entry)) is not entry:
            raise PolicyError(
                f"{path}: two entries for {entry.kernel} {entry.arch}: {other.lever.text} of {other.date} and "
                f"{entry.lever.text} of {entry.date}; remove one block"
            )
    pins: dict[tuple[object, ...], Pin] = {}
    for item in file.pin:
        pin = Pin(item.function, item.arch, tuple(item.key), item.config, item.ptx, item.gpu, item.date, item.source)
        if pins.setdefault(pin.identity, pin) is not pin:
            raise PolicyError(f"{path}: {pin.function} {pin.arch} is pinned twice for {pin.key}; remove one block")
    return Blocks(entries, tuple(pins.values()))


def _read(path: Path) -> PolicyFile:
    from tritonhook._util.schema import MOST_TOML
    from tritonhook.capture.policy.schema import read_toml

    try:
        data = read_given(path, MOST_TOML)
    except OSError as error:
        raise PolicyError(f"{path}: cannot read the policy: {error.strerror}; `tritonhook tune` makes one") from None
    return read_toml(data, str(path))


def _entry(kernel: PolicyKernel, path: Path) -> Entry:
    where = f"{path}: {kernel.name} {kernel.arch}"
    try:
        parsed = lever(kernel.lever)
    except UsageError as error:
        raise PolicyError(f"{where}: {error}") from None
    if reason := parsed.why_not(kernel.ptxas, kernel.arch, kernel.front_end):
        raise PolicyError(f"{where}: {reason}; remove the block, or tune again")
    if (parsed.controls is None) != (kernel.controls is None):
        raise PolicyError(
            f"{where}: `controls` and a lever controls=FILE need each other; remove the block, or tune again"
        )
    told = {field: getattr(kernel, field) for field in kernel.__struct_fields__ if field != "name"}
    return Entry(kernel=kernel.name, **told | {"lever": parsed})


# --- what can be applied here --------------------------------------------------------------------


def read_policy(path: Path) -> Policy:
    """Read the part of a policy file that this machine can apply, and make notes on the entries that it cannot apply.
    Raises PolicyError as read_blocks does."""
    usable: list[Entry] = []
    left_out: dict[str, list[str]] = {}
    entries, pins = read_blocks(path)
    for entry in entries:
        assembling = _assembling(entry, path)
        if isinstance(assembling, str):
            left_out.setdefault(assembling, []).append(entry.kernel)
        else:
            usable.append(replace(entry, assembling=assembling))
    notes = (f"{_kernels(kernels)} of {path.name} not applied: {why}" for why, kernels in left_out.items())
    here = {entry.ptx for entry in usable}
    return Policy(
        tuple(usable), str(path), tuple(notes), tuple(pin for pin in pins if pin.ptx is None or pin.ptx in here)
    )


def why_not_here(entry: Entry, path: Path) -> str | None:
    """Return why this machine cannot apply an entry of a policy file, else None."""
    assembling = _assembling(entry, path)
    return assembling if isinstance(assembling, str) else None


def _assembling(entry: Entry, path: Path) -> Assembling | str | None:
    """Return ptxas and options for an entry's lever, or the reason (text) why they are missing on this machine."""
    folder, version = path.absolute().parent, entry.lever.ptxas
    try:
        return entry.lever.assembling(folder, entry.controls)
    except ToolError as error:
        if version is not None and str(error).startswith(f"ptxas {version}: not found"):  # the rest of it lists paths
            return f"ptxas {version} is not here; get it with `tritonhook ptxas add {version}`"
        return str(error)


def _kernels(names: list[str]) -> str:
    return f"{len(names)} kernel{'' if len(names) == 1 else 's'} ({names[0]}{', ...' if len(names) > 1 else ''})"


# --- for child processes -------------------------------------------------------------------------


def to_json(policy: Policy) -> str:
    """Serialise a policy's entries and pins for child processes."""
    entries = [{**asdict(entry), "lever": entry.lever.text} for entry in policy.entries]
    return json.dumps({"path": policy.path, "entries": entries, "pins": [asdict(pin) for pin in policy.pins]})


def kept_policy(policy: Policy, out: Path) -> Path:
    """Write a policy's entries and pins into a capture folder as JSON, and return the file. Raises PolicyError if it
    cannot be written."""
    text = to_json(policy)
    path = out / "policies" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be written: {error.strerror}; choose another folder with --out") from None
    return path


def from_json(text: str) -> Policy:
    """Read the JSON of `to_json`."""
    document = json.loads(text)
    pins = (Pin(**{**values, "key": tuple(values["key"])}) for values in document.get("pins", ()))
    return Policy(tuple(map(_from_values, document["entries"])), document["path"], pins=tuple(pins))


def _from_values(values: Mapping[str, Any]) -> Entry:
    how = values["assembling"]
    assembling = None if how is None else Assembling(**{**how, "options": tuple(how["options"])})
    interval = values["interval_percent"]
    changed = {
        "lever": lever(values["lever"]),
        "interval_percent": (interval[0], interval[1]),
        "assembling": assembling,
    }
    return Entry(**{**values, **changed})
