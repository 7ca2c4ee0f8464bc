"""Captured kernels as kernels of a lock, with all codes that ptxas gives them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tritonhook.capture.model import Capture, Stage
from tritonhook.errors import SnapshotError
from tritonhook.lab.sweep import sweep
from tritonhook.ptx.normal_form import without_positions
from tritonhook.ptxas.assembler import MAX_RUNS, STEADY_RUNS, may_draw
from tritonhook.snapshot.changes import renumbered
from tritonhook.snapshot.facts import Identity, KernelFacts
from tritonhook.snapshot.lockfile import kept_ptx
from tritonhook.snapshot.reading import task_of
from tritonhook.snapshot.recheck import Task, codes_of


def lockable(
    found: Sequence[tuple[Capture, KernelFacts]], known: Sequence[KernelFacts] = ()
) -> list[tuple[KernelFacts, str | None]]:
    """Captured kernels with their PTX, ready for a lock.

    known: kernels with their codes. A kernel with one of these codes is not assembled again. If a code is not known,
    and ptxas does not make it from the PTX in many runs either, it stays the kernel's only code: it is no draw.
    """
    facts = _with_all_codes(found, {one.identity: frozenset(one.codes) for one in known})
    texts = [capture.text(Stage.PTX) for capture, _ in found]
    return [(one, None if text is None else without_positions(text)) for one, text in zip(facts, texts, strict=True)]


def _with_all_codes(
    found: Sequence[tuple[Capture, KernelFacts]], known: Mapping[Identity, frozenset[str]]
) -> list[KernelFacts]:
    """The facts, with further codes of kernels for which ptxas is not deterministic, if that ptxas is at hand."""
    tasks: dict[int, Task] = {}
    for number, (capture, facts) in enumerate(found):
        drawing = may_draw(facts.identity.arch) and not known.get(facts.identity, frozenset()) & set(facts.codes)
        if drawing and (task := task_of(capture, facts)) is not None:
            tasks[number] = task
    new = {n: task for n, task in tasks.items() if found[n][1].identity not in known}
    drawn = _drawn(new, STEADY_RUNS + 1)
    for number, codes in _drawn({n: task for n, task in tasks.items() if n not in new}, MAX_RUNS).items():
        if codes & set(found[number][1].codes):
            drawn[number] = codes
    return [
        replace(facts, codes=tuple(sorted({*facts.codes, *drawn.get(number, ())})))
        for number, (_, facts) in enumerate(found)
    ]


def _drawn(tasks: Mapping[int, Task], runs: int) -> dict[int, set[str]]:
    """The codes that ptxas gives each task's kernel in some runs."""
    return dict(zip(tasks, map(set, codes_of(list(tasks.values()), sweep, runs)), strict=True))


def settled(
    path: Path, old: Sequence[KernelFacts], now: Sequence[tuple[KernelFacts, str | None]]
) -> list[tuple[KernelFacts, str | None]]:
    """The kernels for an update of the lock at `path`. One that did not change keeps its block and its PTX, also
    where the text of its PTX is another one, as where the build of a compiler is named in it."""
    before = {locked.identity: locked for locked in old}
    facts = renumbered(old, [new for new, _ in now])
    found: list[tuple[KernelFacts, str | None]] = []
    for one, (_, ptx) in zip(facts, now, strict=True):
        new = one, ptx
        earlier = before.get(one.identity)
        if earlier is not None and _is_settled(earlier, one):
            with contextlib.suppress(SnapshotError):  # kept PTX that is damaged: the new one mends it
                new = earlier, kept_ptx(path, earlier)
        found.append(new)
    return found


def _is_settled(old: KernelFacts, new: KernelFacts) -> bool:
    names = ("stages", "ptxas", "options", "figures", "launch_bounds")
    same = all(getattr(old, name) == getattr(new, name) for name in names)
    return same and old.ptx_sha256 is not None and set(new.codes) <= set(old.codes)
