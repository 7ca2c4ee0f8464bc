"""Check a policy: which of its entries and pins can be applied on this machine, and which fit captured kernels?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tritonhook._util.demangle import function_name
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.policy.model import Entry, Pin, read_blocks, stem, why_not_here
from tritonhook.capture.policy.winners import Winner
from tritonhook.capture.selection import settings_of, titles
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import TritonHookError
from tritonhook.ptx.normal_form import normal_sha256
from tritonhook.ptxas.pool import Run
from tritonhook.tuning.candidates import Choice, Subject, choices


class State(str, Enum):
    """State of an entry of a policy, or of a pin.

    usable: its ptxas and its controls file are installed; no captures were read. applies: a captured kernel has the
    entry's PTX. applied: a captured kernel was compiled with the entry's lever. stale: its kernel has another PTX,
    ptxas or code now. unusable: its ptxas or its controls file is missing. not seen: no captured kernel has its name,
    or each kernel of this name fits another entry. A kernel can have several entries, for other types or
    configurations."""

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
    """An entry and its state. reason: why it is not applied; "" if it is. title: name of its captured kernel, with the
    settings that distinguish it from the others; "" if unknown."""

    entry: Entry
    state: State
    reason: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class CheckedPin:
    """A pin and its state. applies: the captured autotuning has the same winner. stale: it has another winner, or the
    function or its configurations have changed. not seen: no autotuning of this function and key was captured."""

    pin: Pin
    state: State
    reason: str = ""


def policy_here(path: Path) -> tuple[list[Checked], list[CheckedPin]]:
    """Read a policy. Returns its entries, each USABLE or UNUSABLE on this machine, and its pins. Raises PolicyError if
    there is no policy."""
    entries, pins = read_blocks(path)
    pairs = [(entry, why_not_here(entry, path)) for entry in entries]
    checked = [Checked(entry, State.UNUSABLE if why else State.USABLE, why or "") for entry, why in pairs]
    return checked, [CheckedPin(pin, State.USABLE) for pin in pins]


def pins_against(pins: Iterable[CheckedPin], won: Iterable[Winner]) -> list[CheckedPin]:
    """Compare pins with the winners of captured autotunings: which winners changed?"""
    seen = {(one.function, one.arch, one.key): one for one in won}
    return [_pin_beside(one.pin, seen.get((one.pin.function, one.pin.arch, one.pin.key))) for one in pins]


def _pin_beside(pin: Pin, won: Winner | None) -> CheckedPin:
    if won is None:
        return CheckedPin(
            pin, State.NOT_SEEN, "no autotuning of this function was captured: its winner came from a pin or a cache"
        )
    if won.config == pin.config and pin.source is not None and won.source not in (None, pin.source):
        return CheckedPin(pin, State.STALE, "the source of the function has changed; pin it again")
    if pin.config not in won.among:
        return CheckedPin(pin, State.STALE, "the function has no such configuration any more; pin it again")
    changed = "" if won.config == pin.config else f"{won.config} wins now"
    return CheckedPin(pin, State.STALE if changed else State.APPLIES, changed)


def against_captures(here: Sequence[Checked], captures: Iterable[Capture], run: Run, folder: Path) -> list[Checked]:
    """Match the entries of a policy with captured kernels. Each match is assembled under its lever, and must give the
    certified code. here: the entries, as policy_here returns them. folder: the policy's folder; paths of controls files
    are relative to it."""
    captures = list(captures)
    names = [function_name(own.rewritten_from or own.kernel) for own in captures]
    called = titles({n: (names[n], own.arch, settings_of(own.options)) for n, own in enumerate(captures)})
    seen = [_Seen.of(capture, called[number]) for number, capture in enumerate(captures)]
    stems = [stem(one.entry.kernel) for one in here]
    checked, subjects = list[Checked](), dict[int, Subject]()
    for number, (one, name) in enumerate(zip(here, stems, strict=True)):
        entry, state, reason = one.entry, one.state, one.reason
        own = [kernel for kernel in seen if kernel.name == (name, entry.arch, entry.front_end)]
        plain = next((kernel.capture for kernel in own if kernel.ptx == entry.ptx), None)
        if state is not State.UNUSABLE:
            siblings = [other.entry for other, its in zip(here, stems, strict=True) if its == name]
            state, reason = _beside(entry, own, siblings, plain)
        title = next((kernel.title for kernel in own if kernel.is_for(entry)), "")
        checked.append(Checked(entry, state, reason, title))
        if state is State.APPLIES and plain is not None:
            with suppress(TritonHookError):  # e.g. kernels of the CuTe DSL cannot be assembled here
                subjects[number] = Subject.of(plain)
    wanted = [(subject, (here[number].entry.lever,)) for number, subject in subjects.items()]
    made = dict(zip(subjects, choices(wanted, run, folder), strict=True))
    return [_judged(each, made[number]) if number in made else each for number, each in enumerate(checked)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A captured kernel. title: as in Checked. name: stem of its name, architecture, front end. ptx: hash of its PTX,
    as in entries; None if the capture has no PTX, or a lever changed it. code: hash of its machine code; only for a
    kernel with a lever."""

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
    """Compare an entry with the captured kernels of its name. siblings: all entries of this name. plain: the captured
    kernel with the entry's PTX. Returns the state and its reason."""
    if not named:
        return State.NOT_SEEN, f"no captured {entry.front_end} kernel of this name for {entry.arch}"
    if any(kernel.has_lever(entry) for kernel in named):
        return State.APPLIED, ""
    if plain is None:
        if all(any(kernel.is_for(other) for other in siblings) for kernel in named):
            return State.NOT_SEEN, "each captured kernel of this name has another entry"
        what = "no captured kernel of this name has the entry's PTX"
        return State.STALE, f"{what}; if the kernel has changed, tune again and remove this block"
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
