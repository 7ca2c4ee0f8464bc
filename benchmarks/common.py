"""What the benchmarks share: paths, interleaved timing, the environment, results as JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"


def module_at(path: Path, name: str) -> ModuleType:
    """Import a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def coverage(tried: int, left_out: Mapping[str, int]) -> dict[str, Any]:
    """What a summary's figures are of. left_out: reason -> how many were tried and not judged."""
    left_out = {reason: count for reason, count in left_out.items() if count}
    return {"tried": tried, "judged": tried - sum(left_out.values()), "left_out": left_out}


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


def write_json(path: Path, document: dict[str, Any], digits: int = 5) -> None:
    """Write a result: summary and environment first, one row a line.

    digits: significant digits of measurements, i.e. of floats; integers (counts, sizes, ids) and text stay. Six where
    figures with two decimals of a percent are computed from the samples.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    first = {name: document[name] for name in _FIRST if name in document}
    path.write_text(_rows(_rounded(first | document, digits)) + "\n")


_FIRST = ("format", "kind", "what", "summary", "environment")
_LINE, _LONGEST_LINE = 200, 1000  # characters


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        near_one = 0.5 < abs(value) < 2  # a ratio: what counts is how far it is from 1
        return float(f"{value:.{digits + 1 if near_one else digits}g}")
    if isinstance(value, dict):
        return {name: _rounded(item, digits) for name, item in value.items()}
    return [_rounded(item, digits) for item in value] if isinstance(value, (list, tuple)) else value


def _rows(value: Any, listed: bool = False) -> str:
    """JSON in lines. An item of a list (`listed`) is one line, unless it is long or has a list of objects itself."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    is_flat = not any(isinstance(part, (dict, list)) and part for part in parts)
    if is_flat or len(text) <= _LINE or (listed and len(text) <= _LONGEST_LINE and not _has_table(value)):
        return text
    if isinstance(value, dict):
        lines = [f"{json.dumps(name, ensure_ascii=False)}:{_rows(item)}" for name, item in value.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    return "[\n" + ",\n".join(_rows(item, True) for item in value) + "\n]"


def _has_table(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, dict) for item in value)
    return isinstance(value, dict) and any(map(_has_table, value.values()))
