"""Findings of the sanitizer in a dry run: suppress known ones, and pass the others from child processes to `run` and
`check`.

Suppressions are read from a TOML file. Each key is a name or a glob; a missing key matches everything:

    [[suppress]]
    kernel = "scan_*"
    kind = "race"
    line = "kernels.py:17"   # source line; if it is not known, the line of the PTX, e.g. "212"
    reason = "threads write the same flag"
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tritonhook._util.toml import read_settings
from tritonhook.capture.dry_run.gpu import Emulation
from tritonhook.errors import UsageError, did_you_mean

_KEYS = ("kernel", "kind", "line", "reason")


@dataclass(frozen=True, slots=True)
class Suppression:
    """One suppression. kernel, kind, line: names or globs. reason: for readers of the file."""

    kernel: str = "*"
    kind: str = "*"
    line: str = "*"
    reason: str = ""

    def covers(self, kernel: str, kind: str, lines: Iterable[str]) -> bool:
        """Check whether the suppression matches a finding. lines: lines of the finding's accesses; at least one must
        match."""
        return (
            fnmatchcase(kernel, self.kernel)
            and fnmatchcase(kind, self.kind)
            and any(fnmatchcase(line, self.line) for line in lines)
        )

    def __str__(self) -> str:
        own = {name: getattr(self, name) for name in _KEYS[:3] if getattr(self, name) != "*"}
        return ", ".join(f'{name} = "{value}"' for name, value in own.items())


def read_suppressions(path: Path) -> tuple[Suppression, ...]:
    """Read a file of suppressions. Raises UsageError if the file is not valid."""
    entries = read_settings(path).get("suppress", [])
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path}: no suppressions: give tables [[suppress]] with {', '.join(_KEYS)}")
    for entry in entries:
        if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
            raise UsageError(f"{path}: {entry!r}: give a table with text values")
        if unknown := [key for key in entry if key not in _KEYS]:
            raise UsageError(f"{path}: no such key: {unknown[0]}{did_you_mean(unknown[0], _KEYS)}")
        if not {"kernel", "kind", "line"} & set(entry):
            raise UsageError(f"{path}: this suppression would match everything: give kernel, kind or line")
    return tuple(Suppression(**entry) for entry in entries)


@dataclass(slots=True)
class Found:
    """Findings of the sanitizer. Findings with equal kernel, kind, lines and label are stored once. suppressions:
    suppressions to apply. handed_to: file that passes findings to another process; "" for none. used: indices of
    suppressions that matched a finding. texts: findings that were added since the last `forget` and not suppressed."""

    suppressions: Sequence[Suppression] = ()
    handed_to: str = ""
    used: set[int] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    _seen: set[tuple[str, str, tuple[str, ...], str]] = field(default_factory=set)

    @classmethod
    def in_file(cls, suppressions: Sequence[Suppression]) -> Found:
        """Make a Found with a temporary file for the findings of other processes. `take` removes the file."""
        handle, path = tempfile.mkstemp(prefix="tritonhook-findings-")
        os.close(handle)
        return cls(suppressions, path)

    @property
    def emulation(self) -> Emulation:
        """The settings with which other processes write their findings to this file."""
        return Emulation(True, suppressions=tuple(astuple(one) for one in self.suppressions), findings=self.handed_to)

    def begin(self, emulation: Emulation) -> None:
        """Use the suppressions and the file of the process that will read the findings."""
        self.suppressions = [Suppression(*one) for one in emulation.suppressions]
        self.handed_to = emulation.findings

    def add(self, kernel: str, kind: str, lines: Sequence[str], text: str, label: str = "") -> None:
        """Add a finding, unless it is a duplicate. text: message with the kernel's name. label: names the settings with
        which the kernel was tried."""
        key = kernel, kind, tuple(lines), label
        if key in self._seen:
            return
        self._seen.add(key)
        covering = (n for n, one in enumerate(self.suppressions) if one.covers(kernel, kind, lines))
        if (number := next(covering, None)) is not None:
            self.used.add(number)
        else:
            self.texts.append(text)
        self._hand_on({"finding": [kernel, kind, list(lines), text, label]})

    def forget(self) -> None:
        """Clear the findings, so that the same findings are added again."""
        self._seen.clear()
        self.texts.clear()

    def note(self, text: str) -> None:
        """Pass on a note about something that was not checked."""
        self._hand_on({"note": text})

    def _hand_on(self, line: object) -> None:
        if self.handed_to:
            data = (json.dumps(line) + "\n").encode()
            file = os.open(self.handed_to, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, data)
            finally:
                os.close(file)

    def unused(self) -> Iterator[str]:
        """Yield a message for each suppression that matched no finding."""
        for number, one in enumerate(self.suppressions):
            if number not in self.used:
                yield f"unused suppression: {one}"

    def take(self) -> tuple[list[str], list[str]]:
        """Read the file of other processes and remove it. Returns (findings that are not suppressed, notes)."""
        path, notes = Path(self.handed_to), dict[str, None]()
        taken = Found(self.suppressions)
        for line in path.read_text().splitlines() if path.is_file() else ():
            one = json.loads(line)
            if "note" in one:
                notes[one["note"]] = None
            else:
                taken.add(*one["finding"])
        path.unlink(missing_ok=True)
        self.used |= taken.used
        return taken.texts, [*notes, *self.unused()]


found = Found()  # the findings of this process
