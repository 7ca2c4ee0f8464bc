"""Reports of memory: predictions and watched programs, for terminals, as JSON, and as a trace for Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tritonhook.cubin import Resources
from tritonhook.footprint import MIB, Bracket, Prediction, StackNeed
from tritonhook.report.json import FORMAT
from tritonhook.report.terminal import PlainTable, number
from tritonhook.tma import Site

_MOST_KERNELS = 20


@dataclass(frozen=True, slots=True)
class Effect:
    """What a rewrite did to one kernel under one ptxas. code: bytes of instructions."""

    kernel: str
    before: Resources
    after: Resources
    code_before: int
    code_after: int

    @property
    def rows(self) -> tuple[tuple[str, Any, Any], ...]:
        a, b = self.before, self.after
        return (
            ("driver calls", a.syscalls, b.syscalls),
            ("registers", a.registers, b.registers),
            ("stack, bytes per thread", a.stack, b.stack),
            ("code, bytes", self.code_before, self.code_after),
        )


def mib(value: float | None) -> str:
    """Bytes for people: whole MiB from 10 on."""
    if value is None:
        return "not known"
    amount = value / MIB
    return f"{amount:,.0f} MiB" if abs(amount) >= 10 or amount == 0 else f"{amount:,.1f} MiB"


# --- predictions ---------------------------------------------------------------------------------


def render_prediction(prediction: Prediction, fail_over: int | None = None) -> RenderableType:
    """The bracket first, then why and what to do, then the kernels."""
    gpu, growth = prediction.gpu, prediction.growth
    over = fail_over is not None and (growth is None or growth.high > fail_over)
    style = "bold red" if over else "bold yellow" if growth is None or growth.high else "bold green"
    parts: list[RenderableType] = [Text(f"{gpu.name}: {_headline(growth)} (prediction)", style=style)]
    parts.append(Text(f"Cause: {prediction.cause}."))
    if prediction.remedy:
        parts.append(Text(f"Remedy: {prediction.remedy}."))
    parts += [Text(f"Also: {sentence}.") for sentence in _buffers(prediction)]
    if over and fail_over is not None:
        parts.append(Text(f"Above the limit of {mib(fail_over)}.", style="bold red"))
    parts.append(Text(f"Basis: {prediction.basis}.", style="dim"))
    parts.append(Text(f"{gpu.sms} SMs x {gpu.threads_per_sm:,} threads: {gpu.source}.", style="dim"))
    parts.append(_needs_table(prediction))
    return Group(*parts)


def _headline(growth: Bracket | None) -> str:
    if growth is None:
        return "not known how much local memory the driver will reserve"
    if growth.high == 0:
        return "no local memory beyond what every context has"
    amount = mib(growth.low) if growth.low == growth.high else f"{mib(growth.low)} to {mib(growth.high)}"
    return f"the driver will reserve {amount} of local memory"


def _buffers(prediction: Prediction) -> list[str]:
    found = dict.fromkeys(buffer for need in prediction.needs for buffer in need.buffers)
    return [f"a {name} of {mib(size)} by default, at the first launch of a kernel that uses it" for name, size in found]


def _needs_table(prediction: Prediction) -> RenderableType:
    ordered = sorted(prediction.needs, key=lambda n: -1 if n.stack is None else -n.stack.high)
    table = PlainTable("kernel", "own frame, bytes", "stack per thread, bytes", "driver calls", padding=(0, 2, 0, 0))
    for need in ordered[:_MOST_KERNELS]:
        table.add_row(need.kernel, number(need.frame), _stack(need), ", ".join(need.syscalls) or "none")
    if len(ordered) > _MOST_KERNELS:
        table.add_row(f"... {len(ordered) - _MOST_KERNELS} more", "", "", "")
    return table


def _stack(need: StackNeed) -> str:
    if need.stack is None:
        return "not known"
    low, high = need.stack.low, need.stack.high
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def prediction_document(prediction: Prediction) -> dict[str, Any]:
    """`tritonhook mem predict --json`; docs/json.md describes it."""
    deepest = prediction.deepest
    return {
        "format": FORMAT,
        "gpu": {
            "name": prediction.gpu.name,
            "sms": prediction.gpu.sms,
            "threads_per_sm": prediction.gpu.threads_per_sm,
            "arch": prediction.gpu.arch,
            "source": prediction.gpu.source,
        },
        "growth_bytes": _bracket(prediction.growth),
        "deepest": None if deepest is None else deepest.kernel,
        "cause": prediction.cause,
        "remedy": prediction.remedy,
        "basis": prediction.basis,
        "kernels": [
            {
                "kernel": need.kernel,
                "frame_bytes": need.frame,
                "stack_bytes": _bracket(need.stack),
                "syscalls": list(need.syscalls),
                "buffers": [{"name": name, "default_bytes": size} for name, size in need.buffers],
                "why_unknown": need.why_unknown,
            }
            for need in prediction.needs
        ],
    }


def _bracket(bracket: Bracket | None) -> dict[str, int] | None:
    return None if bracket is None else {"low": bracket.low, "high": bracket.high}


# --- the fix -------------------------------------------------------------------------------------


def render_fix(
    sites: Sequence[Site], effects: Sequence[Effect], ptxas: str | None, why_not: str | None
) -> RenderableType:
    """Which loads change and which stay, then what that did to each kernel."""
    changed, stay = (sum((site.refusal is None) is wanted for site in sites) for wanted in (True, False))
    if not sites:
        parts: list[RenderableType] = [Text("No TMA load to .shared::cluster: nothing to change.", style="bold green")]
    else:
        style = "bold yellow" if stay else "bold green"
        parts = [Text(f"{changed} of {len(sites)} TMA loads to .shared::cta.", style=style)]
    parts += [Text(site.sentence + ".") for site in sites if site.refusal is not None]
    if why_not is not None:
        parts.append(Text(f"The effect is not known: {why_not}", style="yellow"))
    for effect in effects if changed else ():
        table = PlainTable(title=f"{effect.kernel}, ptxas {ptxas}", padding=(0, 2, 0, 0))
        for column in ("", "before", "after"):
            table.add_column(column, justify="left" if column == "" else "right")
        for name, before, after in effect.rows:
            table.add_row(name, number(before), number(after))
        parts.append(table)
    return Group(*parts)


def fix_document(
    sites: Sequence[Site], effects: Sequence[Effect], ptxas: str | None, why_not: str | None, output: str | None
) -> dict[str, Any]:
    """`tritonhook mem fix --json`."""
    return {
        "format": FORMAT,
        "loads": [
            {"function": site.function, "line": site.line, "opcode": site.opcode, "refusal": site.refusal}
            for site in sites
        ],
        "rewritten": sum(site.refusal is None for site in sites),
        "ptxas": ptxas,
        "kernels": [
            {
                "kernel": effect.kernel,
                **{
                    side: {
                        "syscalls": list(resources.syscalls),
                        "registers": resources.registers,
                        "stack_bytes": resources.stack,
                        "code_bytes": code,
                    }
                    for side, resources, code in (
                        ("before", effect.before, effect.code_before),
                        ("after", effect.after, effect.code_after),
                    )
                },
            }
            for effect in effects
        ],
        "why_no_effect": why_not,
        "output": output,
    }
