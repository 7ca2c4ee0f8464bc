"""Execute the machine code of a launch, and count events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.line_info import read_lines
from tritonhook.cubin.sass import Sass
from tritonhook.emulate.counters.metrics import Counted, CountedInstruction, counters
from tritonhook.emulate.counters.observer import Counter, Tally
from tritonhook.emulate.launch import clusters
from tritonhook.emulate.run import Ran, Run, run_code
from tritonhook.emulate.sass.kernel import SassKernel, read_sass_kernel


def count(cubin: Cubin, sass: Sass, run: Run, contents: Sequence[bytes]) -> tuple[Counted, Ran]:
    """Execute machine code, and count events. sass: the kernel's code. contents: bytes of each buffer before the
    launch.

    If `run` has only some of the launch's CTAs, each of their clusters is executed alone on the same contents, so that
    the clusters' counters can be compared. Raises NotUnderstood, Fault, Hang, Unfinished."""
    kernel = read_sass_kernel(cubin, sass)
    of_ctas = math.prod(run.launch.grid)
    if len(run.ctas) == of_ctas:
        counter, ran = _counted(kernel, run, contents)
        parts, ctas, touched = [counter.tallies], of_ctas, int(counter.touched.sum())
    else:
        parts, ctas, touched = [], 0, None
        for some in clusters(run.launch, run.ctas):
            counter, ran = _counted(kernel, replace(run, ctas=some), contents)
            parts.append(counter.tallies)
            ctas += len(some)
    lines = read_lines(cubin, sass.kernel)
    found = []
    for index, (one, source) in enumerate(zip(kernel.sass.instructions, lines.source, strict=True)):
        file, line = ("", 0) if source is None else (lines.files[source[0]], source[1])
        text = f"{one.predicate} {one.opcode} {one.operands}".strip()
        tally = _sum([part[index] for part in parts])
        of = counters(one.opcode, one.operands, tally, kernel.arch)
        found.append(CountedInstruction(index, one.opcode, text, file, line, of))
    agree = None if ctas == of_ctas else len(parts) > 1 and all(part == parts[0] for part in parts)
    return Counted(sass.kernel, kernel.arch, ctas, of_ctas, tuple(found), agree, touched), ran


def _counted(kernel: SassKernel, run: Run, contents: Sequence[bytes]) -> tuple[Counter, Ran]:
    counter = Counter(kernel.sass.instructions)
    ran = run_code(kernel, run, contents, counter)
    return counter, ran


def _sum(parts: Sequence[Tally]) -> Tally:
    return Tally(*(sum(getattr(part, name) for part in parts) for name in Tally.__slots__))
