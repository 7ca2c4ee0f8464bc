"""The verb `check`: compare `attention` with float64, and show that the comparison would see mistakes.

python -m sm120_attn check [--fp8 | --cache] [--kernel tma] [--only TEXT] [--random 1000] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..compile.compiler import import_dsl
from ..config import ARCHS, KERNELS
from . import cache_cases, cases, check_cache
from .cache_cases import CacheCase
from .cases import Case
from .check import cases_beside, check_all, summary
from .compile_ahead import JOBS, compile_ahead, needed
from .requirements import require_folder, require_gpu, require_hypothesis


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        choices=(*KERNELS, *cases.TILES, "all"),
        help="check this kernel or choice of tiles instead of the planned one; all: every one",
    )
    parser.add_argument("--fp8", action="store_true", help="check FP8 inputs instead of 16-bit ones")
    parser.add_argument(
        "--cache", action="store_true", help="check attention over a KV cache: contiguous and paged, decode and prefill"
    )
    parser.add_argument(
        "--only",
        default="",
        help="check only cases whose name contains this text; no random cases, wrong results or promises",
    )
    parser.add_argument("--random", type=int, default=1000, metavar="N", help="number of random cases (default: 1000)")
    parser.add_argument("--seed", type=int, default=8, help="seed of the random cases (default: 8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all verdicts to FILE")
    parser.add_argument(
        "--jobs", type=int, default=JOBS, help=f"number of processes that compile ahead (default: {JOBS})"
    )
    parser.add_argument("--compile-only", metavar="ARCH:SMS", help="only compile what the cases need, without a GPU")


def main(arguments: argparse.Namespace) -> int:
    for name, least in (("random", 0), ("jobs", 1)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name} {getattr(arguments, name)}: at least {least}")
    chosen: list[Any] = selected_of_cache(arguments) if arguments.cache else selected(arguments)
    if not chosen:
        matrix = cache_cases.matrix if arguments.cache else cases.fp8_matrix if arguments.fp8 else cases.matrix
        known: Any = next(iter(matrix()))
        raise ValueError(f"--only {arguments.only!r}: no case has this in its name; one name is {known.name!r}")
    randomly = arguments.random and not arguments.only
    if arguments.compile_only:
        target = parse_target(arguments.compile_only)
        import_dsl()
        if arguments.cache:
            configs: list[Any] = check_cache.needed(chosen, *target, bool(randomly), bool(arguments.only))
        else:
            beside = cases_beside(arguments.fp8, bool(arguments.only), bool(randomly))
            configs = needed([*chosen, *beside], *target)
        failed = compile_ahead(configs, arguments.jobs)
        for name, why in failed.items():
            print(f"{name}: {why}", file=sys.stderr)
        print(f"{len(configs) - len(failed)} of {len(configs)} kernels compiled")
        return 1 if failed else 0
    require_folder(arguments.json)
    require_gpu()
    if randomly:
        require_hypothesis()
    random_count = 0 if arguments.only else arguments.random
    once = (chosen, random_count, bool(arguments.only), arguments.jobs, arguments.seed)
    result = check_cache.check_all(*once) if arguments.cache else check_all(*once, arguments.fp8)
    print(summary(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    return 0 if result["passed"] else 1


def parse_target(text: str) -> tuple[str, int]:
    """Split ARCH:SMS. Raises ValueError."""
    arch, _, sms = text.partition(":")
    if arch not in ARCHS or not sms.isascii() or not sms.isdigit() or not int(sms):
        raise ValueError(
            f"--compile-only {text!r}: must be ARCH:SMS, with one of {', '.join(ARCHS)}, such as sm_120a:170"
        )
    return arch, int(sms)


def selected_of_cache(arguments: argparse.Namespace) -> list[CacheCase]:
    """The cases over a cache that the arguments choose. Raises ValueError for arguments that do not fit together."""
    if arguments.fp8 or arguments.kernel:
        raise ValueError("--cache: neither --fp8 nor --kernel goes with it; the kernels are the planned ones")
    return [case for case in cache_cases.matrix() if arguments.only in case.name]


def selected(arguments: argparse.Namespace) -> list[Case]:
    """The cases that the arguments choose. Raises ValueError for a kernel that does not exist."""
    if arguments.fp8 and arguments.kernel not in (None, "all", *cases.FP8_TILES):
        raise ValueError(f"--kernel {arguments.kernel}: with --fp8 it must be {', '.join(cases.FP8_TILES)} or all")
    matrix, tiles = cases.matrix, ("cp_async", *cases.TILES)
    if arguments.fp8:
        matrix, tiles = cases.fp8_matrix, cases.FP8_TILES
    kernels = (None, *tiles) if arguments.kernel == "all" else (arguments.kernel,)
    return [case for kernel in kernels for case in matrix(kernel) if arguments.only in case.name]
