"""Write the Markdown tables about upgrades from the committed result of benchmarks/upgrades.py."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from results import markdown, percent, result

_SHOWN = ("registers", "spill_stores", "stack", "blocks")
Row = Mapping[str, Any]


def _kernels(arch: str | None = None) -> list[Row]:
    """Those from the oldest Triton: the others are for the comparison of Triton."""
    rows: list[Row] = result("upgrades")["samples"]["kernels"]
    oldest = min((row["triton"] for row in rows), key=_key)
    return [row for row in rows if row["triton"] == oldest and arch in (None, row["arch"])]


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def which(*archs: str) -> str:
    """What each ptxas does: the answer to which one to ship. archs: none are all."""
    found = archs or sorted({row["arch"] for row in _kernels()}, key=lambda arch: int(arch.strip("sm_af")))
    titles = ("ptxas", "kernels", "worse", "better", "new spills", "known bugs", "code", "time of ptxas")
    if len(found) == 1:
        return markdown(titles, _which(_kernels(found[0])))
    return markdown(("target", *titles), ((arch, *cells) for arch in found for cells in _which(_kernels(arch))))


def _which(kernels: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for version in result("upgrades")["ptxas"]:
        rows = [row for row in kernels if version in row["by"] and row["by"][version][0] != "failed"]
        if not rows:
            continue
        verdicts = Counter(row["by"][version][0] for row in rows)
        spilling = sum(_value(row, version, "spill_stores") > 0 == row["figures"]["spill_stores"] for row in rows)
        bugs = sum(any(version in versions for versions in row.get("bugs", {}).values()) for row in rows)
        own = {row["own"] for row in rows} == {version}
        size, time = ("", "") if own else (percent(_mean(rows, version, 1)), percent(_share(rows, version), 0))
        named = f"{version} (Triton's)" if own else version
        yield named, *map(str, (len(rows), verdicts["worse"], verdicts["better"], spilling, bugs)), size, time


def _value(row: Row, version: str, name: str) -> int:
    """A figure of a kernel under a version: a cell has those that differ from the reference's."""
    other = row["by"][version][3] if len(row["by"][version]) > 3 else {}
    return int(other.get(name, row["figures"][name]) or 0)


def _mean(rows: Iterable[Row], version: str, place: int) -> float:
    """The geometric mean of a figure over the reference's."""
    logs = [math.log(row["by"][version][place] / row["by"][row["own"]][place]) for row in rows]
    return math.exp(sum(logs) / len(logs))


def _share(rows: Sequence[Row], version: str) -> float:
    """Processor time of ptxas over the reference's, summed."""
    return float(sum(row["by"][version][2] for row in rows) / sum(row["by"][row["own"]][2] for row in rows))


def worse() -> str:
    """A line for each kernel that the newest ptxas makes worse, the most new spills first."""
    newest = result("upgrades")["ptxas"][-1]
    found = [row for row in _kernels() if row["by"].get(newest, [""])[0] == "worse"]

    def grown(row: Row) -> tuple[int, ...]:
        names = ("spill_stores", "stack", "registers")
        return tuple(row["figures"][name] - _value(row, newest, name) for name in names)

    rows = [
        (
            f"`{row['kernel']}` {row['constants']}".strip(),
            row["arch"],
            *(_change(row["figures"][name], _value(row, newest, name)) for name in _SHOWN),
            _since(row, newest),
            _remedy(row),
        )
        for row in sorted(found, key=grown)
    ]
    return markdown(
        ("kernel", "target", "registers", "spill stores", "stack", "blocks/SM", "since", "what helps"), rows
    )


def _change(old: int, new: int) -> str:
    return f"{old:,}" if old == new else f"{old:,} to {new:,}"


def _since(row: Row, newest: str) -> str:
    """The first version after the reference from which on every one is worse."""
    newer = [it for it in row["by"] if _key(row["own"]) < _key(it) <= _key(newest)]
    since = newest
    for version in reversed(newer):
        if row["by"][version][0] != "worse":
            break
        since = version
    return since


def _remedy(row: Row) -> str:
    """Under the newest ptxas: the lever that leaves nothing worse, else the one with the fewest spills, if fewer."""
    newest = result("upgrades")["ptxas"][-1]
    tried = {name: cell for name, cell in row.get("remedies", {}).items() if cell[1]}
    good = [f"`{name}`" for name, cell in tried.items() if cell[0] not in ("worse", "failed")]
    if good:
        return " or ".join(good)
    spills, name = min(((cell[1]["spill_stores"], name) for name, cell in tried.items()), default=(0, ""))
    return f"`{name}`: {spills:,} bytes" if name and spills < _value(row, newest, "spill_stores") else ""


def triton() -> str:
    """What newer versions of Triton do, each with its own ptxas."""
    counts = result("upgrades")["samples"]["triton_counts"]
    names = ("worse", "better", "changed", "same", "new", "gone")
    rows = [
        (one["library"], one["arch"], f"{one['from']} to {one['to']}", *(str(one.get(name, 0)) for name in names))
        for one in counts
    ]
    return markdown(("library", "target", "Triton", *names), rows)


def worse_by_triton() -> str:
    """A line for each kernel that a newer Triton makes worse."""
    rows = [
        (
            f"`{one['kernel']}` {one['constants']}",
            one["arch"],
            f"{one['from']} to {one['to']}",
            ", ".join(f"{name.replace('_', ' ')} {_change(*pair)}" for name, pair in one["figures"].items()),
            one["by"],
        )
        for one in result("upgrades")["samples"]["triton"]
        if one["verdict"] == "worse"
    ]
    return markdown(("kernel", "target", "Triton", "figures", "changed by"), rows)


def bugs() -> str:
    """Kernels that meet a known miscompilation, and under which versions."""
    rows = [
        (f"`{row['kernel']}`", row["library"], row["arch"], name, ", ".join(versions))
        for row in _kernels()
        for name, versions in row.get("bugs", {}).items()
    ]
    return markdown(("kernel", "library", "target", "known bug", "ptxas"), sorted(set(rows)))


def corpus() -> str:
    """How many kernels there are of each library, target and Triton."""
    rows = [(one["library"], one["arch"], one["triton"], str(one["kernels"])) for one in result("upgrades")["corpus"]]
    return markdown(("library", "target", "Triton", "kernels"), rows)


def counted() -> str:
    """The corpus in words."""
    rows, versions = _kernels(), result("upgrades")["ptxas"]
    by_arch = Counter(row["arch"] for row in rows)
    parts = [f"{number:,} for {arch}" for arch, number in by_arch.most_common()]
    libraries = sorted({row["library"] for row in rows})
    told = result("upgrades")["summary"]
    ((why, failed),) = told["left_out"].items()
    return (
        f"{len(rows):,} kernels of {', '.join(libraries)} ({', '.join(parts)}), {len(versions)} versions of ptxas.\n"
        f"With those of newer Tritons: {told['tried']:,} pairs of kernel and ptxas, {told['judged']:,} judged, "
        f"{failed:,} left out, as {why}.\n"
    )


def verified() -> str:
    """What `verify --cpu` says of the kernels, in words."""
    counts = result("upgrades")["summary"]["verified"]
    parts = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    return f"{sum(counts.values()):,} kernels: {parts}.\n"
