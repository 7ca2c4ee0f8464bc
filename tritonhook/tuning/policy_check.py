"""Check of a policy: which entries can be applied here, and to which captured kernels?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def entries_here(path: Path) -> list[Checked]:
    """List the entries of a policy, and whether what each needs is installed. Raises PolicyError if there is no
    policy."""
    pairs = [(entry, why_not_here(entry, path)) for entry in read_entries(path)]
    return [Checked(entry, State.UNUSABLE if why else State.USABLE, why or "") for entry, why in pairs]


@dataclass(frozen=True, slots=True)
class CheckedPin:
    """A pin and what becomes of it. applies: the captured tuning has the same winner. stale: it has another one, or the
    function or its configurations have changed. not seen: no captured tuning of this function and key."""

    pin: Pin
    state: State
    reason: str = ""


def pins_here(path: Path) -> list[CheckedPin]:
    """List the pins of a policy. Raises PolicyError if there is no policy."""
    return [CheckedPin(pin, State.USABLE) for pin in read_pins(path)]


def pins_against(path: Path, folder: CaptureFolder) -> list[CheckedPin]:
    """Compare the pins of a policy with the tunings of a capture folder: which winners changed? Raises PolicyError."""
    seen = {(won.function, won.arch, won.key): won for won in winners(folder)}
    return [_pin_beside(pin, seen.get((pin.function, pin.arch, pin.key))) for pin in read_pins(path)]


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
    seen = [_Seen.of(capture) for capture in captures]
    names = [function_name(own.rewritten_from or own.kernel) for own in (kernel.capture for kernel in seen)]
    called = titles({n: (names[n], own.capture.arch, settings_of(own.capture.options)) for n, own in enumerate(seen)})
    here = entries_here(path)
    entries = [each.entry for each in here]
    beside = [_beside(each, seen, entries) if each.state is State.USABLE else each for each in here]
    judged = []
    for each in _assembled(beside, seen, path.absolute().parent, run):
        mine = (n for n, own in enumerate(seen) if own.is_named(each.entry) and own.is_for(each.entry))
        judged.append(replace(each, title=called.get(next(mine, -1), "")))
    return judged


@dataclass(frozen=True, slots=True)
class _Seen:
    """A captured kernel. ptx: the hash of its PTX, as in entries; None without PTX, or where a lever changed it. code:
    the hash of its code, where it has a lever."""

    capture: Capture
    ptx: str | None
    code: str | None

    @classmethod
    def of(cls, capture: Capture) -> _Seen:
        text, lever = capture.text(Stage.PTX), capture.lever
        ptx = None if text is None or lever is not None else normal_sha256(text, capture.kernel)
        has_code = lever is not None and Stage.CUBIN in capture.artifacts
        return cls(capture, ptx, summarise_image(capture.cubin, {}).code_hash(capture.kernel) if has_code else None)

    def is_named(self, entry: Entry) -> bool:
        capture = self.capture
        name = stem(capture.rewritten_from or capture.kernel)
        return (name, capture.arch, capture.front_end) == (stem(entry.kernel), entry.arch, entry.front_end)

    def has_lever(self, entry: Entry) -> bool:
        return self.capture.lever == entry.lever.text and self.code == entry.code

    def is_for(self, entry: Entry) -> bool:
        return self.has_lever(entry) or self.ptx == entry.ptx


def _beside(checked: Checked, seen: Sequence[_Seen], entries: Sequence[Entry]) -> Checked:
    entry = checked.entry
    named = [kernel for kernel in seen if kernel.is_named(entry)]
    if not named:
        return Checked(entry, State.NOT_SEEN, f"no captured {entry.front_end} kernel of this name for {entry.arch}")
    if any(kernel.has_lever(entry) for kernel in named):
        return Checked(entry, State.APPLIED)
    same = _plain_of(entry, named)
    if same is None:
        siblings = [other for other in entries if stem(other.kernel) == stem(entry.kernel)]
        if all(any(kernel.is_for(other) for other in siblings) for kernel in named):
            return Checked(entry, State.NOT_SEEN, "each captured kernel of this name has another entry")
        return Checked(
            entry,
            State.STALE,
            "no captured kernel of this name has its PTX; if it has changed, tune again and remove this block",
        )
    if same.assembler.version != entry.ptxas:
        version = same.assembler.version or "an unknown version"
        return Checked(entry, State.STALE, f"its ptxas is {version} now, and was {entry.ptxas}; tune again")
    return Checked(entry, State.APPLIES)


def _plain_of(entry: Entry, seen: Sequence[_Seen]) -> Capture | None:
    """Find the capture with the entry's PTX."""
    return next((kernel.capture for kernel in seen if kernel.is_named(entry) and kernel.ptx == entry.ptx), None)


def _assembled(entries: Sequence[Checked], seen: Sequence[_Seen], folder: Path, run: Run) -> list[Checked]:
    """Assemble the entries that apply under their lever. Kernels that cannot be assembled here, e.g. the CuTe DSL's,
    stay unchanged."""
    subjects: dict[int, Subject] = {}
    for number, each in enumerate(entries):
        if each.state is State.APPLIES and (capture := _plain_of(each.entry, seen)) is not None:
            try:
                subjects[number] = Subject.of(capture)
            except TritonHookError:
                continue
    wanted = [(subject, (entries[number].entry.lever,)) for number, subject in subjects.items()]
    made = dict(zip(subjects, choices(wanted, run, folder), strict=True))
    return [_judged(each, made[number]) if number in made else each for number, each in enumerate(entries)]


def _judged(checked: Checked, choice: Choice | TritonHookError) -> Checked:
    if isinstance(choice, TritonHookError):
        return Checked(checked.entry, State.STALE, str(choice))
    codes = [candidate.code_hash for candidate in choice.others]
    if codes == [checked.entry.code]:
        return checked
    reason = choice.dropped[0].reason if choice.dropped else f"its lever gives the code {codes[0]} now"
    return Checked(checked.entry, State.STALE, f"{reason}; tune again")
