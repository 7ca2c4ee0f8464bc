"""The schema of a lock file, and its reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from tritonhook._util import schema
from tritonhook._util.schema import Count, DocumentError, Fields, Hash, Positive, Sha256, Version, Word
from tritonhook.errors import SnapshotError

FORMAT = 1
Seal = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8}\Z")]


class LockedKernel(Fields, forbid_unknown_fields=True):
    """One kernel of a lock. Unknown figures are omitted.

    entry: its name in the PTX, if different. number: distinguishes kernels with the same name, arch and specialisation.
    rewrites: tritonhook's changes of the PTX, if any. dry_run: whether it was compiled without a GPU and not launched.
    configuration: the configuration of an autotuner that tried several. commands: the scripts, modules or programs that
    compiled it. ptx: hash of its PTX, and name of the file in the lock's folder. ptxas, options: version and options of
    the ptxas that assembled it. stages: hashes of the compiler's output at earlier stages. codes: hashes of the machine
    code; several if ptxas is not deterministic for it. executed: warp instructions of the launch. sectors: requested
    sectors of global memory. conflicts: excess wavefronts of shared memory. launch: shape of the launch that was
    executed for these counters and for bits. classes: instructions by class of work. launch_bounds: threads and
    clusters that its launches must have or must not exceed. loaded: hashes of the other data that the driver loads.
    bits: hash of the bytes that it stores for seeded inputs, emulated. seal: hash of all these values.
    """

    name: str
    arch: str
    front_end: str
    specialisation: list[str]
    seal: Seal
    codes: list[Hash]
    entry: str | None = None
    rewrites: str | None = None
    dry_run: bool = False
    configuration: str | None = None
    commands: list[str] = msgspec.field(default_factory=list)
    number: Positive = 1
    ptx: Sha256 | None = None
    ptxas: Version | None = None
    options: list[Word] | None = None
    stages: dict[str, Hash] = msgspec.field(default_factory=dict)
    spill_stores: Count | None = None
    spill_loads: Count | None = None
    stack: Count | None = None
    registers: Count | None = None
    shared: Count | None = None
    instructions: Count | None = None
    loop_instructions: Count | None = None
    local_bytes: Count | None = None
    code_bytes: Count | None = None
    executed: Count | None = None
    sectors: Count | None = None
    conflicts: Count | None = None
    launch: str = ""
    threads: Count | None = None
    launch_bounds: list[str] = msgspec.field(default_factory=list)
    loaded: dict[str, Hash] = msgspec.field(default_factory=dict)
    dynamic_shared: Count = 0
    classes: dict[str, Count] = msgspec.field(default_factory=dict)
    bits: Hash | None = None


class Lock(Fields):
    """A lock. format: 1. tests: the files and folders whose tests compile all of its kernels, if known.
    max_registers, allow_spills: budgets, which the user writes; see facts.Budgets."""

    format: Annotated[int, Meta(ge=1)]
    kernel: Annotated[list[LockedKernel], Meta(min_length=1)]
    tests: list[str] | None = None
    max_registers: Positive | dict[str, Positive] | None = None
    allow_spills: list[str] | None = None


_TEXT = r'"(?:[^"\\\x00-\x1f\x7f]|\\(?:["\\bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))*"'
_VALUE = rf"(?:{_TEXT}|-?(?:0|[1-9][0-9]{{0,15}}))"
_LIST, _TABLE = rf"\[(?:{_TEXT}(?:, {_TEXT})*)?\]", rf"{_TEXT} = {_VALUE}(?:, {_TEXT} = {_VALUE})*"
_LINE = re.compile(rf"([a-z_]+) = (?:(true|false|{_VALUE}|{_LIST})|\{{ ({_TABLE}) \}})")
_ITEM = re.compile(rf"({_TEXT}) = ({_VALUE})")


def _as_written(text: str) -> str | None:
    """Convert a lock to JSON if it is formatted exactly as by `lock_text`. Return None for any other TOML, and if a
    name is repeated. Python's TOML reader takes ten times as long."""
    tables: list[dict[str, str]] = [{}]
    for line in text.split("\n"):
        if not line or line.startswith("# "):
            continue
        if line == "[[kernel]]":
            tables.append({})
            continue
        if (match := _LINE.fullmatch(line)) is None or match[1] in tables[-1]:
            return None
        value = match[2]
        if value is None:
            items = _ITEM.findall(match[3])
            if len({name for name, _ in items}) < len(items):
                return None
            value = f"{{{','.join(map(':'.join, items))}}}"
        tables[-1][match[1]] = value
    if "kernel" in tables[0]:
        return None
    tables[0]["kernel"] = f"[{','.join(map(_object, tables[1:]))}]"
    return _object(tables[0])


def _object(values: Mapping[str, str]) -> str:
    items = ",".join(f'"{name}":{value}' for name, value in values.items())
    return f"{{{items}}}"


def _quickly(data: bytes) -> Lock | None:
    """Read a lock that is formatted exactly as by `lock_text`. Return None for any other text; the TOML reader then
    reads it and reports its errors."""
    schema.check_toml(data)
    try:
        document = _as_written(data.decode())
        lock = None if document is None else msgspec.json.decode(document, type=Lock)
    except (UnicodeError, msgspec.MsgspecError):
        return None
    return lock if lock is not None and lock.format <= FORMAT else None


def read_lock(data: bytes, path: str) -> Lock:
    """Read a lock. path: for messages. Raises SnapshotError if it is not a lock, is damaged, or has a newer format."""
    try:
        if (lock := _quickly(data)) is not None:
            return lock
        return schema.read_toml(data, Lock, FORMAT)
    except schema.NewerFormat as error:
        raise SnapshotError(f"{path}: {error}") from None
    except DocumentError as error:
        raise SnapshotError(f"{path}: no lock, or damaged: {error}; `tritonhook lock` makes a new lock") from None
