"""The documents of GPU memory: predictions, fixes of TMA loads, watched programs, and variants side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritonhook.cubin.image import Resources
from tritonhook.memory.prediction import SYSCALL_STACK, Bracket, Prediction
from tritonhook.memory.timeline import Attribution, MemoryTimeline
from tritonhook.ptx.cta_loads import Site
from tritonhook.report.documents import FORMAT
from tritonhook.report.format import number, size

VARIANT_ROWS = {
    "used_bytes": "used, at the peak",
    "growth_bytes": "growth over the start",
    "torch_allocated_bytes": "allocated (torch)",
    "torch_reserved_bytes": "reserved (torch)",
    "pool_bytes": "local-memory pool",
}


@dataclass(frozen=True, slots=True)
class RewriteEffect:
    """One kernel before and after a rewrite, both assembled by the same ptxas. code_before, code_after: bytes of
    instructions."""

    kernel: str
    before: Resources
    after: Resources
    code_before: int
    code_after: int


def prediction_document(prediction: Prediction) -> dict[str, Any]:
    """What the driver will reserve for the kernels' stacks on one GPU."""
    deepest = prediction.deepest
    return {
        "format": FORMAT,
        "kind": "memory prediction",
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
                "buffers": [{"name": name, "default_bytes": amount} for name, amount in need.buffers],
                "why_unknown": need.why_unknown,
            }
            for need in prediction.needs
        ],
    }


def _bracket(bracket: Bracket | None) -> dict[str, int] | None:
    return None if bracket is None else {"low": bracket.low, "high": bracket.high}


def fix_document(
    sites: Sequence[Site], effects: Sequence[RewriteEffect], ptxas: str | None, why_not: str | None, output: str | None
) -> dict[str, Any]:
    """Which TMA loads were rewritten, and each kernel before and after. why_not: why the effect is not known."""
    return {
        "format": FORMAT,
        "kind": "memory fix",
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


def timelines_document(timelines: Sequence[MemoryTimeline], notes: Sequence[str] = ()) -> dict[str, Any]:
    """A timeline for each process and GPU of a watched program, with its causes. notes: what is missing."""
    return {
        "format": FORMAT,
        "kind": "memory",
        "notes": list(notes),
        "timelines": [
            timeline.to_json()
            | {
                "attribution": _attribution(timeline.attribution()),
                "peak_bytes": None if timeline.peak is None else timeline.peak.used_bytes,
                "outside_allocators_bytes": timeline.outside_allocators_bytes,
                "explanation": explain(timeline),
            }
            for timeline in timelines
        ],
    }


def _attribution(attribution: Attribution) -> dict[str, Any]:
    return {
        "growth_bytes": attribution.growth_bytes,
        "source": attribution.source or None,
        "parts": [
            {"name": p.name, "bytes": p.bytes, "source": p.source, "detail": p.detail or None}
            for p in attribution.parts
        ],
        "unexplained_bytes": attribution.unexplained_bytes,
        "explained": attribution.is_explained,
    }


def explain(timeline: MemoryTimeline) -> list[str]:
    """Sentences: cause and remedy if the local-memory pool grew, and what no watched event accounts for."""
    sentences = []
    raised = [m for m in timeline.launches if m.stack_growth_bytes and m.before is not None and m.after is not None]
    for mark in raised[-1:]:
        before, after = mark.before.stack_limit_bytes, mark.after.stack_limit_bytes  # type: ignore[union-attr]
        sentences.append(
            f"Cause: the first launch of {mark.kernel} raised the stack from {number(before)} to {number(after)} bytes "
            f"per thread, and the driver reserved {size(mark.growth_bytes)} for all threads the GPU can hold."
        )
        if _is_syscall_stack(timeline.arch, after):
            sentences.append(
                "Remedy: that is the stack of a TMA load's driver call on sm_12x (Triton 3.4 to 3.6): "
                "`tritonhook run --rewrite tma-cta`, or Triton 3.7 and newer."
            )
        else:
            sentences.append(f"Remedy: smaller local arrays, spills or call chains in {mark.kernel}.")
    attribution = timeline.attribution()
    if attribution.is_explained is False:
        sentences.append(f"Not explained: {size(attribution.unexplained_bytes)}; no watched event accounts for it.")
    return sentences


def _is_syscall_stack(arch: int | None, limit: int | None) -> bool:
    """Whether a stack limit is one that a TMA load's driver call was seen to set, on a GPU that has this call."""
    if arch is None or arch // 10 != 12 or limit is None:
        return False
    return min(SYSCALL_STACK.values()) <= limit <= max(SYSCALL_STACK.values()) + 512


def variants_document(variants: Mapping[str, Sequence[MemoryTimeline]]) -> dict[str, Any]:
    """The memory that each variant of a program took."""
    return {
        "format": FORMAT,
        "kind": "memory variants",
        "variants": {
            name: variant_figures(timelines) | {"timelines": timelines_document(timelines)["timelines"]}
            for name, timelines in variants.items()
        },
    }


def variant_figures(timelines: Sequence[MemoryTimeline]) -> dict[str, int | None]:
    """Bytes by `VARIANT_ROWS`, of the process and GPU that grew most. None: no source says."""
    figures = [_figures(timeline) for timeline in timelines]
    return max(figures, key=lambda f: f["growth_bytes"] or 0, default=dict.fromkeys(VARIANT_ROWS))


def _figures(timeline: MemoryTimeline) -> dict[str, int | None]:
    start, source = timeline.start.used, timeline.attribution().source
    ends = [s.used_bytes for s in timeline.samples if s.source == source]
    if source in timeline.end.used:
        ends.append(timeline.end.used[source])
    used = max(ends, default=None)
    pool = timeline.attribution().part("local-memory pool")
    reading = timeline.end.reading
    return {
        "used_bytes": used,
        "growth_bytes": None if used is None or source not in start else used - start[source],
        "torch_allocated_bytes": timeline.torch_peak_allocated_bytes,
        "torch_reserved_bytes": timeline.torch_peak_reserved_bytes,
        "pool_bytes": pool.bytes if pool is not None else 0 if reading is not None else None,
    }
