"""Write the tables about `tritonhook tune`."""

from __future__ import annotations

import math
import statistics
from typing import Any

from results import markdown, result


def tune_simulation(*chosen: str) -> str:
    """How often a tuning certifies a gain that is not there, and one that is. chosen: else all."""
    samples = result("tune_simulation")["samples"]
    names = {
        "null": "all codes are copies of the compiler's",
        "null, forced": "the same, and a copy is always confirmed",
    }
    rows = []
    for name, runs in samples.items():
        if chosen and name not in chosen:
            continue
        tuned, wins = sum(len(run["blocks"]) for run in runs), sum(run["wins"] for run in runs)
        what = f"copies; {name.removeprefix('null, ')}" if "places" in name else f"one code takes {name} less time"
        rows.append((names.get(name, what), f"{tuned:,}", f"{wins:,}"))
    return markdown(("kernels", "tuned", "certified wins"), rows)


def _kernels() -> list[dict[str, Any]]:
    return list(result("tune_h200")["kernels"])


def _wins() -> list[dict[str, Any]]:
    return [row for row in _kernels() if row["verdict"] == "WIN"]


def tuned_kernels() -> str:
    """Each kernel that was tuned: how good its autotuner's choice was, and what a lever gains."""
    rows = []
    for row in _kernels():
        low, high = row.get("interval_percent") or (None, None)
        gain = f"{row['gain_percent']:.1f}% ({low:.1f}% to {high:.1f}%)" if row["verdict"] == "WIN" else ""
        lever = f"`{_lever(row)}`" if row["verdict"] == "WIN" else "none"
        left = (row["race"] or {"left": {}})["left"]
        means = [statistics.mean(left[name]) for name in row["configurations"] if left.get(name)]
        longer = math.exp(-min([0.0, *means])) - 1
        best = f"{100 * longer:.1f}%" if longer > 0.005 else ""
        tried = str(1 + len(row["configurations"])) if row["configurations"] else ""
        rows.append((f"`{row['kernel']}`", row["source"], tried, f"{row['us']:.0f}", best, lever, gain))
    header = (
        "kernel",
        "of",
        "configurations",
        "us",
        "the tuner's choice takes longer by",
        "lever",
        "gain over the best",
    )
    return markdown(header, rows)


def _lever(row: dict[str, Any]) -> str:
    """The lever that won, without the configuration that won with it."""
    return str(row["winner"].rpartition(": ")[2])


def tuned_sum() -> str:
    """What was tuned and what it gave, as a paragraph."""
    summary = result("tune_h200")["summary"]
    return (
        f"\n{summary['wins']} of {summary['kernels']} kernels have a lever that beats the best configuration, by "
        f"{summary['gain_geomean_of_wins']:.1f}% in the geometric mean and {summary['gain_most']:.0f}% at most.\n"
        f"{summary['kernels_autotuned']} are autotuned; {summary['configurations_raced']} configurations raced "
        f"beside those that their tuners chose.\n{summary['kernels_planned']} kernels were planned; the time on the "
        "GPU ended before the others.\n\n"
    )


def tuned_maxnreg() -> str:
    """How many limits that won are no limits, as a paragraph."""
    rows = [row for row in _wins() if _lever(row).startswith("maxnreg=")]
    above = sum(int(_lever(row).partition("=")[2].partition("+")[0]) >= row["registers"] for row in rows)
    return (
        f"\nIn {above} of {len(rows)} wins with `maxnreg` alone, N is not below the registers that the kernel has "
        "anyway.\n\n"
    )


def tuned() -> str:
    """How many kernels `tune` made faster, and by how much."""
    summary = result("tune_h200")["summary"]
    names = {"fla": "flash-linear-attention", "liger": "Liger", "tutorials": "Triton's tutorials"}
    names |= {"transformer block": "torch.compile, a transformer block"}
    sources = [(names.get(name, name), found) for name, found in summary["by_source"].items()]
    units = {"wgmma": "with `wgmma`", "mma.sync": "with `mma.sync`", "neither": "without tensor cores"}
    groups = [(units[name], summary["by_unit"][name]) for name in units]
    whole = {
        name: summary[key] for name, key in (("kernels", "kernels"), ("wins", "wins"), ("gain", "gain_geomean_of_wins"))
    }
    groups += [
        (f"{name} registers", summary["by_registers"][name]) for name in ("up to 64", "65 to 128", "129 to 254", "255")
    ]
    rows = [
        (name, str(found["kernels"]), str(found["wins"]), "" if found["gain"] is None else f"{found['gain']:.1f}%")
        for name, found in (*sources, *groups, ("all", whole))
    ]
    return markdown(("kernels", "tuned", "wins", "gain of a win, geometric mean"), rows)


def tuned_truth() -> str:
    """Whether the wins are true, and what they cost."""
    summary, whole = result("tune_h200")["summary"], result("end_to_end")["summary"]
    low, high = whole["interval_percent_gla"]
    rows = [
        ("tunings of 16 copies of one code, each forced through the confirmation", str(summary["null_confirmed"])),
        ("wins among these", str(summary["null_wins"])),
        ("simulated tunings of equal codes", f"{summary['null_tunings_simulated']:,}"),
        ("wins among these", str(summary["null_wins_simulated"])),
        (
            "wins timed again in new processes, and faster again",
            f"{round(summary['wins_again'] * summary['wins_reproduced_ratio'])} of {summary['wins_again']}",
        ),
        ("codes of wins that programs got when they ran with the policy", str(summary["applied"]["applied"])),
        ("time on the GPU for a kernel", f"median {summary['seconds_per_kernel_median']:.1f} s"),
        (
            f"a training step of a GLA block, {whole['step_us_gla'] / 1000:.1f} ms, with the policy",
            f"{whole['gain_percent_gla']:.1f}% less time ({low:.1f}% to {high:.1f}%)",
        ),
        (
            "a training step of a Llama layer with Liger's kernels, which no CUDA graph takes",
            f"{whole['verdict_llama']}: {whole['reason_llama']}",
        ),
    ]
    return markdown(("on an H200", "found"), rows)


def tuned_levers() -> str:
    """Which levers won."""
    kinds: dict[str, list[float]] = {}
    for row in _wins():
        kinds.setdefault(_kind(_lever(row)), []).append(row["gain_percent"])
    rows = [
        (kind, str(len(gains)), f"{statistics.median(gains):.1f}%", f"{max(gains):.1f}%")
        for kind, gains in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]
    return markdown(("lever", "wins", "median gain", "largest"), rows)


def _kind(lever: str) -> str:
    """The kind of a lever that won, without its numbers."""
    if "pragma" in lever or "name" in lever:
        return "`name`, `pragma`, also with another ptxas"
    if lever.startswith("ptxas"):
        return "`ptxas=VERSION` alone"
    return {"m": "`maxnreg=N`", "O": "`O1`, `O2`"}.get(lever[0], "`regusage=N`, `regalloc=N`")
