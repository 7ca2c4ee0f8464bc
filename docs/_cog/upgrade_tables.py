"""Write the Markdown tables about upgrades from the committed result of benchmarks/upgrades.py."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from results import markdown, percent, result

Row = Mapping[str, Any]


def _kernels(arch: str | None = None) -> list[Row]:
    """Return the kernels of the oldest Triton, of one architecture or all."""
    rows: list[Row] = result("upgrades")["samples"]["kernels"]
    oldest = min((row["triton"] for row in rows), key=_key)
    return [row for row in rows if row["triton"] == oldest and arch in (None, row["arch"])]


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


TITLES = ("ptxas", "kernels", "worse", "better", "new spills", "known bugs", "code", "time of ptxas")


def which() -> str:
    """Compare all versions of ptxas, for every target."""
    found = sorted({row["arch"] for row in _kernels()}, key=lambda arch: int(arch.strip("sm_af")))
    return markdown(("target", *TITLES), ((arch, *cells) for arch in found for cells in _which(_kernels(arch))))


def which_differ(arch: str) -> str:
    """Compare versions of ptxas for one target; leave out versions that count as the one before, except the newest."""
    rows = list(_which(_kernels(arch)))
    pairs = zip([None, *rows], rows, strict=False)
    return markdown(TITLES, [row for old, row in pairs if old is None or old[1:6] != row[1:6] or row is rows[-1]])


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
    """Return a figure of a kernel with a version of ptxas. A cell has only figures that differ from the reference's."""
    other = row["by"][version][3] if len(row["by"][version]) > 3 else {}
    return int(other.get(name, row["figures"][name]) or 0)


def _mean(rows: Iterable[Row], version: str, place: int) -> float:
    """Return the geometric mean of a figure over the reference's."""
    logs = [math.log(row["by"][version][place] / row["by"][row["own"]][place]) for row in rows]
    return math.exp(sum(logs) / len(logs))


def _share(rows: Sequence[Row], version: str) -> float:
    """Return the summed processor time of a version of ptxas over the reference's."""
    return float(sum(row["by"][version][2] for row in rows) / sum(row["by"][row["own"]][2] for row in rows))


def counted() -> str:
    """State how many kernels and versions of ptxas were compared."""
    rows, versions = _kernels(), result("upgrades")["ptxas"]
    by_arch = Counter(row["arch"] for row in rows)
    parts = [f"{number:,} for {arch}" for arch, number in by_arch.most_common()]
    libraries = sorted({row["library"] for row in rows})
    told = result("upgrades")["summary"]
    ((why, failed),) = told["left_out"].items()
    return (
        f"{len(rows):,} kernels of {', '.join(libraries)} ({', '.join(parts)}), {len(versions)} versions of ptxas.\n"
        f"With the kernels of newer Tritons there are {told['tried']:,} pairs of kernel and ptxas: {told['judged']:,} "
        f"were judged, and {failed:,} left out, because {why}.\n"
    )


def verified() -> str:
    """State the verdicts of `verify --cpu` on the kernels."""
    counts = result("upgrades")["summary"]["verified"]
    parts = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    return f"{sum(counts.values()):,} kernels: {parts}.\n"
