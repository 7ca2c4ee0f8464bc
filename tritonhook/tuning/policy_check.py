"""Check of a policy: which entries can be applied here, and to which captured kernels?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.model import Entry, Pin, read_entries, read_pins, stem, why_not_here
from tritonhook.capture.policy.winners import Winner, winners
from tritonhook.capture.selection import settings_of, titles
from tritonhook.capture.store import CaptureFolder
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import TritonHookError
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.ptxas.pool import Run
from tritonhook.tuning.candidates import Choice, Subject, choices


class State(str, Enum):
    """State of an entry.

    usable: its ptxas and its controls file are here; no captures were read. applies: it is for a captured kernel.
    applied: a captured kernel has got its lever. stale: its kernel has another PTX, ptxas or code now. unusable: its
    ptxas or its controls file is not here. not seen: no captured kernel has its name, or each of those has an entry of
    its own: a kernel can have several, for other types or configurations.
    """

    USABLE = "usable"
    APPLIES = "applies"
    APPLIED = "applied"
    STALE = "stale"
    UNUSABLE = "unusable"
    NOT_SEEN = "not seen"

    @property
    def is_trouble(self) -> bool:
        return self in (State.STALE, State.UNUSABLE)


@dataclass(frozen=True, slots=True)
class Checked:
    """An entry and its use. reason: why it is not applied; "" if it is. title: what the captured kernel that
    it is for is called among the others, with its configuration; "" if unknown."""

    entry: Entry
    state: State
    reason: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class CheckedPin:
    """A pin and what becomes of it. applies: the captured tuning has the same winner. stale: it has another one, or the
    function or its configurations have changed. not seen: no captured tuning of this function and key."""

    pin: Pin
    state: State
    reason: str = ""


def policy_here(path: Path) -> tuple[list[Checked], list[CheckedPin]]:
    """List the entries of a policy, each with whether what it needs is installed, and its pins. Raises PolicyError if
    there is no policy."""
    entries, pins = read_entries(path), read_pins(path)
    pairs = [(entry, why_not_here(entry, path)) for entry in entries]
    checked = [Checked(entry, State.UNUSABLE if why else State.USABLE, why or "") for entry, why in pairs]
    return checked, [CheckedPin(pin, State.USABLE) for pin in pins]


def pins_against(path: Path, folder: CaptureFolder) -> list[CheckedPin]:
    """Compare the pins of a policy with the tunings of a capture folder: which winners changed? Raises PolicyError."""
    pins, seen = read_pins(path), {(won.function, won.arch, won.key): won for won in winners(folder)}
    return [_pin_beside(pin, seen.get((pin.function, pin.arch, pin.key))) for pin in pins]


def _pin_beside(pin: Pin, won: Winner | None) -> CheckedPin:
    if won is None:
        return CheckedPin(
            pin, State.NOT_SEEN, "no autotuning of it was captured: its winner came from a pin or a cache"
        )
    if won.config == pin.config and pin.source is not None and won.source not in (None, pin.source):
        return CheckedPin(pin, State.STALE, "the source of the function has changed; pin it again")
    if pin.config not in won.among:
        return CheckedPin(pin, State.STALE, "the function has no such configuration any more; pin it again")
    changed = "" if won.config == pin.config else f"{won.config} wins now"
    return CheckedPin(pin, State.STALE if changed else State.APPLIES, changed)


def against_captures(path: Path, captures: Iterable[Capture], run: Run) -> list[Checked]:
    """Match the entries of a policy with captured kernels. Each match is assembled under its lever, and must give the
    certified code. Raises PolicyError if there is no policy."""
    captures = list(captures)
    names = [function_name(own.rewritten_from or own.kernel) for own in captures]
    called = titles({n: (names[n], own.arch, settings_of(own.options)) for n, own in enumerate(captures)})
    seen = [_Seen.of(capture, called[number]) for number, capture in enumerate(captures)]
    entries = read_entries(path)
    stems = [stem(entry.kernel) for entry in entries]
    checked, subjects = list[Checked](), dict[int, Subject]()
    for number, entry in enumerate(entries):
        own = [kernel for kernel in seen if kernel.name == (stems[number], entry.arch, entry.front_end)]
        siblings = [other for other, name in zip(entries, stems, strict=True) if name == stems[number]]
        why, plain = why_not_here(entry, path), next((one.capture for one in own if one.ptx == entry.ptx), None)
        state, reason = (State.UNUSABLE, why) if why else _beside(entry, own, siblings, plain)
        checked.append(Checked(entry, state, reason, next((one.title for one in own if one.is_for(entry)), "")))
        if state is State.APPLIES and plain is not None:
            with suppress(TritonHookError):  # e.g. the CuTe DSL's cannot be assembled here
                subjects[number] = Subject.of(plain)
    wanted = [(subject, (entries[number].lever,)) for number, subject in subjects.items()]
    made = dict(zip(subjects, choices(wanted, run, path.absolute().parent), strict=True))
    return [_judged(each, made[number]) if number in made else each for number, each in enumerate(checked)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A captured kernel. title: among the others. name: without the number, with architecture and front end. ptx: the
    hash of its PTX, as in entries; None without PTX, or where a lever changed it. code: the hash of its code, where it
    has a lever."""

    capture: Capture
    title: str
    name: tuple[str, str, str]
    ptx: str | None
    code: str | None

    @classmethod
    def of(cls, capture: Capture, title: str) -> _Seen:
        text, lever = capture.text(Stage.PTX), capture.lever
        name = stem(capture.rewritten_from or capture.kernel), capture.arch, capture.front_end
        ptx = None if text is None or lever is not None else normal_sha256(text, capture.kernel)
        has_code = lever is not None and Stage.CUBIN in capture.artifacts
        code = summarise_image(capture.cubin, {}).code_hash(capture.kernel) if has_code else None
        return cls(capture, title, name, ptx, code)

    def has_lever(self, entry: Entry) -> bool:
        return self.capture.lever == entry.lever.text and self.code == entry.code

    def is_for(self, entry: Entry) -> bool:
        return self.has_lever(entry) or self.ptx == entry.ptx


def _beside(
    entry: Entry, named: Sequence[_Seen], siblings: Sequence[Entry], plain: Capture | None
) -> tuple[State, str]:
    """Compare an entry with the captured kernels of its name. siblings: all entries of this name. plain: the capture
    with the entry's PTX."""
    if not named:
        return State.NOT_SEEN, f"no captured {entry.front_end} kernel of this name for {entry.arch}"
    if any(kernel.has_lever(entry) for kernel in named):
        return State.APPLIED, ""
    if plain is None:
        if all(any(kernel.is_for(other) for other in siblings) for kernel in named):
            return State.NOT_SEEN, "each captured kernel of this name has another entry"
        what = "no captured kernel of this name has its PTX"
        return State.STALE, f"{what}; if it has changed, tune again and remove this block"
    if plain.assembler.version != entry.ptxas:
        version = plain.assembler.version or "an unknown version"
        return State.STALE, f"its ptxas is {version} now, and was {entry.ptxas}; tune again"
    return State.APPLIES, ""


def _judged(checked: Checked, choice: Choice | TritonHookError) -> Checked:
    if isinstance(choice, TritonHookError):
        return replace(checked, state=State.STALE, reason=str(choice))
    codes = [candidate.code_hash for candidate in choice.others]
    if codes == [checked.entry.code]:
        return checked
    reason = choice.dropped[0].reason if choice.dropped else f"its lever gives the code {codes[0]} now"
    return replace(checked, state=State.STALE, reason=f"{reason}; tune again")
