"""Schema and reader of the executions whose stored bits `tritonhook verify` compares. children/bits.py writes them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tritonhook._util.schema import Fields
from tritonhook.capture.dry_run.gpu import EXECUTIONS, REFUSED
from tritonhook.errors import UsageError


class Kept(Fields):
    """One buffer after an execution. data: file with its contents. at: the instructions that stored the first differing
    element. offset: bytes from the start of the buffer to the tensor. stride: the tensor's strides; null: contiguous.
    changed: whether the kernel changed the buffer."""

    name: str
    dtype: str
    data: str
    at: str = ""
    offset: int = 0
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] | None = None
    changed: bool = True


class Execution(Fields):
    """One execution of a kernel. kind: the comparison that it belongs to, e.g. orders. call: executions with the same
    number are compared. settings: the kernel's settings, as text. rows: number of rows that the function was called
    with. undefined: masked loads without `other` whose value was used. ptx: PTX of the kernel; only in the execution of
    that stage."""

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
    """Read the executions that a dry run has written. Raises UsageError if the dry run refused to compare."""
    path = folder / EXECUTIONS
    if not path.exists():
        return []
    made = [msgspec.json.decode(line, type=Execution) for line in path.read_bytes().splitlines()]
    for one in made:
        if one.kind == REFUSED:
            raise UsageError(one.reason)
    return made
