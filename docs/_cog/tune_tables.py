"""Write the tables about `tritonhook tune`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

from results import markdown, result


def tune_simulation(*chosen: str) -> str:
    """How often a tuning certifies a gain that is not there, and one that is. chosen: else all."""
    samples = result("tune_simulation")["samples"]
    names = {"null": "all codes are copies of the own one", "null, forced": "the same, and a copy is always confirmed"}
    rows = []
    for name, runs in samples.items():
        if chosen and name not in chosen:
            continue
        tuned, wins = sum(len(run["blocks"]) for run in runs), sum(run["wins"] for run in runs)
        what = f"copies; {name.removeprefix('null, ')}" if "places" in name else f"one code takes {name} less time"
        rows.append((names.get(name, what), f"{tuned:,}", f"{wins:,}"))
    return markdown(("kernels", "tuned", "certified wins"), rows)


def _kernels() -> list[dict[str, Any]]:
    """The kernels that were tuned, without the attention whose untuned tile no caller gets."""
    return [row for row in result("tune_h200")["kernels"] if row["source"] != "ours"]


def _arguments(row: dict[str, Any]) -> tuple[str, str, str]:
    """What configurations of one kernel with the same arguments have in common."""
    return row["source"], row["kernel"], row["launch"].partition(": ")[2]


def _wins() -> list[dict[str, Any]]:
    """The wins, without those of a configuration that stays slower than another one that the visit holds without a
    lever."""
    rows = _kernels()
    best: dict[tuple[str, str, str], float] = {}
    for row in rows:
        best[_arguments(row)] = min(row["us"], best.get(_arguments(row), row["us"]))
    won = [row for row in rows if row["verdict"] == "WIN"]
    return [
        row
        for row in won
        if row["us"] == best[_arguments(row)] or row["us"] * (1 - row["gain_percent"] / 100) < best[_arguments(row)]
    ]


def tuned_against_the_best() -> str:
    """Which wins are none, because another configuration is faster without a lever; as a paragraph."""
    rows = _kernels()
    won, all_won = _wins(), [row for row in rows if row["verdict"] == "WIN"]
    gone = [row for row in all_won if row not in won]
    pairs = {_arguments(row) for row in rows if sum(_arguments(one) == _arguments(row) for one in rows) > 1}
    named = ", ".join(f"`{row['kernel']}`" for row in gone)
    return (
        f"\n{len(pairs)} kernels are there in two configurations with the same arguments. {len(gone)} of the "
        f"{len(all_won)} confirmed gains belong to one that stays slower than the other one without a lever: {named}. "
        f"They do not count as wins here. Others may be like them: not every configuration was recorded.\n\n"
    )


def tuned_configured() -> str:
    """Each autotuned kernel whose configurations raced: how good its autotuner's choice was, and what a lever gains."""
    rows = []
    for row in result("tune_configured")["kernels"]:
        low, high = row.get("interval_percent") or (None, None)
        gain = f"{row['gain_percent']:.1f}% ({low:.1f}% to {high:.1f}%)" if row["verdict"] == "WIN" else ""
        lever = f"`{row['winner'].rpartition(': ')[2]}`" if row["verdict"] == "WIN" else row["verdict"]
        left = (row["race"] or {"left": {}})["left"]
        means = [statistics.mean(left[name]) for name in row["configurations"] if left.get(name)]
        slower = math.exp(-min([0.0, *means])) - 1
        best = f"{100 * slower:.1f}%" if slower > 0.005 else ""
        rows.append((f"`{row['kernel']}`", str(1 + len(row["configurations"])), f"{row['us']:.0f}", best, lever, gain))
    header = (
        "kernel",
        "configurations",
        "us",
        "the tuner's choice takes longer than the best by",
        "lever",
        "gain over the best one",
    )
    return markdown(header, rows)


def tuned_configured_sum() -> str:
    """The same in one paragraph, with the tunings of equal codes."""
    found = result("tune_configured")
    summary, gpu = found["summary"], found["environment"]["gpu"].removeprefix("NVIDIA ")
    return (
        f"\n*Measured* on an {gpu}: {summary['kernels']} autotuned kernels of flash-linear-attention, with "
        f"{summary['configurations_raced']} more configurations beside what the tuner\nchose. {summary['wins']} have a "
        f"lever that beats the best configuration, by {summary['gain_geomean_of_wins']:.1f}% in the geometric mean. "
        f"{summary['null_tunings']} tunings\nof 16 copies of one code each, all forced through the confirmation, gave "
        f"{summary['null_wins']} wins.\n\n"
    )


def tuned_changed() -> str:
    """The kernels whose PTX differed between visits, and those that dropped out, as a paragraph."""
    document = result("tune_h200")
    seen: dict[tuple[str, str, str], set[str]] = {}
    for row in (*document["kernels"], *document["more_levers"]):
        seen.setdefault((row["source"], row["kernel"], row["launch"]), set()).add(row["ptx"])
    changed = sorted({f"`{kernel}`" for (_, kernel, _), found in seen.items() if len(found) > 1})
    return (
        f"\nThese kernels had other PTX in another visit, launched alike: {', '.join(changed)}. Of a kernel that was "
        "tuned in two visits the file keeps the last one.\n\n"
    )


def tuned_maxnreg() -> str:
    """How many limits that won are no limits, as a paragraph."""
    rows = [row for row in _wins() if row["winner"].startswith("maxnreg=")]
    above = sum(int(row["winner"].partition("=")[2].partition("+")[0]) >= row["registers"] for row in rows)
    return (
        f"\nIn {above} of {len(rows)} wins with `maxnreg` alone, N is not below the registers that the kernel has "
        "anyway.\n\n"
    )


def tuned_sum() -> str:
    """The same in one sentence."""
    whole = _group(_kernels(), _wins())
    gain = f"{whole['gain']:.1f}%"
    return f"\n{whole['wins']} of {whole['kernels']} kernels have a win, of {gain} in the geometric mean.\n\n"


def tuned() -> str:
    """How many kernels `tune` made faster, and by how much."""
    document = result("tune_h200")
    summary = {**document["summary"], **_groups(_kernels(), _wins())}
    names = {"fla": "flash-linear-attention", "liger": "Liger", "tutorials": "Triton's tutorials"}
    names |= {"transformer block": "torch.compile, a transformer block"}
    sources = [(names.get(name, name), found) for name, found in summary["by_source"].items()]
    units = {"wgmma": "with `wgmma`", "mma.sync": "with `mma.sync`", "neither": "without tensor cores"}
    groups = [(units[name], summary["by_unit"][name]) for name in units]
    whole = _group(_kernels(), _wins())
    groups += [
        (f"{name} registers", summary["by_registers"][name]) for name in ("up to 64", "65 to 128", "129 to 254", "255")
    ]
    rows = [
        (name, str(found["kernels"]), str(found["wins"]), "" if found["gain"] is None else f"{found['gain']:.1f}%")
        for name, found in (*sources, *groups, ("all", whole))
    ]
    return markdown(("kernels", "tuned", "wins", "gain of a win, geometric mean"), rows)


def _groups(rows: list[dict[str, Any]], won: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Kernels and wins by source, unit and registers."""

    def registers(row: dict[str, Any]) -> str:
        used = row["registers"]
        return "up to 64" if used <= 64 else "65 to 128" if used <= 128 else "129 to 254" if used < 255 else "255"

    keys: dict[str, Callable[[dict[str, Any]], str]] = {
        "by_source": lambda row: str(row["source"]),
        "by_unit": lambda row: row["uses"] or "neither",
        "by_registers": registers,
    }
    return {
        name: {
            value: _group([row for row in rows if key(row) == value], [row for row in won if key(row) == value])
            for value in sorted(set(map(key, rows)))
        }
        for name, key in keys.items()
    }


def _group(rows: list[dict[str, Any]], won: list[dict[str, Any]]) -> dict[str, Any]:
    logs = [math.log(1 - row["gain_percent"] / 100) for row in won]
    gain = 100 * (1 - math.exp(statistics.mean(logs))) if logs else None
    return {"kernels": len(rows), "wins": len(won), "gain": gain}


def tuned_truth() -> str:
    """Whether the wins are true, and what they cost."""
    document = result("tune_h200")
    summary = document["summary"]
    forced = result("tune_configured")["summary"]
    nulls = (
        f"{summary['null_tunings']}, and {forced['null_tunings']} with a forced confirmation, on the GPU; "
        f"{summary['null_tunings_simulated']:,} simulated"
    )
    applied = f"{summary['applied'].get('applied', 0)} of {summary['wins']}"
    others = [f"{number} {verdict}" for verdict, number in summary["wins_not_reproduced"].items()]
    again = summary["wins_again"] - sum(summary["wins_not_reproduced"].values())
    rows = [
        ("confirmed gains timed again in new processes", f"{summary['wins_again']} of {summary['wins']}"),
        ("of these, in the last attempt", ", ".join((f"{again} faster again", *others))),
        ("kernels that got the code that won when their program ran with the policy", applied),
        ("slower with the policy", str(summary["slower_when_applied"])),
        ("tunings of equal codes", nulls),
        ("wins among these", str(summary["null_wins"] + forced["null_wins"] + summary["null_wins_simulated"])),
        ("time on the GPU for a kernel", f"median {summary['seconds_per_kernel_median']:.1f} s"),
        *((_WHOLE[one["target"]], _gain(one)) for one in document["whole"] if one["target"] in _WHOLE),
        *((f"CUTLASS's attention for Ampere, `{one['lever']}`", _cute(one)) for one in document["cute"]),
    ]
    return markdown(("on an H200", "found"), rows)


_WHOLE = {
    "block": "gain of the whole transformer block of torch.compile",
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
    rows = []
    for row in document["more_levers"]:
        before = first.get((row["kernel"], row["ptx"]))
        rows.append(
            (
                f"`{row['kernel']}`",
                str(row["registers"]),
                "not tuned with this PTX" if before is None else _won(before),
                _won(row),
            )
        )
    return markdown(("kernel", "registers", "with 16 levers", "with 29"), rows)


def _won(row: dict[str, Any]) -> str:
    return f"{row['gain_percent']:.1f}%, `{row['winner']}`" if row["verdict"] == "WIN" else row["verdict"]


def tuned_levers() -> str:
    """Which levers won."""
    kinds: dict[str, list[float]] = {}
    for row in _wins():
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
