"""Write the tables about the cutlass name: which code it changes, and its effect on times."""

from __future__ import annotations

from results import Document, markdown, percent, result

ARCHS = (
    "sm_80",
    "sm_90a",
    "sm_100a",
    "sm_120a",
)  # left out: sm_103a, where the same shapes change as on sm_100a, and sm_121a, as on sm_120a
SHAPES = ("straight", "loop", "nested", "softmax")


def triggers() -> str:
    """Write which shapes of each family of kernels change, by architecture, and with how many versions of ptxas."""
    samples = result("name_trigger")["samples"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for family in dict.fromkeys(key.split("/")[0] for key in samples):
        groups.setdefault(tuple(_trigger(samples, family, arch) for arch in ARCHS), []).append(family)
    return markdown(("kernels", *ARCHS), [(", ".join(names), *cells) for cells, names in groups.items()])


def _trigger(samples: Document, family: str, arch: str) -> str:
    """Format a cell. "loops 9/9": all shapes with a loop change, with 9 of 9 versions. "-": no such instruction."""
    found: dict[str, list[str]] = {}
    shapes = [shape for shape in SHAPES if f"{family}/{shape} {arch}" in samples]
    for shape in shapes:
        signs = [row[0] for row in samples[f"{family}/{shape} {arch}"].values() if row[0] != "-"]
        changed, crashed = sum(sign in "DX" for sign in signs), signs.count("X")
        share = f"{changed}/{len(signs)}" + (f", {crashed} by a crash" if crashed else "")
        if changed:
            found.setdefault(share, []).append(shape)
    if not found:
        return "none" if shapes else "-"
    loops = list(SHAPES[1:])
    return "; ".join(f"{'loops' if names == loops else ', '.join(names)} {share}" for share, names in found.items())


def trigger_sum() -> str:
    """State how many cells the name changes."""
    document = result("name_trigger")
    summary = document["summary"]
    return (
        f"\nOf {summary['cells']:,} [cells](ptxas-lab.md#a-cell), {summary['cells_compared']:,} assemble under both "
        f"names. The name changes {summary['cells_changed']:,} of these: {summary['code_changed']:,} have other code, "
        f"{summary['crashes']} crash ptxas, and {summary['cells_unsteady']} are unsteady.\n\n"
    )


README_ROWS = {  # rows of name_effect.json in the README: (kernel, ptxas); the titles have the shapes of ab_targets.py
    ("layer_norm", "Triton's"): "layer norm, bf16, 8192x4096",
    ("attention_mma", "Triton's"): "attention, mma.sync, bf16, 64x4096x128",
    ("row_sum", "Triton's"): "row sum, fp32, 8192x8192",
    ("polynomial", "Triton's"): "FMA loop, fp32, 400 steps",
    ("attention_d64", "12.6.85"): "attention, wgmma, bf16, 64x4096x64",
}


def name_effect() -> str:
    """Write time with `cutlass` in the name over time without, and registers: the rows of the README."""
    samples = {(_target(row["kernel"]), row["ptxas"]): row for row in result("name_effect")["samples"]}
    rows = []
    for (name, version), title in README_ROWS.items():
        row = samples[name, version]
        low, change, high = change_in_time(row)
        cells = change, f"{low} to {high}", _registers(row), str(_processes(row))
        rows.append((title, "12.8.93" if version == "Triton's" else version, *cells))
    return markdown(("kernel", "ptxas", "time", "95% interval", "registers", "processes"), rows)


def _processes(row: Document) -> int:
    return len({block["process"] for block in row["comparison"]["blocks"]})


def name_range() -> str:
    """State the range of the name's effect on the times of kernels."""
    rows = [row for row in result("name_effect")["samples"] if row.get("ratio")]
    changes = [1 / row["ratio"] if row.get("stripped") else row["ratio"] for row in rows]
    same = sum(not row.get("ratio") for row in result("name_effect")["samples"])
    ours = [row["ratio"] for row in result("gluon_ab")["samples"] if row.get("ratio")]
    tiles = result("gluon_names")["summary"]
    most, least = 1 / tiles["largest_loss"], 1 / tiles["largest_gain"]
    return (
        f"\n*Measured* on an H100: of {len(rows)} timed kernels the time changes by {percent(min(changes))} to "
        f"{percent(max(changes))}, and {same} more have the same code.\nThe attentions of this repository in their "
        f"default tiles change by {percent(min(ours))} to {percent(max(ours))},\ntheir other tiles by "
        f"{percent(least)} to {percent(most)}.\n\n"
    )


def mma_throughput_sum() -> str:
    """State in how many cells name and pragma have the same effect."""
    document = result("mma_throughput")
    cells, other = document["samples"], len(document["summary"]["exceptions"])
    archs = len({row["arch"] for row in cells})
    changed = sum(row["plain"] != row["name"] for row in cells)
    return (
        f"\nName and pragma have the same effect in {len(cells) - other:,} of {len(cells):,} cells, on {archs} "
        f"architectures. The name changes {changed:,} of them,\nand {sum('draws' in row for row in cells)} are "
        "unsteady.\n\n"
    )


def mma_throughput_in_time(*kernels: str) -> str:
    """Compare times with the pragma and without, with registers, for these kernels."""
    rows = []
    for row in result("mma_throughput_h200")["samples"]:
        if _target(row["kernel"]).removeprefix("tutorial ") not in kernels:
            continue
        low, change, high = change_in_time(row)
        rows.append([_target(row["kernel"]), change, f"{low} to {high}" if low else "", _registers(row)])
    return markdown(["kernel", "time", "95% interval", "registers"], rows)


def _target(text: str) -> str:
    """Name a target by its function; "ab_tutorial_targets:softmax" is "tutorial softmax"."""
    module, _, name = text.rpartition(":")
    return f"tutorial {name}" if "tutorial" in module else name


def change_in_time(row: Document) -> tuple[str, str, str]:
    """Return low end, value and high end of the change. For a stripped row, the ratio is inverted."""
    if not row.get("ratio"):
        return "", row["verdict"], ""
    low, high = row["interval"]
    values = (low, row["ratio"], high)
    low, ratio, high = (1 / high, 1 / row["ratio"], 1 / low) if row.get("stripped") else values
    note = " (inconclusive)" if row["verdict"] == "inconclusive" else ""
    return percent(low), percent(ratio) + note, percent(high)


def _registers(row: Document) -> str:
    """Format the registers of every kernel without the trigger, then with it."""
    kernels = row.get("comparison", {}).get("kernels", {})
    sides = ("candidate", "reference") if row.get("stripped") else ("reference", "candidate")
    found = [[one for entries in kernels.get(side, {}).values() for one in entries] for side in sides]
    return " to ".join(", ".join(str(one["registers"]) for one in side) for side in found)
