"""Timelines of `tritonhook mem watch`, made up after the published measurements of docs/explanation/gpu-memory.md."""

from __future__ import annotations

from tritonhook.memory.timeline import Mark, MemorySample, MemoryTimeline, Reading, Snapshot

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
