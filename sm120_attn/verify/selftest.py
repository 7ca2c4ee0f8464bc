"""The subcommand `selftest`, for owners of an RTX 50 or a GB10: write probes, checks, bench and inspect to a JSON file.

    python -m sm120_attn selftest [--out sm120-selftest.json] [--quick]

The kernels were written without such a GPU. The self-test shows whether they are correct on it, and how fast they are.
The file also has details that explain unexpected results: the device, its clocks and power limit, versions, and the
instruction counts of the kernels. Nothing is sent anywhere, and the file names neither the machine nor its user.

Each part runs in its own process, with a time limit: a part that hangs or loses its CUDA context does not stop the
others. The file is written after each part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..compile.build import FAMILIES, source_hash
from . import bench, cache_cases, cases, check, check_cache, inspect
from .cases import Case
from .compile_ahead import JOBS
from .requirements import require_folder, require_gpu

SMI = "clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,temperature.gpu,driver_version"
LIMIT_S = {"full": 2400, "quick": 300}  # time limit of each part, in seconds
QUICK = ("113 x 203", "tail 15 of 64", "packed", "GQA", "values")
QUICK_CACHE = ("65 keys, page 16", "FP8 cache, D128", "append 5, page 16", "prefill, 130 queries, page 16")
CHECKS = ("probes", "check", "check_quantize", "check_fp8", "check_cache")
ROUNDS = {"full": 11, "quick": 5}
RANDOM = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("sm120-selftest.json"),
        metavar="FILE",
        help="file to write (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file of --out if it exists")
    parser.add_argument("--quick", action="store_true", help="check few cases; takes minutes, mostly for compilation")
    parser.add_argument(
        "--jobs", type=int, default=JOBS, help=f"number of processes that compile ahead (default: {JOBS})"
    )


def main(arguments: argparse.Namespace) -> int:
    if arguments.out.exists() and not arguments.force:
        raise ValueError(f"{arguments.out} exists; choose another --out, or overwrite it with --force")
    if arguments.jobs < 1:
        raise ValueError(f"--jobs {arguments.jobs}: must be at least 1")
    require_folder(arguments.out)
    require_gpu()
    result = run(arguments.quick, arguments.jobs, arguments.out)
    said = ", ".join(f"{name} {verdict(result[name])}" for name in CHECKS)
    print(f"wrote {arguments.out}: {said}. Please send it back.")
    return 0 if all(result[name].get("passed") for name in CHECKS) else 1


def verdict(part: dict[str, Any]) -> str:
    if "error" in part:
        return f"did not end ({part['error']})"
    return "passed" if part["passed"] else "FAILED"


def run(quick: bool, jobs: int, out: Path) -> dict[str, Any]:
    started = time.perf_counter()
    result: dict[str, Any] = {
        "what": "sm120_attn selftest",
        "format": 4,
        "sources": {kind.__name__: source_hash(kind) for kind in FAMILIES},
        "quick": quick,
        "device": _part(bench.device),
    }
    for name, (announced, _) in PARTS.items():
        print(f"{announced} ...", flush=True)
        result[name] = _part(partial(in_a_process, name, quick, jobs))
        result["seconds"] = round(time.perf_counter() - started, 1)
        out.write_text(json.dumps(result, indent=1))
    return result


# --- the parts ---------------------------------------------------------------------------------------------------


def _probes(quick: bool, jobs: int) -> dict[str, Any]:
    from .hardware_probes import run, summary

    found = run()
    print(summary(found))
    return found


def cases_of(quick: bool, fp8: bool) -> list[Case]:
    """List the cases of the self-test. quick: only a few cases, with the planned kernels."""
    if quick:
        return [case for case in (cases.fp8_matrix if fp8 else cases.matrix)() if any(t in case.name for t in QUICK)]
    return list(cases.on_all_kernels(fp8))


def _check(quick: bool, jobs: int, fp8: bool = False) -> dict[str, Any]:
    result = check.check_all(cases_of(quick, fp8), 0 if quick else RANDOM, quick, jobs, fp8=fp8)
    print(check.summary(result))
    del result["verdicts"]  # thousands of entries; those that failed are also in "failures"
    return result


def _check_quantize(quick: bool, jobs: int) -> dict[str, Any]:
    from . import check_quantize

    result = check_quantize.run(QUICK if quick else None, jobs)
    print(check_quantize.summary(result))
    return result


def _check_cache(quick: bool, jobs: int) -> dict[str, Any]:
    chosen = [
        case
        for case in cache_cases.matrix()
        if not quick or any(case.name.startswith(text) for text in QUICK_CACHE)
    ]  # fmt: skip
    result = check_cache.check_all(chosen, 0 if quick else RANDOM, quick, jobs)
    print(check.summary(result))
    del result["verdicts"]
    return result


def _timed(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    before = _smi()
    found = measure()
    return found | {"clocks_before_and_after": [before, _smi()]}


def _bench(quick: bool, jobs: int) -> dict[str, Any]:
    rounds = ROUNDS["quick" if quick else "full"]
    return _timed(lambda: bench.measure("published" if quick else None, True, rounds))


def _bench_fp8(quick: bool, jobs: int) -> dict[str, Any]:
    from ..launch.prepare import device_facts

    wrong = bench.why_no_fp8_time(device_facts(0)[0])
    if wrong:
        print(f"left out: {wrong}")
        return {"left_out": wrong}
    rounds = ROUNDS["quick" if quick else "full"]
    return _timed(lambda: bench.measure_fp8("published" if quick else None, rounds))


def _inspect(quick: bool, jobs: int) -> dict[str, Any]:
    """Count instructions of the kernels for long sequences on this device."""
    from ..launch.prepare import device_facts

    arch, _ = device_facts(0)
    configs = [
        config
        for dtype in ("bf16", "e4m3")
        for config in inspect.configs((arch,), (64, 128), (False, True), dtype)
    ]  # fmt: skip
    return inspect.report([inspect.inspect(config) for config in configs])


PARTS: dict[str, tuple[str, Callable[[bool, int], dict[str, Any]]]] = {
    "probes": ("probing lane maps, unit scales and bank conflicts", _probes),
    "check": ("checking against float64", _check),
    "check_quantize": ("checking the quantisation", _check_quantize),
    "check_fp8": ("checking FP8", lambda quick, jobs: _check(quick, jobs, fp8=True)),
    "check_cache": ("checking attention over a KV cache", _check_cache),
    "bench": ("timing", _bench),
    "bench_fp8": ("timing FP8 against BF16", _bench_fp8),
    "inspect": ("counting instructions", _inspect),
}


def in_a_process(name: str, quick: bool, jobs: int) -> dict[str, Any]:
    """Run a part in its own process; return its result. Raises RuntimeError if it does not end or has no result."""
    limit = LIMIT_S["quick" if quick else "full"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        command = [sys.executable, "-m", __spec__.name, name, str(out), "quick" if quick else "full", str(jobs)]
        try:
            done = subprocess.run(command, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the part did not end within {limit} s") from None
        if not out.exists():
            raise RuntimeError(f"the part ended with exit status {done.returncode} and wrote no result")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def _part(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except Exception as error:  # on a GPU on which these kernels have never run, anything may happen
        print(f"failed: {type(error).__name__}: {error}", file=sys.stderr)
        return {"error": f"{type(error).__name__}: {error}"}


def _smi() -> dict[str, str]:
    """Read clocks and power from nvidia-smi; return {} if it fails."""
    try:
        command = ["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader", "--id=0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(SMI.split(","), [cell.strip() for cell in done.stdout.strip().split(",")], strict=False))


if __name__ == "__main__":  # in_a_process starts this file to run one part
    _name, _out, _size, _jobs = sys.argv[1:]
    Path(_out).write_text(json.dumps(_part(lambda: PARTS[_name][1](_size == "quick", int(_jobs)))))
