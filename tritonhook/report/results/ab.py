"""Result of `ab`: two forms of a kernel timed in turn, with the verdict, its uncertainty, and how it was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from tritonhook.errors import UsageError
from tritonhook.report.result import UNKNOWN, Result, Summary, Table, Tone, count, number, read_saved, short, tag_of
from tritonhook.timing.plan import HowLaunched, KernelCode, Timed
from tritonhook.timing.statistics import (
    CANDIDATE,
    CONTROL,
    REFERENCE,
    Comparison,
    Effect,
    TimingVerdict,
    percent,
)

_TONES = {
    TimingVerdict.FASTER: Tone.GOOD,
    TimingVerdict.SLOWER: Tone.BAD,
    TimingVerdict.SAME: Tone.NEUTRAL,
    TimingVerdict.INCONCLUSIVE: Tone.UNSURE,
}
FLOOR = "control / its side"  # effect of the control against the side with the same code, i.e. the noise floor
CYCLES = "candidate, in cycles"
Effects = Mapping[str, "Effect | None"]
_MOST_KERNELS = 20
_ENDED = {"precise": "narrow intervals", "time": "time limit", "processes": "largest number of processes"}


class TimedComparison(Result, Timed, tag="ab"):
    """Two forms of a kernel, timed in turn. verdict, reason: absent in files that --save wrote."""

    verbs: ClassVar = "ab` where something is timed, `ab --from"

    verdict: TimingVerdict | UnsetType = UNSET
    reason: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not {REFERENCE, CANDIDATE} <= set(self.kernels):
            raise ValueError("the kernels of a side are missing")
        if not {REFERENCE, CANDIDATE, CONTROL} <= set(self.compared):
            raise ValueError("the description of a side is missing")
        if len({frozenset(block.times_us) for block in self.blocks}) > 1:
            raise ValueError("its blocks do not all have the same sides")
        if self.blocks and not {REFERENCE, CANDIDATE} <= set(self.blocks[0].times_us):
            raise ValueError("its blocks lack the reference or the candidate")

    @classmethod
    def of(cls, timed: Timed, judged: bool = False) -> TimedComparison:
        """Build from a timed comparison, with all raw samples. judged: add the verdict that this version of tritonhook
        draws from the samples."""
        run = timed.comparison
        verdict = {"verdict": run.verdict, "reason": run.reason} if judged else {"verdict": UNSET, "reason": UNSET}
        return cls(**asdict(timed) | verdict)

    def summary(self) -> Summary:
        return summarise(self, effects_of(self.comparison))


def load(path: Path) -> Timed:
    """Read a comparison that `tritonhook ab --save` wrote. Raises UsageError if the file is damaged or of another
    kind."""
    result = read_saved(path)
    if not isinstance(result, TimedComparison):
        what = f"a result of kind {tag_of(type(result))!r}; `tritonhook show` makes a page of it"
        raise UsageError(f"{path}: not a timed comparison, but {what}")
    return result


# --- the Summary ---------------------------------------------------------------------------------


def effects_of(comparison: Comparison) -> Effects:
    """Estimate the effect of each side against the reference, for the candidate also in cycles; and the effect of the
    control against the side that has the same code."""
    effects = {side: comparison.effect(side) for side in comparison.sides if side != REFERENCE}
    if CANDIDATE in effects:
        effects[CYCLES] = comparison.cycles()
    return effects | {FLOOR: comparison.control}


def summarise(timed: Timed, effects: Effects) -> Summary:
    """Summarise a comparison from its effects."""
    verdict, reason, tone = judged(timed)
    facts, tables = [reason, _counts(timed)], [kernels_table(timed)]
    if timed.comparison.blocks:
        facts += [_control_fact(timed, effects), _cycles_fact(timed.comparison, effects)]
        tables = [_times(timed, effects), *tables, environment_table(timed)]
    facts += [f"baseline {name}: {text}" for name, text in timed.baselines.items()]
    title = f"{verdict}: {short(side_name(timed, CANDIDATE))} against {short(side_name(timed, REFERENCE))}"
    return Summary("A/B timing", _subject(timed), title, tone, tuple(facts), tuple(tables), tuple(timed.notes))


def side_name(timed: Timed, side: str) -> str:
    """Return the name of what was timed on a side: a kernel, a function or a file."""
    return timed.compared[side].name if side in timed.compared else side


def _subject(timed: Timed) -> str:
    """Name the target, the GPU and the versions of ptxas."""
    known = [ptxas_of(timed, side) for side in (REFERENCE, CANDIDATE)]
    ptxas = " against ".join(dict.fromkeys(reversed(known)))
    return ", ".join((timed.target, timed.device or "GPU not known", f"ptxas {ptxas}"))


def ptxas_of(timed: Timed, side: str) -> str:
    """List the ptxas versions of a side."""
    return ", ".join(timed.compared[side].ptxas) or UNKNOWN


def judged(timed: Timed) -> tuple[str, str, Tone]:
    """Return the verdict, its reason in one sentence, and the tone."""
    comparison = timed.comparison
    if timed.wrong:
        name, how = next(iter(timed.wrong.items()))
        reason = f"the {name} does not compute what the reference does: {how}; nothing was timed"
        return "Wrong", reason, Tone.BAD
    if not comparison.blocks and timed.same_code:
        return "Same code", "the instructions are equal, only the names differ; nothing was timed", Tone.NEUTRAL
    verdict, effect = comparison.verdict, comparison.effect()
    title = verdict.value.capitalize()
    if effect is not None and verdict in (TimingVerdict.FASTER, TimingVerdict.SLOWER):
        title += f" by {abs(effect.ratio - 1) * 100:.2f}%"
    return title, comparison.reason, _TONES[verdict]


# --- facts ---------------------------------------------------------------------------------------


def _counts(timed: Timed) -> str:
    kernels, changed = len(timed.kernels[REFERENCE]), len(timed.changed_kernels)
    outputs = f"{count(timed.outputs, 'output tensor')} compared" if timed.outputs else "no outputs to compare"
    return f"{count(kernels, 'kernel')}, {changed:,} with other code; {outputs}"


def _control_fact(timed: Timed, effects: Effects) -> str:
    comparison, name = timed.comparison, short(side_name(timed, CONTROL))
    floor = effects[FLOOR]
    if floor is not None:
        return f"control {name} (code of the {comparison.control_of}): {_with_span(floor)}"
    if CONTROL in comparison.sides:
        return f"the control {name} has the code of neither side, so the noise floor is not known"
    return "no control was timed, so the noise floor is not known"


def _cycles_fact(comparison: Comparison, effects: Effects) -> str:
    cycles = effects.get(CYCLES)
    if cycles is None:
        return "in SM cycles: not known"
    clocks = [mhz for block in comparison.usable for mhz in block.clock_mhz.values() if mhz]
    return f"in SM cycles: {_with_span(cycles)}; counted at {value_range(clocks, 'MHz')}"


def span(effect: Effect | None) -> str:
    """Format an effect's interval: "-0.05% to +0.05%"."""
    return "" if effect is None else f"{percent(effect.low)} to {percent(effect.high)}"


def _with_span(effect: Effect) -> str:
    return f"{percent(effect.ratio)} ({span(effect)})"


def value_range(values: Sequence[float], unit: str) -> str:
    """Format the smallest and the largest value: "1,755 to 1,980 MHz"."""
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


# --- tables --------------------------------------------------------------------------------------


def _times(timed: Timed, effects: Effects) -> Table:
    comparison = timed.comparison
    rows = []
    for side in comparison.sides:
        medians = [block.median_us(side) for block in comparison.usable]
        effect = effects.get(side)
        middle = f"{statistics.median(medians):,.2f}" if medians else ""
        ratio = "" if effect is None else percent(effect.ratio)
        rows.append((_label(side, timed), middle, ratio, span(effect)))
    return Table("Times", ("side", "median, us", "against the reference", "95% interval"), tuple(rows))


def _label(side: str, timed: Timed) -> str:
    if side in timed.baselines:
        return f"{side} (outputs differ)"
    if side != CONTROL:
        return side
    of = timed.comparison.control_of
    return f"control (code of the {of})" if of else "control (code of neither side)"


def kernels_table(timed: Timed) -> Table:
    """Show registers and stack of each kernel on both sides; kernels whose code differs come first."""
    before, after = timed.kernels[REFERENCE], timed.kernels[CANDIDATE]
    names = sorted(before, key=lambda name: name not in timed.changed_kernels)
    rows = []
    for name in names[:_MOST_KERNELS]:
        changed = ": ".join(filter(None, ("other code", timed.code.get(name))))
        code = changed if name in timed.changed_kernels else "same code"
        rows.append((name, _resources(before[name]), _resources(after.get(name, ())), code))
    title = "Kernels" if len(names) == len(rows) else f"Kernels, {len(rows)} of {len(names):,}"
    return Table(title, ("kernel", "reference", "candidate", "code"), tuple(rows), 4)


def _resources(configurations: Sequence[KernelCode]) -> str:
    shown = [f"{number(c.registers)} registers, stack {number(c.stack, 'B')}" for c in configurations]
    return "; ".join(shown) or "not compiled"


def environment_table(timed: Timed) -> Table:
    """Show the GPU, the versions, and how the times were measured."""
    comparison = timed.comparison
    rows = [("GPU", number(timed.device))]
    rows += [(f"ptxas, {side}", ptxas_of(timed, side)) for side in (REFERENCE, CANDIDATE)]
    rows += [(str(name), number(version)) for name, version in (timed.versions or {}).items()]
    l2 = {None: UNKNOWN, True: "emptied before each launch", False: "left warm"}[timed.flushes]
    rows.append(("L2 cache", l2))
    rows += [(f"{side} launched", _launched(how)) for side, how in (timed.sides or {}).items()]
    rows += _tuning(timed)
    rows.append(("blocks", f"{len(comparison.usable):,} in {count(comparison.processes, 'process', 'processes')}"))
    if comparison.dropped:
        rows.append(("dropped blocks", f"{len(comparison.dropped):,}: {', '.join(sorted(set(comparison.dropped)))}"))
    ended = _ENDED.get(timed.stopped or "", number(timed.stopped))
    rows.append(("ended", f"{ended}, after {timed.seconds:.1f} s"))
    return Table("Environment", ("", ""), (*rows, *_conditions(comparison)), 2)


def _launched(how: HowLaunched) -> str:
    way = "CUDA graph" if how.graph else f"eagerly ({how.why_eager})"
    return f"{way}, {how.copies} launches a sample" if how.copies > 1 else way


def _tuning(timed: Timed) -> list[tuple[str, str]]:
    """List the configurations that ran, if a kernel was autotuned."""
    if timed.tuning is None:
        return []
    sides = timed.tuning.sides
    if timed.tuning.mode == "fixed":
        rule, sides = "all sides run the reference's configuration", {REFERENCE: sides.get(REFERENCE, {})}
    else:
        rule = "each side chose its own configuration"
    chosen = (
        (f"tuned, {side}", short("; ".join(f"{name}: {configuration}" for name, configuration in choices.items()), 300))
        for side, choices in sides.items()
    )
    return [("autotuned", rule), *chosen]


def _conditions(comparison: Comparison) -> list[tuple[str, str]]:
    """List what NVML reported for the GPU while the blocks ran."""
    blocks = [block.conditions for block in comparison.usable]
    clocks = [conditions.sm_clock_mhz for conditions in blocks if conditions.sm_clock_mhz]
    capped = count(sum(bool(conditions.power_capped) for conditions in blocks), "block")
    others = [conditions.other_processes for conditions in blocks]
    there = [n for n in others if n is not None]
    shared = f"in {sum(map(bool, there))} of {count(len(others), 'block')}, at most {max(there)}" if there else UNKNOWN
    clock = f"{value_range(clocks, 'MHz')}; power-capped in {capped}" if clocks else f"{UNKNOWN} (NVML did not answer)"
    return [("SM clock", clock), ("other processes on the GPU", shared)]
