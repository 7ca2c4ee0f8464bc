"""Known miscompilations of ptxas: which versions have them, for which targets? Assembled; nothing is executed.

    python -m benchmarks miscompiles [--add VERSION,...] [--out FILE]

The example and the near miss of each known bug (tests/support/bug_examples.ptx) are assembled by each ptxas at hand for
each target, and their machine code is emulated (`tritonhook.emulate`): it is *right* if it stores what the PTX says,
*wrong* if it stores something else or something that it never computed. --add downloads further ptxas first.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bug_examples import EXAMPLES, Example, ptx_of

from benchmarks.common import coverage, environment
from tritonhook.emulate.errors import Fault
from tritonhook.errors import NotUnderstood

PTX_VERSIONS = {
    "sm_75": "6.3",
    "sm_80": "7.0",
    "sm_86": "7.1",
    "sm_89": "8.1",
    "sm_90a": "8.0",
    "sm_100a": "8.6",
    "sm_120a": "8.7",
}
OLDER = {"sm_89": "7.8"}  # where the first is newer than the ptxas
NEWER = "8.4"  # which has fp8 numbers in `mma`
GARBAGE = (0, 1)  # two values of registers that nothing has written
KINDS = ("example", "near miss")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--add", default="", help="versions of ptxas to download, with commas")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    from tritonhook._util.versions import version_key
    from tritonhook.ptx.miscompiles import MISCOMPILATIONS
    from tritonhook.ptx.miscompiles.record import TARGETS, TRIED
    from tritonhook.ptxas.install import add_ptxas
    from tritonhook.ptxas.tool import available_ptxas

    for version in filter(None, arguments.add.split(",")):
        add_ptxas(version)
    tools = {tool.version: tool for tool in available_ptxas() if tool.version in TRIED}
    tried = [version for version in TRIED if version in tools]
    if (missing := set(TRIED) - set(tools)) and not arguments.quick:
        sys.exit(f"ptxas {', '.join(sorted(missing, key=version_key))} is not here; --add fetches it")
    samples = []
    targets = TARGETS[:1] if arguments.quick else TARGETS
    for version in tried[-1 if arguments.quick else 0 :]:
        with ThreadPoolExecutor(2) as pool:
            by_target = list(pool.map(cells, [tools[version]] * len(targets), targets))
        found = [one for several in by_target for one in several]
        samples += found
        wrong = sorted({one["bug"] for one in found if one["example"] == "wrong"})
        print(f"ptxas {version}: {len(wrong)} wrong: {', '.join(wrong)}", flush=True)
    return {
        "evidence": "assembled",
        "environment": environment("tritonhook"),
        "bugs": [about(bug) for bug in MISCOMPILATIONS],
        "samples": samples,
        "summary": summary(samples),
    }


def about(bug: Any) -> dict[str, Any]:
    example = EXAMPLES[bug.name]
    return {
        "bug": bug.name,
        "does": bug.does,
        "remedy": bug.remedy,
        "sources": list(bug.sources),
        "executed": bug.executed,
        "lines": example.lines,
        "given": example.given.hex(),
        "expected": example.expected.hex(),
    }


def cells(tool: Any, target: str) -> list[dict[str, Any]]:
    """What one ptxas makes of all programs for one target: right, wrong or refused, and the opcodes of wrong ones."""
    from tritonhook.ptx.miscompiles import MISCOMPILATIONS

    programs = {f"k{number}_{kind}": (bug, kind) for number, bug in enumerate(MISCOMPILATIONS) for kind in (0, 1)}
    codes = assembled(tool, target, {name: lines(bug, kind) for name, (bug, kind) in programs.items()})
    found: dict[str, dict[str, Any]] = {}
    for name, (bug, kind) in programs.items():
        cell = found.setdefault(bug.name, {"bug": bug.name, "ptxas": tool.version, "target": target})
        cell[KINDS[kind]] = verdict(bug, kind, codes.get(name))
        if cell[KINDS[kind]] == "wrong" and kind == 0:
            code = codes[name].sass.instructions
            cell["code"] = [f"{i.predicate} {i.opcode} {i.operands}".strip() for i in code if i.opcode != "NOP"]
    return list(found.values())


def lines(bug: Any, kind: int) -> str:
    return EXAMPLES[bug.name].near if kind else EXAMPLES[bug.name].lines


def verdict(bug: Any, kind: int, kernel: Any) -> str:
    if kernel is None:
        return "refused"
    example = EXAMPLES[bug.name]
    expected = example.near_expected if kind else example.expected
    try:
        stored = {stored_by(kernel, example, len(expected), garbage) for garbage in GARBAGE}
    except NotUnderstood as error:
        return f"not understood: {error}"
    except Fault:  # an address that a wrong instruction has made
        return "wrong"
    return "right" if stored == {expected} else "wrong"


def stored_by(kernel: Any, example: Example, size: int, garbage: int) -> bytes:
    """What `k(out, in)` leaves in its first `size` bytes of output. garbage: in registers that nothing has written."""
    from tritonhook.emulate.machine import Geometry, Machine
    from tritonhook.emulate.memory import Memory
    from tritonhook.emulate.sass.decode import decode

    memory = Memory(kernel.shared, kernel.stack)
    out, given = memory.allocate(bytes(size)), memory.allocate(example.given)
    machine = Machine(Geometry((1, 1, 1), (example.threads, 1, 1), (0,)), memory)
    parameters = b"".join(one.address.to_bytes(8, "little") for one in (out, given))
    code, _ = decode(kernel, machine, kernel.constants(machine.geometry, parameters), garbage)
    machine.run(code)
    return memory.contents(out)


def assembled(tool: Any, target: str, programs: dict[str, str]) -> dict[str, Any]:
    """The machine code of each program. They are one module if ptxas takes all of them, else a module each."""
    from tritonhook.emulate.sass.kernel import read_sass_kernel
    from tritonhook.ptxas.tool import targets
    from tritonhook.ptxas.toolchain import Assembled, assemble, reading_toolchain

    if target not in targets(tool):
        return {}
    for version in (PTX_VERSIONS[target], NEWER, OLDER.get(target)):
        made = assemble(tool, module(programs, target, version), ["-O3"]) if version else None
        if isinstance(made, Assembled):
            codes = reading_toolchain().disassemble(made.cubin, list(programs))
            return {name: read_sass_kernel(made.cubin, codes[name]) for name in programs}
    half = len(programs) // 2
    if not half:
        return {}
    items = list(programs.items())
    return {**assembled(tool, target, dict(items[:half])), **assembled(tool, target, dict(items[half:]))}


def module(programs: dict[str, str], target: str, version: str) -> Any:
    from tritonhook.ptx.module import Ptx

    texts = [ptx_of(body, target, version) for body in programs.values()]
    entries = [
        text[text.index(".visible") :].replace("entry k(", f"entry {name}(")
        for name, text in zip(programs, texts, strict=True)
    ]
    return Ptx(texts[0][: texts[0].index(".visible")] + "".join(entries))


def summary(samples: list[dict[str, Any]]) -> dict[str, Any]:
    wrong: dict[str, set[str]] = {}
    for one in samples:
        if one["example"] == "wrong":
            wrong.setdefault(one["bug"], set()).add(one["ptxas"])
    left_out = sum(one["example"] not in ("right", "wrong") for one in samples)
    return coverage(len(samples), {"this ptxas does not assemble the example": left_out}) | {
        "bugs": len({one["bug"] for one in samples}),
        "cells": len(samples),
        "wrong_cells": sum(one["example"] == "wrong" for one in samples),
        "wrong_near_misses": sum(one["near miss"] == "wrong" for one in samples),
        "not_understood": sum(str(one[kind]).startswith("not") for one in samples for kind in KINDS),
        "bugs_in_newest": sorted(bug for bug, versions in wrong.items() if samples[-1]["ptxas"] in versions),
    }
