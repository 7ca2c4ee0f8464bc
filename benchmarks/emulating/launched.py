"""What the sanitizer finds in the programs of dry runs: each shard of a group in a process of its own, several at once.

captured   Each kernel that the programs compile, with its first launch: some CTAs of it, on random buffers.
launched   All launches of the programs, with real values. What follows a launch that is not executed is not looked at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, coverage
from benchmarks.emulating.kept import Row

PROGRAM_S, KERNEL_S = 90.0, 30.0
# Groups of dry_programs, and into how many shards each goes.
SHARDS = {
    "tutorials": 6, "targets": 3, "gluon": 4, "cute": 9, "liger": 8, "fla-1": 6, "fla-2": 5, "fla-3": 3, "fla-4": 5,
    "block": 2, "conch": 2, "mamba": 4, "cut_cross_entropy": 3, "flash_attn": 3, "sageattention": 4, "bitsandbytes": 2,
    "torchao": 3, "gemlite": 5, "flag_gems": 14, "flag_gems-values": 1, "reported": 1,
}  # fmt: skip


def shards(
    part: str, arches: list[str], groups: list[str], work: Path, jobs: int, seconds: float, ctas: int
) -> Iterator[Row]:
    """Yield a row for each shard. arches: the most important first. seconds: when no more are begun."""
    end = time.monotonic() + seconds
    chosen = [
        (arch, group, number)
        for arch in arches
        for number in range(max(SHARDS.values()))
        for group in groups or SHARDS
        if number < SHARDS[group]
    ]
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(partial(_shard, part, work, end, ctas), chosen):
            if row is not None:
                print(*row.values(), flush=True)
                yield row


def _shard(part: str, work: Path, end: float, ctas: int, shard: tuple[str, str, int]) -> Row | None:
    arch, group, number = shard
    left, began = end - time.monotonic(), time.monotonic()
    if left < 15:
        return None
    out = work / f"{arch}-{group}-{number}"
    own = {"TRITON_CACHE_DIR": f"{out}.cache", "FLAGGEMS_CACHE_DIR": f"{out}.gems", "OMP_NUM_THREADS": "1"}
    own |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": f"{out}.inductor"}
    base = [sys.executable, "-W", "ignore", "-m", "tritonhook"]
    words = ["-m", "benchmarks", "dry_programs", group, "--shard", f"{number}/{SHARDS[group]}"]
    words += ["--limit", str(min(PROGRAM_S, left - 10)), "--until", str(left)]
    how = ["--emulate", "--sanitize"] if part == "launched" else []
    row = dict(zip(("arch", "group", "shard"), shard, strict=True))

    def document(name: str, command: list[str]) -> tuple[dict[str, Any], list[str]]:
        rest = end - time.monotonic() + 20
        done = subprocess.run(
            [*base, *command], env=os.environ | own, capture_output=True, timeout=rest, cwd=REPOSITORY
        )
        Path(f"{out}.{name}.log").write_bytes(done.stderr)
        lines = done.stderr.decode(errors="replace").splitlines()
        return json.loads(done.stdout or "{}"), lines or [""]

    try:
        found, lines = document(part, ["run", "--arch", arch, *how, "--json", "--out", f"{out}.{part}", *words])
        programs = [json.loads(line) for line in lines if line.startswith('{"program"')]
        notes = found.get("notes", lines[-1:])
        row |= {"programs": programs, "kernels": len(found.get("kernels", ()))}
        if part == "launched":
            row["faults"] = [note.removeprefix("FAULT ") for note in notes if note.startswith("FAULT ")]
            row["notes"] = [note for note in notes if not note.startswith(("FAULT ", "emulated", "dry run"))]
        else:
            some = ["--input", "normal", "--ctas", str(ctas), "--limit", f"{KERNEL_S:g}", "--json"]
            kernels = document("emulated", ["emulate", f"{out}.{part}", *some])[0]["kernels"]
            row["left"] = dict(Counter(one["reason"][:200] for one in kernels if one["reason"]))
            row["faults"] = [f"{one['kernel']}: {_told(fault)}" for one in kernels for fault in one["faults"]]
            row["notes"] = [f"{one['kernel']}: {one['unwatched']}" for one in kernels if one["unwatched"]]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        row = (
            {"programs": [], "kernels": 0, "faults": []} | row | {"notes": [f"{type(error).__name__}: {error}"[-300:]]}
        )
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _told(fault: dict[str, Any]) -> str:
    places = (f"{one['what']} at {one['source'] or one['line']}: {one['instruction']}" for one in fault["places"])
    return "; ".join((f"{fault['kind']}: {fault['text']}", *places))


def looked_at(rows: list[Row]) -> dict[str, Any]:
    """Count what was tried, what ran to its end, and what was found."""
    programs = [program for row in rows for program in row["programs"]]
    why = Counter(one["why"].partition(":")[0] for one in programs if one["why"])
    return coverage(len(programs), dict(why)) | {
        "launches": sum(one["launches"] for one in programs),
        "kernels": sum(row["kernels"] for row in rows),
        "not_finished": sum(sum(row.get("left", {}).values()) for row in rows),
        "targets": {
            arch: sum(row["kernels"] for row in rows if row["arch"] == arch)
            for arch in dict.fromkeys(row["arch"] for row in rows)
        },
        "faults": sum(len(row["faults"]) for row in rows),
        "kernels_with_a_finding": len({fault.partition(":")[0] for row in rows for fault in row["faults"]}),
    }
