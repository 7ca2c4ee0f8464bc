"""Rewrites that add directives to entries, and the two triggers that switch ptxas to its other instruction scheduler.

ThroughputPragma adds `.pragma "mma_throughput"`, which makes ptxas use its other scheduler, as "cutlass" in an entry's
name does. The entry keeps its name, so that launchers and host code need no change. ptxas 13.3 and newer support the
pragma, in modules of PTX ISA 9.3 and newer; the rewrite raises a lower `.version`. The pragma is in an entry's body and
affects only that entry. Line numbers stay the same.

RegisterLimit adds `.maxnreg`. Trigger records which of the two triggers an entry has: the pragma, or "cutlass" in its
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx, bodies, edited, reaching, statements
from tritonhook.ptx.tokens import Span

NAME = "mma-throughput"
PRAGMA = "mma_throughput"
PTX_VERSION = "9.3"  # the first PTX version that allows the pragma
PTXAS_VERSION = "13.3"  # the first ptxas that supports the pragma
_OLDEST_TARGET = 75  # sm_75, the oldest target of ptxas 13 and therefore of PTX ISA 9.3
DIRECTIVE = f'.pragma "{PRAGMA}";'


@dataclass(frozen=True, slots=True)
class ThroughputPragma:
    """Adds the pragma to the body of each entry that lacks it.

    entries: the entries to change; None: all entries with a body.
    """

    entries: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        return f"{NAME}-1" if self.entries is None else f"{NAME}-1:{','.join(sorted(self.entries))}"

    def apply(self, ptx: Ptx) -> Ptx:
        """Return the module with the pragma added; the same object if each requested entry already has it.

        Raises PtxError if a requested entry is missing or only declared, or if PTX ISA 9.3 lacks the module's target.
        """
        wanted = self._wanted(ptx)
        missing = wanted.keys() - set(entries_with_pragma(ptx))
        if not missing:
            return ptx
        _check_target(ptx)
        changed = edited(ptx, [(Span("", wanted[entry]), f" {DIRECTIVE}") for entry in missing])
        return changed.with_directives(max(ptx.version, PTX_VERSION, key=version_key))

    def why_not(self, ptxas_version: str) -> str | None:
        """Return the reason why a ptxas of this version does not accept the pragma, with two remedies; None if it
        accepts the pragma."""
        if version_key(ptxas_version) >= version_key(PTXAS_VERSION):
            return None
        return (
            f"{NAME} needs ptxas {PTXAS_VERSION} or newer, and this is {ptxas_version}; use a newer one "
            "(ptxas='13.5.37', --ptxas 13.5.37), or give the kernel a name with \"cutlass\" (rename='cutlass_', "
            "--prefix cutlass_)"
        )

    def remarks(self, ptx: Ptx) -> tuple[str, ...]:
        """Describe the rewrite, with one line for the entries that get the pragma, one for those that already have it,
        and one for those that are only declared."""
        wanted, having = self._wanted(ptx), set(entries_with_pragma(ptx))
        there = [entry for entry in wanted if entry in having]
        added = [entry for entry in wanted if entry not in having]
        declared = [] if self.entries else [entry for entry in ptx.entries if entry not in wanted]
        remarks = (
            (added, f'.pragma "{PRAGMA}" added'),
            (there, f'.pragma "{PRAGMA}" is there already'),
            (declared, "only declared here, without a body for the pragma"),
        )
        return tuple(f"{', '.join(entries)}: {remark}" for entries, remark in remarks if entries)

    def _wanted(self, ptx: Ptx) -> dict[str, int]:
        """Map each requested entry to the position at which its body begins. Raises PtxError."""
        begin = bodies(ptx)
        for entry in self.entries or ():
            if entry not in begin:
                ptx.only_entry(entry)
                raise PtxError(f"entry {entry!r} is only declared here; rewrite the module that has its body")
        wanted = ptx.entries if self.entries is None else self.entries
        return {entry: begin[entry].begin for entry in wanted if entry in begin}


def entries_with_pragma(ptx: Ptx) -> tuple[str, ...]:
    """List the entries that have the pragma in their body, in the module's order."""
    if PRAGMA not in ptx.text:
        return ()
    having = set(functions_with_pragma(ptx))
    return tuple(entry for entry in ptx.entries if entry in having)


def functions_with_pragma(ptx: Ptx) -> Iterator[str]:
    """Yield the entries and functions that have the pragma in their body, once per occurrence."""
    for statement in statements(ptx):
        if statement.opcode == ".pragma":
            end = ptx.text.find(";", statement.position)  # a pragma's string has no semicolon
            if f'"{PRAGMA}"' in ptx.text[statement.position : end]:
                yield statement.function


def _check_target(ptx: Ptx) -> None:
    number = re.search(r"\d+", ptx.target)
    if number is None or int(number[0]) < _OLDEST_TARGET:
        raise PtxError(
            f'.target {ptx.target}: .pragma "{PRAGMA}" needs PTX ISA {PTX_VERSION}, whose oldest target is '
            f'sm_{_OLDEST_TARGET}; give the entry a name with "cutlass" instead'
        )


# --- a register limit -----------------------------------------------------------------------------


_DIRECTIVE = re.compile(r"\.maxnreg\s+(\d+)")
SMALLEST, LARGEST = 16, 255  # register limits that ptxas accepts


@dataclass(frozen=True, slots=True)
class RegisterLimit:
    """Sets `.maxnreg N` in each entry with a body; an existing `.maxnreg` is replaced."""

    registers: int

    @property
    def key(self) -> str:
        return f"maxnreg-1:{self.registers}"

    def apply(self, ptx: Ptx) -> Ptx:
        """Return the module with the limit; the same object if each entry already has it. Raises PtxError if the limit
        is invalid."""
        if not SMALLEST <= self.registers <= LARGEST:
            raise PtxError(f".maxnreg {self.registers}: give a number from {SMALLEST} to {LARGEST}")
        edits, new = [], f".maxnreg {self.registers}"
        for body in (body for entry, body in bodies(ptx).items() if entry in ptx.entries):
            brace = body.begin - 1
            if match := _DIRECTIVE.search(body.header):
                edits.append((Span(match[0], brace - len(body.header) + match.start()), new))
            else:
                edits.append((Span("", brace), f"{new} "))
        return edited(ptx, edits)


TRIGGER = "cutlass"  # ptxas looks for this string in an entry's own name, in lower case only


@dataclass(frozen=True, slots=True)
class Trigger:
    """What makes ptxas use its other scheduler for an entry. name: True if the entry's name contains "cutlass". pragma:
    True if the entry has the pragma; None if that is not known."""

    name: bool
    pragma: bool | None


def trigger_of(entry: str, text: str | None, ptxas: str | None) -> Trigger:
    """Find the trigger of one entry; arguments as in `triggers_of`."""
    return triggers_of([entry], text, ptxas)[entry]


def triggers_of(entries: Sequence[str], text: str | None, ptxas: str | None) -> dict[str, Trigger]:
    """Find the trigger of each entry. text: their PTX module, or None. ptxas: version of the ptxas that made the code,
    or None.

    An entry has the pragma if it is in the entry's body or in a function that the entry calls. If the ptxas does not
    support the pragma, `pragma` is False.
    """
    if ptxas is not None and version_key(ptxas) < version_key(PTXAS_VERSION):
        having: dict[str, bool] | None = dict.fromkeys(entries, False)
    else:
        having = None if text is None else _with_pragma(entries, text)
    return {entry: Trigger(TRIGGER in entry, None if having is None else having.get(entry)) for entry in entries}


def _with_pragma(entries: Sequence[str], text: str) -> dict[str, bool]:
    """Map each entry in the text to whether it has the pragma; empty if the text is not PTX."""
    if PRAGMA not in text:
        return dict.fromkeys(entries, False)
    try:
        ptx = Ptx(text)
    except PtxError:
        return {}
    having, there = reaching(ptx, functions_with_pragma(ptx)), set(ptx.entries)
    return {entry: entry in having for entry in entries if entry in there}
