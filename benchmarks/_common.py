"""What the benchmarks share: paths, interleaved timing, the environment, results as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "support")]  # the kernels and the fake driver of the tests


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleave(rounds: int, *sides: Callable[[], float]) -> list[list[float]]:
    """One sample per side and round. Each round runs the sides in order and then backwards (ABBA), so that
    a machine that grows slower or faster hits all sides alike; a sample is the mean of its two runs."""
    samples: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        forth = [side() for side in sides]
        back = [side() for side in reversed(sides)][::-1]
        for kept, a, b in zip(samples, forth, back, strict=True):
            kept.append((a + b) / 2)
    return samples


def median_difference(candidate: Sequence[float], reference: Sequence[float]) -> float:
    """Median of the rounds' differences."""
    return statistics.median(c - r for c, r in zip(candidate, reference, strict=True))


def environment(*packages: str) -> dict[str, Any]:
    """What the figures were measured on, without anything that names the machine."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu_count": os.cpu_count(),
        "cpu": _cpu(),
        **{package: _version(package) for package in packages},
    }


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def filesystem(path: Path) -> str | None:
    """The type of the filesystem `path` is on, e.g. "ext4"."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    fitting = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(fitting)[1] if fitting else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Numbers with six digits, one list per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_pretty(_rounded(document)) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _pretty(value: Any, indent: str = "") -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    inner = indent + "  "
    items = [f"{inner}{json.dumps(name)}: {_pretty(item, inner)}" for name, item in value.items()]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"
