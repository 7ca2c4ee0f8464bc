"""Prepare captured kernels for a lock: find all codes that ptxas makes for them, and merge them into an existing
lock."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tritonhook.capture.model import Capture, Stage
from tritonhook.errors import SnapshotError
from tritonhook.ptx.normal_form import without_positions
from tritonhook.ptxas.pool import sweep
from tritonhook.ptxas.toolchain import MAX_RUNS, STEADY_RUNS, may_draw
from tritonhook.snapshot.assembled import Task, codes_of, task_of
from tritonhook.snapshot.changes import commands_of, not_judged, renumbered
from tritonhook.snapshot.facts import Identity, KernelFacts
from tritonhook.snapshot.lockfile import kept_ptx

# A kernel keeps its block in the lock if these fields of its facts are equal to the locked fields.
_SETTLED = (
    *("stages", "ptxas", "options", "figures", "launch_bounds", "loaded", "configuration", "commands"),
    *("bits", "launch"),
)


def lockable(
    captured: Sequence[tuple[Capture, KernelFacts]], known: Sequence[KernelFacts] = ()
) -> list[tuple[KernelFacts, str | None]]:
    """Prepare captured kernels for a lock; return their facts with all codes, and their PTX.

    known: kernels of an existing lock. A kernel whose code is in the lock is not assembled again. If a kernel in
    `known` has a new code and ptxas does not make this code in many runs, the new code becomes its only code.
    """
    facts = _with_all_codes(captured, {k.identity: frozenset(k.codes) for k in known})
    texts = [capture.text(Stage.PTX) for capture, _ in captured]
    return [(k, None if text is None else without_positions(text)) for k, text in zip(facts, texts, strict=True)]


def _with_all_codes(
    captured: Sequence[tuple[Capture, KernelFacts]], known: Mapping[Identity, frozenset[str]]
) -> list[KernelFacts]:
    """Find more codes of the kernels for which ptxas is not deterministic, if their ptxas is installed."""
    tasks: dict[int, Task] = {}
    for number, (capture, facts) in enumerate(captured):
        drawing = may_draw(facts.identity.arch) and not known.get(facts.identity, frozenset()) & set(facts.codes)
        if drawing and (task := task_of(capture, facts)) is not None:
            tasks[number] = task
    new = {n: task for n, task in tasks.items() if captured[n][1].identity not in known}
    drawn = _drawn(new, STEADY_RUNS + 1)
    for number, codes in _drawn({n: task for n, task in tasks.items() if n not in new}, MAX_RUNS).items():
        if codes & set(captured[number][1].codes):
            drawn[number] = codes
    return [
        replace(facts, codes=tuple(sorted({*facts.codes, *drawn.get(number, ())})))
        for number, (_, facts) in enumerate(captured)
    ]


def _drawn(tasks: Mapping[int, Task], runs: int) -> dict[int, set[str]]:
    """Return the codes that ptxas makes for each task's kernel in `runs` runs."""
    return dict(zip(tasks, map(set, codes_of(list(tasks.values()), sweep, runs)), strict=True))


def settled(
    path: Path, old: Sequence[KernelFacts], now: Sequence[tuple[KernelFacts, str | None]]
) -> list[tuple[KernelFacts, str | None]]:
    """Merge kernels into the lock at `path`.

    An unchanged kernel keeps its block and its PTX, even if the text of its PTX differs, e.g. in a compiler's build
    number. A kernel also keeps the commands that did not run now. Kernels stay if none of their commands ran.
    """
    before = {locked.identity: locked for locked in old}
    facts = renumbered(old, [new for new, _ in now])
    ran = commands_of(facts)
    results: list[tuple[KernelFacts, str | None]] = []
    for kernel, (_, ptx) in zip(facts, now, strict=True):
        earlier = before.get(kernel.identity)
        if earlier is not None:
            kernel = replace(kernel, commands=tuple(sorted({*kernel.commands, *({*earlier.commands} - ran)})))
        new = kernel, ptx
        if earlier is not None and _is_settled(earlier, kernel):
            with contextlib.suppress(SnapshotError):  # if the lock's PTX is damaged, the new one replaces it
                new = earlier, kept_ptx(path, earlier)
        results.append(new)
    stay = not_judged(old, facts)
    return results + [(it, None if it.ptx_sha256 is None else kept_ptx(path, it)) for it in old if it.identity in stay]


def _is_settled(old: KernelFacts, new: KernelFacts) -> bool:
    same = all(getattr(old, name) == getattr(new, name) for name in _SETTLED)
    return same and old.ptx_sha256 is not None and set(new.codes) <= set(old.codes)
