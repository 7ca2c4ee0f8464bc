"""Golden timelines: attribution, documents, summaries, and the exit code for CI."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from documents import in_terminal

from tritonhook.cli.mem.watch import is_over
from tritonhook.memory.timeline import Mark, MemorySample, MemoryTimeline, Reading, Snapshot
from tritonhook.report.result import Summary, read_result
from tritonhook.report.results.memory import Memory, VariantMemory, Variants, explain

# Made up after the published measurements of docs/explanation/gpu-memory.md.
MIB = 1 << 20
TOTAL = 32_607 * MIB
KERNEL = "matmul_kernel_descriptor"


def reading(used_mib: float, limit: int = 1024, reserved_mib: int = 64, total: int = TOTAL) -> Reading:
    return Reading(limit, total - round(used_mib * MIB), 48 * MIB, reserved_mib * MIB)


def sample(ms: int, used_mib: int, torch: bool = False) -> MemorySample:
    extra = (48 * MIB, 64 * MIB) if torch else (None, None)
    return MemorySample(ms * 1_000_000, used_mib * MIB, "NVML", *extra)


def timeline(**changes: object) -> MemoryTimeline:
    """An RTX 5090 and a kernel with a TMA load: context 460, torch 64, modules 80, pool 3,728 MiB."""
    values = {
        "device": "GPU-5090aaaa-0000-0000-0000-000000000000",
        "name": "NVIDIA GeForce RTX 5090",
        "total_bytes": TOTAL,
        "resident_threads": 170 * 1536,
        "period_ns": 10_000_000,
        "duration_ns": 2_000_000_000,
        "start": Snapshot({"NVML": 500 * MIB}, 480 * MIB, None),
        "end": Snapshot({"NVML": 4832 * MIB, "cuMemGetInfo": 4832 * MIB}, 480 * MIB, reading(4832, 14_512)),
        "samples": (
            *(sample(10, 500), sample(400, 960), sample(500, 1024, True)),
            *(sample(900, 1104), sample(920, 4832), sample(1920, 4832, True)),
        ),
        "marks": (
            Mark(890_000_000, "load", KERNEL, reading(1024), reading(1104)),
            Mark(905_000_000, "launch", KERNEL, reading(1104), reading(4832, 14_512)),
            Mark(1_500_000_000, "launch", "add_kernel", reading(4832, 14_512), reading(4832, 14_512)),
        ),
        "process": 4711,
        "torch_peak_allocated_bytes": 48 * MIB,
        "torch_peak_reserved_bytes": 64 * MIB,
        "arch": 120,
    }
    return MemoryTimeline(**(values | changes))  # type: ignore[arg-type]


def plain() -> MemoryTimeline:
    return timeline(
        end=Snapshot({"NVML": 1104 * MIB}, 480 * MIB, reading(1104)),
        samples=(sample(10, 500), sample(900, 1104, True)),
        marks=(
            Mark(890_000_000, "load", "copy_kernel", reading(1024), reading(1104)),
            Mark(905_000_000, "launch", "copy_kernel", reading(1104), reading(1104)),
        ),
    )


def unified() -> MemoryTimeline:
    """A GB10: NVML has no figure for the device, but one for the process."""
    total = 122_500 * MIB
    return timeline(
        device="GPU-6b10aaaa-0000-0000-0000-000000000000",
        name="NVIDIA GB10",
        total_bytes=total,
        resident_threads=48 * 1536,
        arch=121,
        start=Snapshot({"NVML, this process": 0}, 0, None),
        end=Snapshot(
            {"NVML, this process": 1581 * MIB, "cuMemGetInfo": 9581 * MIB}, 0, reading(9581, 14_512, total=total)
        ),
        samples=(),
        marks=(Mark(905_000_000, "launch", KERNEL, reading(8504, total=total), reading(9581, 14_512, total=total)),),
        notes=("NVIDIA GB10: no timeline from NVML: nvmlDeviceGetMemoryInfo: this GPU does not report this value",),
    )


def lost() -> MemoryTimeline:
    return timeline(
        end=Snapshot({}, None, None),
        samples=timeline().samples[:3],
        notes=("NVIDIA GeForce RTX 5090: the timeline ends at 0.5 s: nvmlDeviceGetMemoryInfo: the GPU has fallen off",),
    )


def captured() -> MemoryTimeline:
    note = "during graph capture, when the driver is not called"
    return timeline(marks=(Mark(905_000_000, "launch", KERNEL, None, None, note),))


def nothing() -> MemoryTimeline:
    return timeline(
        device="GPU-none",
        name="GPU-none",
        total_bytes=None,
        resident_threads=None,
        arch=None,
        start=Snapshot({}, None, None),
        end=Snapshot({}, None, None),
        samples=(),
        marks=(),
        notes=("no timeline from NVML: NVML's library is not on this machine (no NVIDIA driver)",),
        torch_peak_allocated_bytes=None,
        torch_peak_reserved_bytes=None,
    )


TRACES = {
    "tma": timeline,
    "plain": plain,
    "unified": unified,
    "lost": lost,
    "captured": captured,
    "nothing": nothing,
}


def summary(name: str) -> Summary:
    return read_result(json.loads(json.dumps(Memory.of([golden(name)]).document()))).summary()


def golden(name: str) -> MemoryTimeline:
    return TRACES[name]()


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


@pytest.mark.parametrize("name", TRACES)
def test_what_is_not_known_is_called_so(name: str) -> None:
    text = " ".join(in_terminal(summary(name)).split())
    assert "None" not in text and ("growth not known" in text) == (golden(name).attribution().growth_bytes is None)


def test_of_many_events_the_largest_are_shown() -> None:
    mark = golden("tma").marks[1]
    marks = tuple(replace(mark, t_ns=n, kernel=f"k{n}") for n in range(45))
    shown = Memory.of([replace(golden("tma"), marks=marks)]).summary().tables[-1]
    assert shown.title == "Events that took memory, the 20 largest of 45" and len(shown.rows) == 20


def test_the_remedy_fits_the_gpu() -> None:
    sentences = " ".join(explain(golden("tma")))
    assert "driver call on sm_12x" in sentences
    # the same limit on a GPU without the driver call comes from a large frame
    other = " ".join(explain(replace(golden("tma"), arch=90)))
    assert "driver call" not in other and "smaller local arrays" in other


@pytest.mark.parametrize("name", TRACES)
def test_the_documents_are_json_and_round(name) -> None:
    document = json.loads(json.dumps(Memory.of([golden(name)], ["a note"]).document()))
    (entry,) = document["timelines"]
    attribution = golden(name).attribution()
    assert entry["attribution"]["growth_bytes"] == attribution.growth_bytes
    assert entry["attribution"]["unexplained_bytes"] == attribution.unexplained_bytes
    assert {p["name"]: p["bytes"] for p in entry["attribution"]["parts"]} == {
        p.name: p.bytes for p in attribution.parts
    }
    again = read_result(document)
    assert isinstance(again, Memory) and again.values() == [golden(name)]
    assert (document["format"], document["notes"]) == (1, ["a note"])


@pytest.mark.parametrize(
    ("name", "limit", "over"),
    [
        ("tma", 256 * MIB, True),
        ("tma", 4096 * MIB, False),
        ("plain", 256 * MIB, False),
        ("unified", 256 * MIB, True),
        ("lost", 256 * MIB, True),  # the pool's own step was seen before the GPU went
        ("captured", 256 * MIB, True),  # which kernel it was is not known, but the limit has risen
        ("nothing", 256 * MIB, True),  # not known is not "small"
    ],
)
def test_the_gate(name, limit, over) -> None:
    assert is_over([golden(name)], limit) is over


def test_the_gate_without_any_timeline_does_not_pass() -> None:
    assert is_over([], 1 << 40)


def test_variants_side_by_side() -> None:
    variants = {"plain": [golden("plain")], "tma": [golden("plain"), golden("tma")], "none": []}
    result = Variants.of(variants)
    assert result.variants["tma"].growth_bytes == 4332 * MIB
    assert result.variants["none"].used_bytes is None
    assert VariantMemory.of([golden("nothing")]).growth_bytes is None
    (table,) = result.summary().tables
    rows = {row[0]: row[1:] for row in table.rows}
    assert table.columns == ("", "plain", "tma", "none")
    assert rows["used, at the peak"] == ("1,104 MiB", "4,832 MiB", "not known")
    assert rows["growth over the start"][:2] == ("604 MiB", "4,332 MiB")
    assert rows["reserved (torch)"][:2] == ("64.0 MiB", "64.0 MiB")
    assert rows["local-memory pool"][:2] == ("0 B", "3,728 MiB")


def test_growth_of_a_mark_leaves_torchs_own_out() -> None:
    mark = Mark(0, "launch", "k", Reading(1024, 1000 * MIB, 0, 10 * MIB), Reading(2048, 700 * MIB, 0, 60 * MIB))
    assert mark.growth_bytes == 250 * MIB
    assert mark.stack_growth_bytes == 1024
    assert Mark(0, "launch", "k", None, mark.after).growth_bytes is None
