"""Reports of memory from golden timelines: attribution, terminal, JSON, Perfetto, CI's exit code."""

from __future__ import annotations

import json
import sys

import pytest
from repository import GOLDEN

from tests.golden.make_golden_memory import TRACES
from tritonhook.cli._streams import rendered
from tritonhook.cli.mem.watch import is_over
from tritonhook.memory.timeline import Mark, MemoryTimeline, Reading
from tritonhook.report.memory import (
    chrome_trace,
    explain,
    mib,
    render_timeline,
    render_variants,
    timelines_document,
    variant_figures,
    variants_document,
)

GOLDEN = GOLDEN / "memory"
MIB = 1 << 20


def golden(name: str) -> MemoryTimeline:
    return MemoryTimeline.from_json(json.loads((GOLDEN / f"{name}.json").read_text()))


@pytest.mark.parametrize("name", TRACES)
def test_the_files_are_what_make_golden_memory_writes(name) -> None:
    assert golden(name) == TRACES[name]()


def test_the_growth_of_an_rtx_5090_in_parts() -> None:
    attribution = golden("tma").attribution()
    parts = {p.name: p.bytes and p.bytes // MIB for p in attribution.parts}
    assert parts == {
        "context": 460,
        "modules": 80,
        "local-memory pool": 3728,
        "torch reserved": 64,
        "other processes": 0,
    }
    assert attribution.growth_bytes == 4332 * MIB
    assert attribution.unexplained_bytes == 0


def test_on_gb10_the_parts_come_from_the_driver_and_the_sum_from_the_process() -> None:
    attribution = golden("unified").attribution()
    assert attribution.source == "NVML, this process"
    assert attribution.part("local-memory pool").bytes == 1077 * MIB  # type: ignore[union-attr]
    assert attribution.growth_bytes == 1581 * MIB
    assert attribution.unexplained_bytes == 0


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("tma", ["local-memory pool  3,728 MiB", f"{'matmul_kernel_descriptor'}, 14,512 bytes per thread"]),
        ("tma", ["1,024 -> 14,512", "--fix tma-cta", "Peak: 4,832 MiB of 32,607 MiB in use, by NVML", "process 4711"]),
        ("plain", ["context", "460 MiB", "loaded"]),
        ("unified", ["Growth: 1,581 MiB by NVML, this process", "Missing: NVIDIA GB10: no timeline from NVML"]),
        ("lost", ["Growth: not known", "Missing: NVIDIA GeForce RTX 5090: the timeline ends at 0.5 s"]),
        ("captured", ["during graph capture", "local-memory pool, other kernels  3,359 MiB"]),
        ("nothing", ["Growth: not known", "NVML's library is not on this machine", "unexplained  not known"]),
    ],
)
def test_every_trace_is_told_to_people(name, needed) -> None:
    text = rendered(render_timeline(golden(name)), sys.stderr)
    for words in needed:
        assert words in text, text
    assert "None" not in text


def test_the_plain_trace_has_no_cause_to_tell() -> None:
    assert explain(golden("plain")) == []


def test_the_remedy_fits_the_gpu() -> None:
    sentences = " ".join(explain(golden("tma")))
    assert "driver call on sm_12x" in sentences
    # the same limit on a GPU without the driver call is somebody's large frame
    from dataclasses import replace

    other = " ".join(explain(replace(golden("tma"), arch=90)))
    assert "driver call" not in other and "smaller local arrays" in other


@pytest.mark.parametrize("name", TRACES)
def test_the_documents_are_json_and_round(name) -> None:
    document = json.loads(json.dumps(timelines_document([golden(name)], ["a note"])))
    (entry,) = document["timelines"]
    attribution = golden(name).attribution()
    assert entry["attribution"]["growth_bytes"] == attribution.growth_bytes
    assert entry["attribution"]["unexplained_bytes"] == attribution.unexplained_bytes
    assert {p["name"]: p["bytes"] for p in entry["attribution"]["parts"]} == {
        p.name: p.bytes for p in attribution.parts
    }
    extra = {"attribution", "peak_bytes", "outside_allocators_bytes", "explanation"}
    again = {key: value for key, value in entry.items() if key not in extra}
    assert MemoryTimeline.from_json(again) == golden(name)
    assert (document["format"], document["notes"]) == (1, ["a note"])


@pytest.mark.parametrize("name", TRACES)
def test_the_trace_has_what_perfetto_needs(name) -> None:
    timeline = golden(name)
    trace = json.loads(json.dumps(chrome_trace([timeline])))
    assert trace["displayTimeUnit"] == "ms"
    events = trace["traceEvents"]
    for event in events:
        assert event["ph"] in "MCi" and isinstance(event["pid"], int)
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
            assert event["ts"] >= 0
        if event["ph"] == "i":
            assert event["s"] == "p" and event["name"]
    counters = [e for e in events if e["ph"] == "C" and "used_mib" in e["args"]]
    assert [e["args"]["used_mib"] for e in counters] == [s.used_bytes / MIB for s in timeline.samples]
    assert [e["ts"] for e in counters] == [s.t_ns / 1000 for s in timeline.samples]
    assert len([e for e in events if e["ph"] == "i"]) == len(timeline.marks)


@pytest.mark.parametrize(
    ("name", "limit", "over"),
    [
        ("tma", 256 * MIB, True),
        ("tma", 4096 * MIB, False),
        ("plain", 256 * MIB, False),
        ("unified", 256 * MIB, True),
        ("lost", 256 * MIB, True),  # the pool's own step was seen before the GPU went
        ("captured", 256 * MIB, True),  # nobody saw which kernel, but the limit has risen
        ("nothing", 256 * MIB, True),  # not known is not "small"
    ],
)
def test_the_gate(name, limit, over) -> None:
    assert is_over([golden(name)], limit) is over


def test_the_gate_without_any_timeline_does_not_pass() -> None:
    assert is_over([], 1 << 40)


def test_variants_side_by_side() -> None:
    variants = {"plain": [golden("plain")], "tma": [golden("plain"), golden("tma")], "none": []}
    text = rendered(render_variants(variants), sys.stdout)
    rows = {line[:22].strip(): line[22:].split() for line in text.splitlines()[1:]}
    assert rows["used, at the peak"] == ["1.078", "GiB", "4.719", "GiB", "not", "known"]
    assert rows["growth over the start"][:4] == ["0.590", "GiB", "4.230", "GiB"]
    assert rows["reserved (torch)"][:4] == ["0.062", "GiB", "0.062", "GiB"]
    assert rows["local-memory pool"][:4] == ["0.000", "GiB", "3.641", "GiB"]
    document = json.loads(json.dumps(variants_document(variants)))
    assert document["variants"]["tma"]["growth_bytes"] == 4332 * MIB
    assert document["variants"]["none"]["used_bytes"] is None
    assert variant_figures([golden("nothing")])["growth_bytes"] is None


def test_growth_of_a_mark_leaves_torchs_own_out() -> None:
    mark = Mark(0, "launch", "k", Reading(1024, 1000 * MIB, 0, 10 * MIB), Reading(2048, 700 * MIB, 0, 60 * MIB))
    assert mark.growth_bytes == 250 * MIB
    assert mark.stack_growth_bytes == 1024
    assert Mark(0, "launch", "k", None, mark.after).growth_bytes is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not known"), (0, "0 MiB"), (MIB // 2, "0.5 MiB"), (3728 * MIB, "3,728 MiB"), (-64 * MIB, "-64 MiB")],
)
def test_sizes_for_people(value, text) -> None:
    assert mib(value) == text
