"""The summary of one file with GPU code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.cubin.opcode_classes import CLASSES
from tritonhook.report.format import count, number
from tritonhook.report.summaries.captures import names_of, shared_memory, spills
from tritonhook.report.summary import Summary, Table, Tone

_MOST_LOOPS = 12
_SHORT = {"global memory": "global", "shared memory": "shared", "floating point": "float", "synchronisation": "sync"}


def file_summary(document: Mapping[str, Any]) -> Summary:
    """Show the kernels of a file, their instructions by class, and their largest loops."""
    kernels = document["kernels"]
    targets = Counter(str(kernel["arch"]) for kernel in kernels)
    facts = [", ".join(f"{count(n, 'kernel')} for {arch}" for arch, n in targets.items())] if len(targets) > 1 else []
    needs = dict.fromkeys(name for kernel in kernels for name in kernel["needs"])
    if needs:
        facts.append(f"needs {', '.join(needs)}, which the driver or a linker gives")
    names = names_of(kernels)
    tables = [_kernels(kernels, names)] if kernels else []
    read = [kernel for kernel in kernels if kernel["mix"] is not None]
    if read:
        tables += [_mix(read, names), *_loops(read, names)]
    what = f"{count(len(kernels), 'kernel')} in a {document['what']}" if kernels else f"a {document['what']}, no kernel"
    tone = Tone.NEUTRAL if kernels else Tone.UNSURE
    return Summary("File", str(document["path"]), what, tone, tuple(facts), tuple(tables), tuple(document["notes"]))


def _kernels(kernels: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Table:
    columns = ("kernel", "target", "ptxas", "regs", "spills", "stack", "shared", "instrs", "barriers", "threads")
    rows = []
    for kernel in kernels:
        r = kernel["resources"]
        figures = (number(r["registers"]), spills(r), number(r["stack"]), shared_memory(r), number(r["instructions"]))
        ends = (number(kernel["barriers"]), _threads(kernel["threads"]))
        rows.append((names[kernel["kernel"]], str(kernel["arch"]), number(kernel["ptxas"]), *figures, *ends))
    title = "Kernels (stack, spill stores/loads, shared: bytes)"
    return Table(title, columns, tuple(rows), 3, one_line=True)


def _threads(threads: int | None) -> str:
    return "not fixed" if threads is None else number(threads)


def _mix(kernels: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> Table:
    headings = [_SHORT.get(name, name) for name in CLASSES]
    rows = [
        (names[k["kernel"]], str(k["arch"]), *(number(k["mix"][name]) for name in CLASSES))
        for k in kernels
    ]  # fmt: skip
    return Table("Instructions by class", ("kernel", "target", *headings), tuple(rows), 2, one_line=True)


def _loops(kernels: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> list[Table]:
    loops = [(kernel, loop) for kernel in kernels for loop in kernel["loops"]]
    if not loops:
        return []
    largest = sorted(loops, key=lambda pair: -pair[1]["instructions"])[:_MOST_LOOPS]
    title = f"Loops of 8 instructions or more ({len(loops):,})"
    title += f", the {_MOST_LOOPS} largest" if len(loops) > len(largest) else ""
    rows = tuple(
        (
            names[kernel["kernel"]],
            f"{loop['offset']:#x}",
            number(loop["instructions"]),
            "yes" if loop["innermost"] else "no",
            ", ".join(f"{opcode} {n:,}" for opcode, n in loop["opcodes"].items()),
        )
        for kernel, loop in largest
    )
    columns = ("kernel", "offset", "instrs", "innermost", "most frequent")
    return [Table(title, columns, rows, 2, words=(3, 4), one_line=True)]
