"""Documents for the tests of reports: golden ones, diffs with their code, large ones, and ones with hostile names."""

from __future__ import annotations

import copy
import io
import json
import math
import os
import random
from typing import Any

from repository import GOLDEN

from tests.compare.test_diff import compare
from tritonhook.compare.diff import diff_sass
from tritonhook.cubin.sass import Instruction, Sass
from tritonhook.report import pages
from tritonhook.report.render.terminal import render_terminal
from tritonhook.report.result import Page, Summary, fitting, read_result
from tritonhook.report.results.diff import Diff

KINDS = sorted(path.stem for path in (GOLDEN / "documents").glob("*.json"))
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'`|&\n\u2028\u202e" + "k" * 10_000
)


def in_terminal(summary: Summary) -> str:
    """What a terminal shows, as wide as COLUMNS says and without colours; without COLUMNS, what a file shows."""
    if "COLUMNS" not in os.environ:
        return render_terminal(summary, io.StringIO())
    return "".join(f"{line.rstrip()}\n" for line in render_terminal(summary, PlainScreen()).splitlines())


class PlainScreen(io.StringIO):
    """A terminal without colours, if TERM is "dumb"."""

    def isatty(self) -> bool:
        return True


def summary_of(document: dict[str, Any]) -> Summary:
    """The summary of a document of any kind. Raises UsageError, as for its page."""
    return fitting(read_result(document).summary)


def page_of(document: dict[str, Any]) -> Page:
    return fitting(lambda: pages.page_of(read_result(document)))


def golden(kind: str) -> dict[str, Any]:
    return json.loads((GOLDEN / "documents" / f"{kind}.json").read_text())  # type: ignore[no-any-return]


def diff_with_code(a: str = "sm_90a.exp.plain", b: str = "sm_90a.exp.cutlass") -> dict[str, Any]:
    """A diff of golden cubins as `diff --save` writes it, with a made-up PTX and made-up source lines."""
    found = compare(a, b)
    ptx = [f"// line {n}\nadd.s32 %r{n}, %r{n}, {n};" for n in range(40)]
    texts = [f".entry {kernel}\n" + "\n".join(ptx) for kernel in (found.a_kernel, found.b_kernel)]
    texts[1] += "\nret;"
    made = Diff.of(found, ("12.8.93", "12.8.93"), (texts[0], texts[1]), notes=["a note"], full=True)
    document = json.loads(json.dumps(made.document()))
    for side in document["code"].values():
        side["files"] = ["/src/kernels/exp.py"]
        for index, row in enumerate(side["instructions"]):
            row[4], row[5] = [0, 10 + index % 7], 2 + index % 30
    return document  # type: ignore[no-any-return]


def replaced(value: Any, old: str, new: str) -> Any:
    """A copy of a JSON value with `new` in place of `old` in every text, and of keys that are `old`."""
    if isinstance(value, dict):
        return {new if k == old else k: replaced(v, old, new) for k, v in value.items()}
    if isinstance(value, list):
        return [replaced(v, old, new) for v in value]
    return value.replace(old, new) if isinstance(value, str) else value


def large_diff(instructions: int = 30_000) -> dict[str, Any]:
    """A diff of two kernels with so many instructions in loops; a tenth of them differ."""
    draw = random.Random(0)
    opcodes = ("FFMA", "IADD3", "LDS.128", "HMMA.16816.F32", "MOV", "ISETP.GE.AND", "LDG.E.128", "BAR.SYNC", "MUFU.EX2")

    def side(other: list[Instruction] | None = None) -> list[Instruction]:
        rows = []
        for index in range(instructions):
            offset = 16 * index
            if index % 500 == 499:
                rows.append(Instruction(offset, "@P0", "BRA", f"0x{16 * (index - 480):x}", draw.randrange(1 << 17)))
            elif other is not None and draw.random() > 0.1:
                rows.append(other[index]._replace(offset=offset))
            else:
                operands = ", ".join(f"R{draw.randrange(255)}" for _ in range(3))
                rows.append(Instruction(offset, "", draw.choice(opcodes), operands, draw.randrange(1 << 17)))
        return rows

    a = side()
    a_sass, b_sass = (Sass(k, tuple(rows)) for k, rows in (("large_kernel", a), ("cutlass_kernel", side(a))))
    document = diff_with_code()
    s = diff_sass(a_sass, b_sass)
    document["sass"] |= {
        "instructions": {"a": s.a_instructions, "b": s.b_instructions},
        "opcodes": {name: {"a": x, "b": y} for name, (x, y) in s.opcodes.items()},
        "loops": [
            {
                side: {
                    "offset": loop.offset,
                    "instructions": loop.instructions,
                    "yield_bits": loop.yield_bits,
                    "stall_cycles": loop.stall_cycles,
                    "rescheduled": loop.rescheduled,
                    "opcodes": dict(loop.opcodes),
                }
                for side, loop in (("a", pair.a), ("b", pair.b))
                if loop is not None
            }
            for pair in s.loops
            if pair.a is not None and pair.b is not None
        ],
    }
    document["code"] = {key: _code(sass) for key, sass in (("a", a_sass), ("b", b_sass))}
    return document


def _code(sass: Sass) -> dict[str, Any]:
    """A kernel's code as documents have it, with made-up source lines."""
    rows = [
        [i.predicate, i.opcode, i.operands, i.control, [0, 1 + n // 50], None] for n, i in enumerate(sass.instructions)
    ]
    return {
        "kernel": sass.kernel,
        "indirect_targets": [],
        "files": ["/src/large.py"],
        "ptx": None,
        "instructions": rows,
    }


def large_memory(samples: int = 10_000, marks: int = 600) -> dict[str, Any]:
    document = golden("memory")
    timeline = document["timelines"][0]
    end = timeline["duration_ns"] = 60_000_000_000
    base = timeline["samples"][0]
    timeline["samples"] = [
        base | {"t_ns": end * i // samples, "used_bytes": (4 << 30) + int((1 << 28) * math.sin(i / 90)) + (i % 7 << 20)}
        for i in range(samples)
    ]
    mark = timeline["marks"][0]
    timeline["marks"] = [mark | {"t_ns": end * i // marks, "kernel": f"kernel_{i}"} for i in range(marks)]
    return document


def large_captures(kernels: int = 200) -> dict[str, Any]:
    document = golden("captures")
    first = document["kernels"][0]
    document["kernels"] = []
    for i in range(kernels):
        kernel = copy.deepcopy(first) | {"kernel": f"kernel_{i:03}", "record": f"kernel_{i:03}-{i:016x}"}
        kernel["id"] = f"{i:06x}"
        kernel["resources"] |= {"registers": 32 + i, "instructions": 64 + 6 * i, "code_bytes": 1024 + 96 * i}
        document["kernels"].append(kernel)
    return document
