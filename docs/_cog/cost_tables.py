"""Write the tables about what tritonhook costs."""

from __future__ import annotations

import statistics

from results import Document, markdown, result

OVERHEAD = (  # figure, its name in the result, unit, factor from the result's unit
    ("a compile (GEMM, sm_90), cache miss", "compile_miss_added_ratio", "%", 100),
    ("a disk-cache hit, kernel new to the capture folder", "disk_hit_added_ms", "ms", 1),
    ("the same, with captures on a shared disk", "disk_hit_on_disk_added_ms", "ms", 1),
    ("a disk-cache hit, kernel captured before", "disk_hit_repeat_added_ms", "ms", 1),
    ("a launch, capturing kernels only", "launch_added_us", "us", 1),
    ("a launch, also recording launches", "launch_recorded_added_us", "us", 1),
    ("a launch, renaming", "launch_renamed_added_us", "us", 1),
    ("`import tritonhook`", "import_ms", "ms", 1),
    ("`import tritonhook; tritonhook.enable()` beside Triton", "import_and_enable_ms", "ms", 1),
    ("renaming in a PTX of 320 KB", "rename_ms", "ms", 1),
    ("a `diff` of two attention kernels", "diff_s", "s", 1),
    ("the part of it outside nvdisasm", "diff_own_ms", "ms", 1),
)


def overhead() -> str:
    """Compare what tritonhook and tritonparse add to a program. Disk hits also have the 10th and 90th percentile."""
    document = result("overhead")
    peer = document["peers"]["tritonparse"]["summary"]
    rows = [
        (title, *(_cost(summary, name, unit, factor) for summary in (document["summary"], peer)))
        for title, name, unit, factor in OVERHEAD
    ]
    return markdown(("added to", "tritonhook", f"tritonparse {document['environment']['tritonparse']}"), rows)


def _cost(summary: Document, name: str, unit: str, factor: float) -> str:
    if name not in summary:
        return ""
    ends = ""
    if name.endswith("_added_ms"):
        low, high = (_short(summary[name.replace("_added_ms", f"_added_{end}_ms")]) for end in ("low", "high"))
        ends = f" ({low} to {high})"
    shown = "below 0.05" if unit == "us" and abs(summary[name]) < 0.05 else _short(summary[name] * factor)
    return f"{shown} {unit}{ends}"


def _short(value: float) -> str:
    """Format a value with two significant digits and without an exponent."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def sweep() -> str:
    """Write the sentence on the share of the processors' time that a sweep uses."""
    found = result("sweep")["summary"]
    return (
        f"\nA sweep of 500 small kernels spends {found['cpu_efficiency']:.1%} of its processor time in ptxas "
        f"({found['ptxas_cpu_ms']:.1f} ms for a kernel).\nFrom the cache it takes {found['cached_rerun_s']:.2f} s.\n\n"
    )


def recording() -> str:
    """Write the time that recording a launch of the CuTe DSL adds to a call, on the host."""
    document = result("recording")
    calls = {"fa4": "FlashAttention 4, 18 parameters", "small": "a kernel with two pointers"}
    memory = {"known": "as in the call before", "new": "new"}
    rows = []
    for call, what in calls.items():
        for kind, told in memory.items():
            plain, recorded = (document["samples"][f"{call}_{kind}"][f"{name}_us"] for name in ("plain", "recorded"))
            added = ", ".join(f"{one:.0f}" for one in sorted(b - a for a, b in zip(plain, recorded, strict=True)))
            rows.append((what, told, f"{statistics.median(plain):.0f} us", f"{added} us"))
    return markdown(("call", "memory", "a call, median", "recording adds, in each run"), rows)


def host_times() -> str:
    """Write the host's time for a call of each attention, as a multiple of that for `torch.add_`."""
    document = result("host_times")
    calls = {
        "torch_flash": "torch's flash attention, with `sdpa_kernel`",
        "hopper": "gluon_kernels, wgmma bf16",
        "hopper_causal": "gluon_kernels, wgmma bf16, causal",
        "mma": "gluon_kernels, mma.sync bf16",
        "sm120": "sm120_attn.attention",
        "sm120_packed": "sm120_attn.attention, packed sequences",
        "sm120_new_length": "sm120_attn.attention, the first call with a length",
        "sm120_paged_decode": "sm120_attn.attention_with_kv_cache, pages of 16",
    }
    rows = []
    for name, what in calls.items():
        ratios = sorted(a / b for a, b in zip(document["samples"][name], document["samples"]["add"], strict=True))
        median = document["summary"][f"{name}_adds"]
        rows.append((what, f"{median:.1f}", f"{ratios[0]:.1f} to {ratios[-1]:.1f}"))
    return markdown(("a call of", "times `torch.add_`", "range over rounds"), rows)
