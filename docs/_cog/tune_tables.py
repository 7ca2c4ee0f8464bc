"""Write the tables about `tritonhook tune`."""

from __future__ import annotations

import statistics
from typing import Any

from results import markdown, result


def tune_simulation() -> str:
    """How often a tuning certifies a gain that is not there, and one that is."""
    samples = result("tune_simulation")["samples"]
    names = {"null": "all codes are copies of the own one", "null, forced": "the same, and a copy is always confirmed"}
    rows = []
    for name, runs in samples.items():
        tuned, wins = sum(len(run["blocks"]) for run in runs), sum(run["wins"] for run in runs)
        rows.append((names.get(name, f"one code takes {name} less time"), f"{tuned:,}", f"{wins:,}"))
    return markdown(("kernels", "tuned", "certified wins"), rows)


def tuned() -> str:
    """How many kernels `tune` made faster, and by how much."""
    document = result("tune_h200")
    summary = document["summary"]
    names = {"fla": "flash-linear-attention", "liger": "Liger", "tutorials": "Triton's tutorials"}
    names |= {"transformer block": "torch.compile, a transformer block", "ours": "gluon_kernels' `mma` attention"}
    sources = [(names.get(name, name), found) for name, found in summary["by_source"].items()]
    units = {"wgmma": "with `wgmma`", "mma.sync": "with `mma.sync`", "neither": "without tensor cores"}
    groups = [(units[name], summary["by_unit"][name]) for name in units]
    whole = {"kernels": summary["kernels"], "wins": summary["wins"], "gain": summary["gain_geomean_of_wins"]}
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
    document = result("tune_h200")
    summary = document["summary"]
    nulls = f"{summary['null_tunings']} on the GPU, {summary['null_tunings_simulated']:,} simulated"
    applied = f"{summary['applied'].get('applied', 0)} of {summary['wins']}"
    others = [f"{number} {verdict}" for verdict, number in summary["wins_not_reproduced"].items()]
    again = summary["wins_again"] - sum(summary["wins_not_reproduced"].values())
    rows = [
        ("wins timed again in new processes", f"{summary['wins_again']} of {summary['wins']}"),
        ("of these", ", ".join((f"{again} faster again", *others))),
        ("kernels that got the code that won when their program ran with the policy", applied),
        ("slower with the policy", str(summary["slower_when_applied"])),
        ("tunings of equal codes", nulls),
        ("wins among these", str(summary["null_wins"] + summary["null_wins_simulated"])),
        ("time on the GPU for a kernel", f"median {summary['seconds_per_kernel_median']:.1f} s"),
        ("gain over all kernels, also those that are left", f"{summary['gain_geomean_of_all']:.1f}%"),
        *((_WHOLE[one["target"]], _gain(one)) for one in document["whole"]),
        *((f"CUTLASS's attention for Ampere, `{one['lever']}`", _cute(one)) for one in document["cute"]),
    ]
    return markdown(("on an H200", "found"), rows)


_WHOLE = {
    "block": "gain of the whole transformer block of torch.compile",
    "mma_attention": "gain of the whole call of gluon_kernels' `mma` attention",
}


def _cute(one: dict[str, Any]) -> str:
    change = one["time_percent"]
    return one["verdict"] if change is None else f"{one['verdict']}, {abs(change):.1f}%"


def _gain(one: dict[str, Any]) -> str:
    low, high = one["interval_percent"]
    return f"{one['gain_percent']:.1f}% ({low:.1f}% to {high:.1f}%)"


def tuned_more() -> str:
    """What the best of more levers gains, for kernels that were tuned with both lists."""
    document = result("tune_h200")
    first = {(row["kernel"], row["ptx"]): row for row in document["kernels"]}
    rows = [
        (f"`{row['kernel']}`", str(row["registers"]), _won(first[key]), _won(row))
        for row in document["more_levers"]
        if (key := (row["kernel"], row["ptx"])) in first
    ]
    return markdown(("kernel", "registers", "with 16 levers", "with 29"), rows)


def _won(row: dict[str, Any]) -> str:
    return f"{row['gain_percent']:.1f}%, `{row['winner']}`" if row["verdict"] == "WIN" else row["verdict"]


def tuned_levers() -> str:
    """Which levers won."""
    kinds: dict[str, list[float]] = {}
    for row in result("tune_h200")["kernels"]:
        if row["verdict"] == "WIN":
            kinds.setdefault(_kind(row["winner"]), []).append(row["gain_percent"])
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
