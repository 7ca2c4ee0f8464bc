"""The schema of executions whose stored bits are compared, as children/bits.py writes them, and reading it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tritonhook._util.schema import Fields
from tritonhook.capture.dry_run.gpu import EXECUTIONS, REFUSED
from tritonhook.errors import UsageError


class Kept(Fields):
    """One buffer after an execution. data: its file. at: the instructions that stored other bits first. offset: of the
    tensor in the buffer, in bytes. stride: null: contiguous. changed: by the kernel."""

    name: str
    dtype: str
    data: str
    at: str = ""
    offset: int = 0
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] | None = None
    changed: bool = True


class Execution(Fields):
    """One execution, as children/bits.py writes it. call: executions with the same number are compared. settings: of
    the kernel, for people. rows: how many the function had. undefined: loads without `other` whose value was used. ptx:
    of the kernel, with the stage that executes it."""

    kind: str
    kernel: str
    call: int
    label: str
    buffers: list[Kept]
    launch: str = ""
    reason: str = ""
    settings: str = ""
    rows: int = 0
    undefined: tuple[str, ...] = ()
    ptx: str = ""


def read_executions(folder: Path) -> list[Execution]:
    """Read what a dry run has kept. Raises UsageError for what it refused."""
    path = folder / EXECUTIONS
    if not path.exists():
        return []
    made = [msgspec.json.decode(line, type=Execution) for line in path.read_bytes().splitlines()]
    for one in made:
        if one.kind == REFUSED:
            raise UsageError(one.reason)
    return made
