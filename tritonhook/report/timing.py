"""A timed comparison for people at a terminal. Values in, renderables out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tritonhook.report.terminal import PlainTable
from tritonhook.timing.result import Timed
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE, Effect, TimingVerdict, percent

_LISTED = 8  # kernels with other code
_STYLE = {
    TimingVerdict.FASTER: "bold green",
    TimingVerdict.SLOWER: "bold red",
    TimingVerdict.SAME: "bold",
    TimingVerdict.INCONCLUSIVE: "bold yellow",
}


def headline(timed: Timed) -> str:
    """The verdict in one sentence."""
    if timed.wrong:
        name, how = next(iter(timed.wrong.items()))
        return f"WRONG: the {name} does not compute what the reference does: {how}; nothing was timed"
    if timed.same_code and not timed.comparison.blocks:
        return "SAME CODE: the instructions are equal, only the names differ; nothing was timed"
    comparison = timed.comparison
    found = comparison.effect()
    size = "" if found is None else f" {percent(found.ratio)} time,"
    return f"{comparison.verdict.name}:{size} {comparison.reason}"


def render_timed(timed: Timed) -> RenderableType:
    """Verdict first, then each side's time, the kernels, and under which conditions it was taken."""
    style = "bold red" if timed.wrong else "bold" if timed.same_code else _STYLE[timed.comparison.verdict]
    parts: list[RenderableType] = [Text(headline(timed), style=style), _kernels(timed)]
    if timed.comparison.blocks:
        parts += [_times(timed), *(Text(line, style="dim") for line in _conditions(timed))]
    parts += [Text(f"baseline {name}: {text}", style="yellow") for name, text in timed.baselines.items()]
    parts += [Text(note, style="dim") for note in timed.notes]
    return Group(*parts)


def _span(found: Effect) -> str:
    return f"{percent(found.ratio)} ({percent(found.low)} to {percent(found.high)})"


def _kernels(timed: Timed) -> RenderableType:
    before, after = timed.kernels[REFERENCE], timed.kernels[CANDIDATE]
    checked = f"{timed.outputs} output tensor(s) compared" if timed.outputs else "no outputs to compare"
    lines = [f"{len(before)} kernel(s), {len(timed.changed_kernels)} with other code; {checked}"]
    for name in timed.changed_kernels[:_LISTED]:
        lines.append(f"  {name}: {_resources(before[name])} -> {_resources(after.get(name, ()))}")
        if name in timed.code:
            lines.append(f"    {timed.code[name]}")
    if len(timed.changed_kernels) > _LISTED:
        lines.append(f"  and {len(timed.changed_kernels) - _LISTED} more")
    return Text("\n".join([*lines, *_tuning(timed)]))


def _tuning(timed: Timed) -> list[str]:
    """Which configurations ran, where something was autotuned."""
    if timed.tuning is None:
        return []
    sides: Mapping[str, Mapping[str, str]] = timed.tuning["sides"]
    if timed.tuning["mode"] == "fixed":
        chosen = "; ".join(f"{name}: {configuration}" for name, configuration in sides.get(REFERENCE, {}).items())
        return [f"autotuned; all sides run the reference's configuration: {chosen}"]
    lines = ["autotuned; each side chose its own configuration:"]
    return lines + [
        f"  {side}: {'; '.join(f'{k}: {c}' for k, c in choices.items())}" for side, choices in sides.items()
    ]


def _resources(configurations: Sequence[Mapping[str, Any]]) -> str:
    """Registers and stack, of each configuration."""
    return "; ".join(f"{c['registers']} registers, stack {c['stack']} B" for c in configurations) or "not compiled"


def _times(timed: Timed) -> RenderableType:
    comparison = timed.comparison
    table = PlainTable("side", "median us", "against the reference", "launched", padding=(0, 2, 0, 0))
    for side in comparison.sides:
        medians = [block.median_us(side) for block in comparison.usable]
        found = comparison.effect(side) if side != REFERENCE else None
        how = (timed.sides or {}).get(side, {})
        launched = "CUDA graph" if how.get("graph") else f"eagerly ({how.get('why_eager')})"
        copies = f", {how['copies']} launches a sample" if how.get("copies", 1) > 1 else ""
        differs = " (outputs differ)" if side in timed.baselines else ""
        label = side + differs if side != CONTROL or comparison.control_of else f"{side} (code of neither side)"
        table.add_row(
            label,
            f"{statistics.median(medians):.2f}" if medians else "-",
            _span(found) if found else "",
            launched + copies,
        )
    return table


def _conditions(timed: Timed) -> list[str]:
    comparison = timed.comparison
    cache = "cold L2" if timed.flushes else "warm L2"
    lines = [
        f"{len(comparison.usable)} blocks in {comparison.processes} processes, {cache}, "
        f"stopped: {timed.stopped}, {timed.seconds:.0f} s, {timed.device}"
    ]
    clocks = [b.conditions.sm_clock_mhz for b in comparison.usable if b.conditions.sm_clock_mhz]
    if clocks:
        capped = sum(bool(block.conditions.power_capped) for block in comparison.usable)
        lines.append(f"SM clock {min(clocks):.0f} to {max(clocks):.0f} MHz; power-capped in {capped} blocks")
    else:
        lines.append("clocks: not known (NVML did not answer)")
    cycles = comparison.cycles()
    ran = [mhz for block in comparison.usable for mhz in block.clock_mhz.values() if mhz]
    if cycles is not None:
        lines.append(f"in SM cycles: {_span(cycles)}; counted at {min(ran):.0f} to {max(ran):.0f} MHz")
    else:
        lines.append("in SM cycles: not known")
    others = [block.conditions.other_processes for block in comparison.usable]
    if any(others):
        lines.append(f"other processes had the GPU open in {sum(map(bool, others))} of {len(others)} blocks")
    elif others and all(count is None for count in others):
        lines.append("other processes on the GPU: not known")
    if comparison.dropped:
        lines.append(f"{len(comparison.dropped)} blocks dropped: {', '.join(sorted(set(comparison.dropped)))}")
    if comparison.control is not None:
        lines.append(f"control (code of the {comparison.control_of}): {_span(comparison.control)}")
    elif CANDIDATE in comparison.sides:
        lines.append("no control: its code is that of neither side, so that the noise floor is not known")
    return lines
