"""One kernel that could not be compiled: `show ID`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from tritonhook._util.demangle import function_name
from tritonhook._util.files import read_given
from tritonhook._util.schema import like
from tritonhook.capture.store.schema import read_rejected
from tritonhook.report.format import flat, number, short
from tritonhook.report.result import Result
from tritonhook.report.summary import Summary, Table, Tone

_LINE = re.compile(r"line (\d+)")
_AROUND = 3  # lines of PTX before and after one that the log names
_MOST_LINES = 10  # that the log names


class RejectedKernel(Result, tag="failed kernel"):
    """A kernel that a pass of Triton or ptxas rejected, with all that is needed to report it.

    path: its folder, which has what the stages before made. stage: what was to be made. by: the ptxas, or the stage.
    error: the first one. log: all that was printed. lines: the lines of the PTX that the log names, with those around
    them, by number. ptxas, triton: versions. arguments: ptxas's options. options: what else decides the code.
    """

    verbs: ClassVar = "show CAPTURE"

    path: str
    kernel: str
    arch: str
    stage: str
    by: str
    error: str
    log: str
    lines: dict[str, str]
    ptxas: str | None
    arguments: tuple[str, ...] | None
    triton: str | None
    options: dict[str, Any]

    @classmethod
    def of(cls, folder: Path) -> RejectedKernel:
        """Raises CaptureError if it is damaged."""
        rejected = read_rejected(folder)
        ptx = folder / "kernel.ptx"
        lines = read_given(ptx).decode("utf-8", "replace").splitlines() if ptx.exists() else []
        log = rejected.text
        return like(rejected, cls, path=str(folder), log=log, lines=dict(_named(log, lines)))

    def summary(self) -> Summary:
        rows = [("target", self.arch), ("rejected by", self.by), ("Triton", number(self.triton))]
        rows += [("ptxas options", " ".join(self.arguments))] if self.arguments is not None else []
        rows += [(name, short(text, 400)) for name, text in flat(self.options)]
        rows += [("files", self.path)]
        log = tuple((line,) for line in self.log.splitlines() if line.strip())
        tables = [Table("Kernel", ("", ""), tuple(rows), 2)]
        tables += [Table("PTX at the lines that the log names", ("line", "text"), tuple(self.lines.items()), 2)] * bool(
            self.lines
        )
        verdict = f"{self.by} rejected {function_name(self.kernel)}: {self.error}"
        return Summary("Failed kernel", self.kernel, verdict, Tone.BAD, (), (*tables, Table("Log", ("",), log)))


def _named(log: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    named = list(dict.fromkeys(int(match) for match in _LINE.findall(log)))[:_MOST_LINES]
    shown = sorted({n for line in named for n in range(line - _AROUND, line + _AROUND + 1) if 0 < n <= len(lines)})
    for n in shown:
        yield str(n), ("> " if n in named else "  ") + lines[n - 1].expandtabs(4)
