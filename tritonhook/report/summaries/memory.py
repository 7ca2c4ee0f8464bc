"""Summaries of GPU memory: a watched program, variants side by side, a prediction, and a fix of TMA loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.memory.timeline import Mark, MemoryTimeline
from tritonhook.report.documents.memory import VARIANT_ROWS, explain
from tritonhook.report.format import MIB, UNKNOWN, count, number, sentence, size, size_range
from tritonhook.report.summary import Summary, Table, Tone

_SMALL = 16 * MIB  # growth below it is no finding
_MOST_MARKS = 20
_STEPS = "▁▂▃▄▅▆▇█"
_SPARKS = 40  # characters


# --- a watched program ---------------------------------------------------------------------------


def memory_summary(document: Mapping[str, Any]) -> Summary:
    """What grew outside the allocators in a watched program, and why."""
    timelines = timelines_of(document)
    notes = tuple(map(str, document["notes"])) + tuple(
        f"missing: {note}" for timeline in timelines for note in timeline.notes
    )
    if not timelines:
        return Summary("GPU memory", "", "nothing was watched", Tone.UNSURE, (), (), notes)
    outside = max((t.outside_allocators_bytes for t in timelines), key=lambda grown: grown or 0)
    if outside is None:
        verdict, tone = "not known what grew outside the allocators", Tone.UNSURE
    elif outside > _SMALL:
        verdict, tone = f"{size(outside)} that no allocator shows", Tone.BAD
    else:
        verdict, tone = "next to nothing outside the allocators", Tone.GOOD
    if tone is Tone.GOOD and any(t.attribution().is_explained is False for t in timelines):
        tone = Tone.UNSURE
    facts = dict.fromkeys(fact for timeline in timelines for fact in explain(timeline))
    tables = [table for t in timelines for table in _tables(t, title_of(t) if len(timelines) > 1 else "")]
    subject = ", ".join(dict.fromkeys(t.name for t in timelines))
    return Summary("GPU memory", subject, verdict, tone, tuple(facts), tuple(tables), notes)


def timelines_of(document: Mapping[str, Any]) -> list[MemoryTimeline]:
    """The timelines in a document. Raises ValueError if it is damaged."""
    return [MemoryTimeline.from_json(item) for item in document["timelines"]]


def title_of(timeline: MemoryTimeline) -> str:
    process = "" if timeline.process is None else f", process {timeline.process}"
    return f"{timeline.name}{process}"


def _tables(timeline: MemoryTimeline, named: str) -> list[Table]:
    tables = [parts_table(timeline, named), _watched_table(timeline, named)]
    marks = [m for m in timeline.marks if (m.growth_bytes or 0) > 0 or m.stack_growth_bytes or m.note]
    return [*tables, _marks_table(marks, named)] if marks else tables


def parts_table(timeline: MemoryTimeline, named: str = "") -> Table:
    """The causes of the growth. named: the process and GPU, where there are several."""
    attribution = timeline.attribution()
    rows = [(p.name, size(p.bytes), p.detail, p.source) for p in attribution.parts]
    rows.append(("unexplained", size(attribution.unexplained_bytes), "", "the growth less the parts above"))
    rows.append(("growth", size(attribution.growth_bytes), "", attribution.source or "no source saw both ends"))
    return Table(
        _titled("Where it went", named), ("cause", "size", "which", "how it is known"), tuple(rows), 1, words=(2, 3)
    )


def _watched_table(timeline: MemoryTimeline, named: str) -> Table:
    peak = timeline.peak
    rows = [("GPU", timeline.device), ("process", UNKNOWN if timeline.process is None else str(timeline.process))]
    rows.append(("watched for", f"{timeline.duration_ns / 1e9:,.1f} s"))
    if peak is not None:
        rows.append(("peak in use", f"{size(peak.used_bytes)} of {size(timeline.total_bytes)}, by {peak.source}"))
    if timeline.samples:
        rows.append(("use over time", _sparkline(timeline)))
    launches = len(timeline.launches)
    took = sum((m.growth_bytes or 0) > 0 for m in timeline.launches)
    rows.append(("first launches", f"{launches:,}, {took:,} of them took memory"))
    return Table(_titled("Watched", named), ("", ""), tuple(rows), 2)


def _sparkline(timeline: MemoryTimeline) -> str:
    """Memory in use over time: each character is the highest value of its time, from the lowest seen to the highest."""
    duration = max(timeline.duration_ns, 1)
    columns: list[int | None] = [None] * _SPARKS
    for sample in timeline.samples:
        at = min(_SPARKS - 1, sample.t_ns * _SPARKS // duration)
        columns[at] = max(columns[at] or 0, sample.used_bytes)
    filled: list[int] = []
    for value in columns:
        filled.append(value if value is not None else filled[-1] if filled else timeline.samples[0].used_bytes)
    low, high = min(filled), max(filled)
    scale = (len(_STEPS) - 1) / ((high - low) or 1)
    return f"{''.join(_STEPS[round((value - low) * scale)] for value in filled)} {size_range(low, high)}"


def _marks_table(marks: Sequence[Mark], named: str) -> Table:
    chosen = sorted(marks, key=lambda m: -(m.growth_bytes or 0))[:_MOST_MARKS]
    rows = tuple(
        (f"{m.t_ns / 1e9:.3f}", event(m), m.kernel, size(m.growth_bytes), stack_limits(m), m.note or "")
        for m in sorted(chosen, key=lambda m: m.t_ns)
    )
    title = "Events that took memory"
    if len(marks) > len(rows):
        title += f", the {len(rows)} largest of {len(marks):,}"
    columns = ("s", "event", "kernel", "growth", "stack limit, bytes", "note")
    return Table(_titled(title, named), columns, rows, 0, words=(1, 2, 5))


def event(mark: Mark) -> str:
    return {"load": "loaded", "launch": "first launch"}.get(mark.kind, mark.kind)


def stack_limits(mark: Mark) -> str:
    """The stack limit before and after an event, in bytes per thread."""
    if mark.before is None or mark.after is None:
        return UNKNOWN
    a, b = mark.before.stack_limit_bytes, mark.after.stack_limit_bytes
    return number(a) if a == b else f"{number(a)} → {number(b)}"


def _titled(title: str, named: str) -> str:
    return f"{title}: {named}" if named else title


# --- variants, predictions, fixes ----------------------------------------------------------------


def variants_summary(document: Mapping[str, Any]) -> Summary:
    """The memory that each variant of a program took, side by side."""
    variants = document["variants"]
    names = list(variants)
    rows = tuple((label, *(size(variants[n][key]) for n in names)) for key, label in VARIANT_ROWS.items())
    grown = [variants[n]["growth_bytes"] for n in names]
    verdict, tone = "not known what grew", Tone.UNSURE
    if None not in grown:
        most = names[grown.index(max(grown))]
        more = max(grown) - min(grown)
        verdict = (
            f"the variant {most} takes {size(more)} more" if more > _SMALL else "the variants take the same memory"
        )
        tone = Tone.CHANGED if more > _SMALL else Tone.GOOD
    return Summary("GPU memory", " against ".join(names), verdict, tone, (), (Table("Variants", ("", *names), rows),))


def prediction_summary(document: Mapping[str, Any]) -> Summary:
    """How much local memory the driver will reserve on a GPU, with cause and remedy."""
    gpu = document["gpu"]
    facts = [f"cause: {document['cause']}"]
    if document["remedy"]:
        facts.append(f"remedy: {document['remedy']}")
    buffers = {b["name"]: b["default_bytes"] for k in document["kernels"] for b in k["buffers"]}
    facts += [
        f"also a {name}, at load and first launch; it took {size(taken)} on an H100 with default limits"
        for name, taken in buffers.items()
    ]
    verdict, tone = _predicted(document["growth_bytes"])
    if document.get("failed"):
        tone = Tone.BAD
        limit = size(document["fail_over_bytes"])
        unknown = f"not known whether it is above the limit of {limit}, which counts as failed"
        facts.append(unknown if document["growth_bytes"] is None else f"above the limit of {limit}")
    notes = (
        "a prediction: nothing was run",
        f"basis: {document['basis']}",
        f"{gpu['sms']} SMs x {gpu['threads_per_sm']:,} threads: {gpu['source']}",
    )
    return Summary(
        "Memory prediction", str(gpu["name"]), verdict, tone, tuple(facts), (_needs(document["kernels"]),), notes
    )


def _predicted(growth: Mapping[str, int] | None) -> tuple[str, Tone]:
    if growth is None:
        return "not known how much local memory the driver will reserve", Tone.UNSURE
    if growth["high"] == 0:
        return "no local memory beyond what every context has", Tone.GOOD
    return f"the driver will reserve {size_range(growth['low'], growth['high'])} of local memory", Tone.CHANGED


def _needs(kernels: Sequence[Mapping[str, Any]]) -> Table:
    """What each kernel needs per thread, the deepest stack first."""
    ordered = sorted(kernels, key=lambda k: -1 if k["stack_bytes"] is None else -k["stack_bytes"]["high"])
    rows = tuple(
        (
            str(k["kernel"]),
            number(k["frame_bytes"]),
            UNKNOWN if k["stack_bytes"] is None else _stack(k["stack_bytes"]),
            ", ".join(k["syscalls"]) or "none",
            k["why_unknown"] or "",
        )
        for k in ordered
    )
    columns = ("kernel", "own frame, bytes", "stack per thread, bytes", "driver calls", "")
    return Table("Kernels", columns, rows, words=(3, 4))


def _stack(bracket: Mapping[str, int]) -> str:
    low, high = bracket["low"], bracket["high"]
    return number(low) if low == high else f"{number(low)} to {number(high)}"


_EFFECTS = {"syscalls": "driver calls", "registers": "registers", "stack_bytes": "stack, bytes per thread"}


def fix_summary(document: Mapping[str, Any]) -> Summary:
    """Which TMA loads became `.shared::cta`, which stay, and what that did to each kernel."""
    loads: Sequence[Mapping[str, Any]] = document["loads"]
    stay = [load for load in loads if load["refusal"] is not None]
    verdict = f"{len(loads) - len(stay)} of {count(len(loads), 'TMA load')} changed to .shared::cta"
    if not loads:
        verdict = "no TMA load to .shared::cluster: nothing to change"
    why_not = document["why_no_effect"]
    facts = [
        f"in {load['function']}, line {load['line']}: {str(load['opcode']).partition('.mbarrier')[0]} stays: "
        f"{load['refusal']}"
        for load in stay
    ]
    if why_not:
        facts.append(f"the effect is not known: {sentence(str(why_not))}")
    tables = [
        Table(
            f"{kernel['kernel']}, ptxas {number(document['ptxas'])}",
            ("", "before", "after"),
            tuple(
                (label, number(kernel["before"][key]), number(kernel["after"][key]))
                for key, label in (*_EFFECTS.items(), ("code_bytes", "code, bytes"))
            ),
        )
        for kernel in document["kernels"]
        if len(stay) < len(loads)
    ]
    tone = Tone.UNSURE if stay or why_not else Tone.GOOD
    return Summary("TMA fix", "", verdict, tone, tuple(facts), tuple(tables))
