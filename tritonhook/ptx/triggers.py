"""Trigger: what makes ptxas take its other scheduler for an entry: `cutlass` in its name, or the pragma
`mma_throughput`. Read from name and PTX; whether ptxas then gave other code is for `compare` to say."""

from __future__ import annotations

from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.statements import reached_functions
from tritonhook.ptx.throughput_pragma import PRAGMA, PTXAS_VERSION, functions_with_pragma

TRIGGER = "cutlass"  # ptxas looks for this word in an entry's own name, in lower case only


@dataclass(frozen=True, slots=True)
class Trigger:
    """name: whether the entry's name has the word. pragma: whether the entry has the pragma; None: not known."""

    name: bool
    pragma: bool | None


def trigger_of(entry: str, text: str | None, ptxas: str | None) -> Trigger:
    """The trigger of an entry. text: of its PTX module; None if there is none. ptxas: the version that made the code.

    The pragma counts in the entry's body, and in that of a function that the entry calls. No code of a ptxas that does
    not know the pragma can have it.
    """
    if ptxas is not None and version_key(ptxas) < version_key(PTXAS_VERSION):
        return Trigger(TRIGGER in entry, False)
    return Trigger(TRIGGER in entry, None if text is None else _has_pragma(entry, text))


def _has_pragma(entry: str, text: str) -> bool | None:
    if PRAGMA not in text:
        return False
    try:
        ptx = Ptx(text)
        ptx.only_entry(entry)
    except PtxError:  # a text that cannot be read, or of another kernel
        return None
    return not {entry, *reached_functions(ptx)[entry]}.isdisjoint(functions_with_pragma(ptx))
