"""Checks beside lines of PTX, as LLVM's FileCheck has them.

A file in tests/ptx/checks/ has cases. An empty line ends a case; in a file of rows, each line is a case.
`// CHECK: TEXT` at the end of a line is what the test must find for that line; a line without it must give nothing.
A case may begin with `//--- NAME`. Other lines that begin with `//` say what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from repository import TESTS

CHECK = " // CHECK: "


@dataclass(frozen=True)
class Case:
    """PTX without its checks, and the check of each line that has one, counted from 1."""

    name: str
    ptx: str
    checks: Mapping[int, str]

    def compare(self, found: Mapping[int, str]) -> None:
        """Fail unless the lines with a check are those that were found, and each check is in what was found."""
        lines = self.ptx.split("\n")
        wrong = [
            f"{lines[n - 1]}\n    expected: {self.checks.get(n)}\n    found:    {found.get(n)}"
            for n in sorted({*self.checks, *found})
            if n not in found or n not in self.checks or self.checks[n] not in found[n]
        ]
        assert not wrong, "\n".join([self.name, *wrong])


def cases(name: str, rows: bool = False) -> list[Case]:
    """Read the cases of tests/ptx/checks/NAME.ptx. A case without a name is called by its first line."""
    text = (TESTS / "ptx" / "checks" / f"{name}.ptx").read_text()
    return [_case(part) for part in (text.split("\n") if rows else text.split("\n\n")) if _lines(part)]


def changed(before: str, after: str) -> dict[int, str]:
    """Give the lines that a rewrite changed, as they are now. It must leave their number as it was."""
    pairs = zip(before.split("\n"), after.split("\n"), strict=True)
    return {number: new for number, (old, new) in enumerate(pairs, 1) if old != new}


def _lines(part: str) -> list[str]:
    return [line for line in part.strip("\n").split("\n") if line and (line[:2] != "//" or line[:6] == "//--- ")]


def _case(part: str) -> Case:
    first, *rest = _lines(part)
    name, lines = (first[6:], rest) if first.startswith("//--- ") else (first, [first, *rest])
    split = [line.partition(CHECK) for line in lines]
    checks = {number: check for number, (_, mark, check) in enumerate(split, 1) if mark}
    return Case(name, "\n".join(code.rstrip() for code, _, _ in split), checks)
