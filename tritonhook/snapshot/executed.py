"""Facts of captured kernels that need an execution on the CPU: counters, and the hash of the stored bytes.

The facts also have the shape of the executed launch, since counters of different shapes are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tritonhook.capture.model import Capture
from tritonhook.capture.store.reader import RecordedLaunch
from tritonhook.errors import NotUnderstood, TritonHookError, listed
from tritonhook.snapshot.bits import bits_of
from tritonhook.snapshot.counted import count_launch, figures_of, launch_at
from tritonhook.snapshot.facts import COUNTERS, KernelFacts

MOST_CTAS = 64  # most CTAs that are executed to count: CTAs at the edges of the grid, and some between them
_FAILURES = (TritonHookError, OSError, MemoryError, RecursionError)


def with_executed(
    kernels: Sequence[tuple[Capture, KernelFacts]], known: Sequence[KernelFacts], counts: bool, bits: bool
) -> tuple[list[KernelFacts], list[str]]:
    """Execute the most frequent launch of each captured kernel, and add counters (counts) and bits to its facts. Also
    return notes on facts that could not be computed.

    known: kernels of a lock. For a kernel in it, the locked launch is executed; equal code is not counted again.
    """
    before = {it.identity: it for it in known}
    asked = [(_counted, "not counted")] * counts + [(_with_bits, "bits not known")] * bits
    done, unknown = list[KernelFacts](), dict[str, list[str]]()
    for capture, facts in kernels:
        old = before.get(facts.identity)
        for add, what in asked:
            try:
                facts = add(capture, facts, old)
            except _FAILURES as error:
                why = f"{'NOT UNDERSTOOD: ' * isinstance(error, NotUnderstood)}{error or type(error).__name__}"
                unknown.setdefault(f"{what}: {{}}: {why}", []).append(facts.identity.text)
        done.append(facts)
    return done, [note.replace("{}", listed(names), 1) for note, names in unknown.items()]


def _with_bits(capture: Capture, facts: KernelFacts, old: KernelFacts | None) -> KernelFacts:
    """Add the hash of the stored bytes. Raises UsageError if no launch of the locked shape was recorded."""
    chosen = _launch(facts, old)
    return replace(facts, bits=bits_of(capture, chosen.launch), launch=chosen.launch.summary)


def _counted(capture: Capture, facts: KernelFacts, old: KernelFacts | None) -> KernelFacts:
    """Add counters. Raises UsageError if no launch of the locked shape was recorded."""
    chosen = _launch(facts, old)
    if old is not None and old.is_counted and set(facts.codes) & set(old.codes):
        figures = {name: old.figures.get(name) for name in COUNTERS}
    else:
        figures = figures_of(count_launch(capture, chosen, MOST_CTAS))
    return replace(facts, figures={**facts.figures, **figures}, launch=chosen.launch.summary)


def _launch(facts: KernelFacts, old: KernelFacts | None) -> RecordedLaunch:
    return launch_at(facts.place, "" if old is None else old.launch)
