"""Trigger: what makes ptxas take its other scheduler for an entry: `cutlass` in its name, or the pragma
`mma_throughput`. Read from name and PTX; whether ptxas then gave other code is for `compare` to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import reaching
from tritonhook.ptx.throughput_pragma import PRAGMA, PTXAS_VERSION, functions_with_pragma

TRIGGER = "cutlass"  # ptxas looks for this word in an entry's own name, in lower case only


@dataclass(frozen=True, slots=True)
class Trigger:
    """name: whether the entry's name contains `cutlass`. pragma: whether the entry has the pragma; None: not known."""

    name: bool
    pragma: bool | None


def trigger_of(entry: str, text: str | None, ptxas: str | None) -> Trigger:
    """The trigger of an entry, as in triggers_of."""
    return triggers_of([entry], text, ptxas)[entry]


def triggers_of(entries: Sequence[str], text: str | None, ptxas: str | None) -> dict[str, Trigger]:
    """The trigger of each of these entries. text: of their PTX module; None if there is none. ptxas: the version that
    made the code.

    The pragma counts in the entry's body, and in that of a function that the entry calls. No code of a ptxas that does
    not know the pragma can have it.
    """
    if ptxas is not None and version_key(ptxas) < version_key(PTXAS_VERSION):
        having: dict[str, bool] | None = dict.fromkeys(entries, False)
    else:
        having = None if text is None else _with_pragma(entries, text)
    return {entry: Trigger(TRIGGER in entry, None if having is None else having.get(entry)) for entry in entries}


def _with_pragma(entries: Sequence[str], text: str) -> dict[str, bool]:
    """Whether each entry has the pragma; without those that the text does not have, or if it cannot be read."""
    if PRAGMA not in text:
        return dict.fromkeys(entries, False)
    try:
        ptx = Ptx(text)
    except PtxError:
        return {}
    having, there = reaching(ptx, functions_with_pragma(ptx)), set(ptx.entries)
    return {entry: entry in having for entry in entries if entry in there}
