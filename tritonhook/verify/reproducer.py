"""Write a reproducer that stands alone: the PTX, a program that needs only Python and the driver, and a report.

Values to files; what was found is for others to find. The program is reproduce.py.in, with the case put in.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritonhook.capture.launches.record import DTYPE_BYTES, Descriptor, Launch, Packed, Pointer, Scalar
from tritonhook.capture.launches.tensor_map import BYTES, encoded
from tritonhook.errors import UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.verify.minimise import Trial

_PLACE = 'CASE = json.loads(r"""{}""")'
_SHOWN = 8  # elements in the report


@dataclass(frozen=True, slots=True)
class Side:
    """One of two assemblers. label: as people read it, e.g. "ptxas 12.8.93 -O3". options: without the target.

    code: its machine code where the two part. stored: the buffers after the launch.
    """

    label: str
    options: tuple[str, ...]
    stored: tuple[bytes, ...]
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """What one assembler did. finding: "as FIRST", "as SECOND", or other words. label: as of a Side."""

    label: str
    finding: str


@dataclass(frozen=True, slots=True)
class Reproducer:
    """A case that two assemblers treat differently. gpu: where it was executed. tried: other assemblers."""

    title: str
    trial: Trial
    sides: tuple[Side, Side]
    gpu: str
    tried: tuple[Tried, ...] = ()


def write_reproducer(folder: Path, case: Reproducer) -> tuple[Path, ...]:
    """Write kernel.ptx, reproduce.py and report.md into a folder; returns their paths. Raises UsageError without a
    launch."""
    if case.trial.launch is None:
        raise UsageError(f"{case.trial.entry}: no launch, so nothing can be reproduced; give one with --args")
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"kernel.ptx": case.trial.ptx, "reproduce.py": program(case), "report.md": report(case)}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return tuple(folder / name for name in texts)


# --- the program ---------------------------------------------------------------------------------


def program(reproducer: Reproducer) -> str:
    """The text of reproduce.py."""
    template = Path(__file__).with_name("reproduce.py.in").read_text()
    text = json.dumps(_case(reproducer), indent=1)
    if template.count(_PLACE) != 1:
        raise UsageError(f"reproduce.py.in must have {_PLACE!r} exactly once; please report it")
    return template.replace(_PLACE, f'CASE = json.loads(r"""\n{text}\n""")')


def _case(reproducer: Reproducer) -> dict[str, Any]:
    trial, launch = reproducer.trial, reproducer.trial.launch
    assert launch is not None
    if len(trial.contents) != len(launch.buffers):
        raise UsageError(f"{trial.entry}: {len(launch.buffers)} buffers, with contents of {len(trial.contents)}")
    buffers = [
        {"dtype": buffer.dtype, "width": DTYPE_BYTES[buffer.dtype], "size": buffer.size, "data": _packed(data)}
        for buffer, data in zip(launch.buffers, trial.contents, strict=True)
    ]
    return {
        "kernel": trial.entry,
        "target": Ptx(trial.ptx).target,
        "options": [list(side.options) for side in reproducer.sides],
        "grid": launch.grid,
        "block": launch.block,
        "cluster": launch.cluster,
        "shared": launch.shared,
        "cooperative": launch.cooperative,
        "arguments": _arguments(launch),
        "buffers": buffers,
    }


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _arguments(launch: Launch) -> list[dict[str, Any]]:
    arguments: list[dict[str, Any]] = []
    for parameter in launch.parameters:
        if isinstance(parameter, Scalar):
            arguments.append({"bytes": parameter.bytes.hex()})
        elif isinstance(parameter, Packed):
            arguments.append({"bytes": parameter.data, "pointers": parameter.pointers})
        elif isinstance(parameter, Descriptor) and parameter.tiling.by_host:
            data = encoded(parameter.tiling, 0).ljust(BYTES, b"\0")
            arguments.append({"bytes": data.hex(), "pointers": [(0, parameter.buffer, parameter.offset)]})
        elif isinstance(parameter, (Pointer, Descriptor)):
            tiling = {"tiling": asdict(parameter.tiling)} if isinstance(parameter, Descriptor) else {}
            arguments.append({"buffer": parameter.buffer, "offset": parameter.offset} | tiling)
        else:
            arguments.append({"scratch": parameter.size})
    return arguments


# --- the report ----------------------------------------------------------------------------------


def report(reproducer: Reproducer) -> str:
    """The text of report.md: what a maintainer of the assembler needs, and nothing of this project's own."""
    ptx = Ptx(reproducer.trial.ptx)
    first, second = reproducer.sides
    lines = [
        f"# {reproducer.title}",
        "",
        f"The kernel `{reproducer.trial.entry}` below, for {ptx.target}, stores other values when it is assembled by "
        f"{second.label} than by {first.label}. The PTX has no undefined value and no race that would allow both.",
        "",
        *_section("Assemblers", _table(("assembler", "result"), _listed(reproducer))),
        *_section("To reproduce", _fenced("console", _commands(reproducer, ptx.target))),
        *_section("PTX", _fenced("text", reproducer.trial.ptx.rstrip().splitlines())),
        *_values(reproducer),
    ]
    for side in reproducer.sides:
        if side.code:
            lines += _section(f"Machine code of {side.label}", _fenced("text", side.code))
    return "\n".join(lines).rstrip() + "\n"


def _commands(reproducer: Reproducer, target: str) -> list[str]:
    commands = [
        f"$ ptxas -arch={target} {' '.join([*side.options, 'kernel.ptx'])} -o {name}.cubin    # {side.label}"
        for name, side in zip(("first", "second"), reproducer.sides, strict=True)
    ]
    return [
        *commands,
        "$ python reproduce.py first.cubin second.cubin",
        "$ python reproduce.py FIRST/ptxas SECOND/ptxas",
    ]


def _listed(reproducer: Reproducer) -> list[tuple[str, str]]:
    first, second = reproducer.sides
    rows = [(first.label, "first"), (second.label, "second")]
    return [*rows, *((tried.label, tried.finding) for tried in reproducer.tried)]


def _values(reproducer: Reproducer) -> list[str]:
    """The first elements that differ."""
    assert reproducer.trial.launch is not None
    lines: list[str] = []
    for number, buffer in enumerate(reproducer.trial.launch.buffers):
        width = DTYPE_BYTES[buffer.dtype]
        first, second = (side.stored[number] for side in reproducer.sides)
        pairs = [(at, first[at : at + width], second[at : at + width]) for at in range(0, buffer.size, width)]
        rows = [(str(at // width), _bits(a), _bits(b)) for at, a, b in pairs if a != b]
        if rows:
            count = f"{len(rows):,} of {len(pairs):,} elements differ"
            table = _table(("element", *(side.label for side in reproducer.sides)), rows[:_SHOWN])
            lines += _section(f"Buffer {number} ({buffer.dtype}): {count}", table)
    return [*lines, f"Executed on {reproducer.gpu}.", ""]


def _bits(data: bytes) -> str:
    return f"0x{data[::-1].hex()}"


def _section(title: str, body: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *body, ""]


def _fenced(language: str, lines: Sequence[str]) -> list[str]:
    return [f"```{language}", *lines, "```"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
