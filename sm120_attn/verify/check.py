"""The subcommand `check`: compare `attention` with float64, and show that the comparison detects mistakes.

    python -m sm120_attn check [--fp8 | --cache] [--kernel tma] [--only TEXT] [--random 1000] [--json FILE]

It runs cases, random cases, wrong results (which must fail), and tests of promises: properties that one call cannot
show. With --cache it runs those of check_cache.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..compile.build import source_hash
from ..compile.compiler import import_dsl
from ..config import ARCHS, FP8_MMAS, KERNELS, Config
from . import cache_cases, cases, check_cache, judging, long_sums
from .cache_cases import CacheCase
from .cases import Case
from .compile_ahead import JOBS, compile_ahead, compile_missing, needed
from .judging import ERROR_RATIO, NOT_TRIED, Verdict, result_of, shown
from .promises import SAME_BITS, promises, same_bits
from .requirements import require_folder, require_gpu
from .wrong_results import MUTATED, MUTATED_FP8, mutations

RANDOM_CLASSES = 60
RANDOM_LENGTHS = (63, 64, 65, 127, 128, 129, 255, 256, 257)
RANDOM_HEADS = ((1, 1), (2, 2), (4, 2), (3, 1), (8, 2))  # (query heads, key heads)
# Cases that need the kernels of `mutations` and `promises`, to compile these kernels ahead.
MUTATIONS_AND_PROMISES = (
    MUTATED,
    replace(MUTATED, mask="none"),
    replace(MUTATED, mask="none", window=(-1, 1)),
    replace(MUTATED, align="top-left"),
    *(Case("promises", 130, 190, mask=mask) for mask in ("none", "causal")),
    *(Case("promises", rows, rows + 50, mask="causal") for rows in (100, 600)),
    *(Case("far batches", 70, 90, heads=2, heads_kv=2, kernel=kernel) for kernel in KERNELS),
    *(Case("far rows", 40, 40, batch=1, heads=2, heads_kv=2, kernel=kernel) for kernel in KERNELS),
    *(Case("many elements", 16, 16, 70_000, 16, 16, lse=False, kernel=kernel) for kernel in KERNELS),
)


# --- the subcommand -----------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        choices=(*KERNELS, *cases.TILES, "all"),
        help="check this kernel or choice of tiles instead of the planned kernel; all: check every kernel",
    )
    parser.add_argument("--fp8", action="store_true", help="check FP8 inputs instead of 16-bit inputs")
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
    parser.add_argument("--compile-only", metavar="ARCH:SMS", help="only compile the kernels, which needs no GPU")


def main(arguments: argparse.Namespace) -> int:
    for name, least in (("random", 0), ("jobs", 1)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name} {getattr(arguments, name)}: must be at least {least}")
    chosen: list[Any] = selected_of_cache(arguments) if arguments.cache else selected(arguments)
    if not chosen:
        matrix = cache_cases.matrix if arguments.cache else cases.fp8_matrix if arguments.fp8 else cases.matrix
        known: Any = next(iter(matrix()))
        raise ValueError(f"--only {arguments.only!r}: no case has this text in its name; one name is {known.name!r}")
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
    random_count = 0 if arguments.only else arguments.random
    once = (chosen, random_count, bool(arguments.only), arguments.jobs, arguments.seed)
    result = check_cache.check_all(*once) if arguments.cache else check_all(*once, arguments.fp8)
    print(summary(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    return 0 if result["passed"] else 1


def parse_target(text: str) -> tuple[str, int]:
    """Split ARCH:SMS into its parts. Raises ValueError if a part is invalid."""
    arch, _, sms = text.partition(":")
    if arch not in ARCHS or not sms.isascii() or not sms.isdigit() or not int(sms):
        raise ValueError(
            f"--compile-only {text!r}: must be ARCH:SMS, with one of {', '.join(ARCHS)}, such as sm_120a:170"
        )
    return arch, int(sms)


def selected_of_cache(arguments: argparse.Namespace) -> list[CacheCase]:
    """Select the cases over a cache by the arguments. Raises ValueError for --fp8 or --kernel."""
    if arguments.fp8 or arguments.kernel:
        raise ValueError("--cache checks the planned kernels: it cannot be combined with --fp8 or --kernel")
    return [case for case in cache_cases.matrix() if arguments.only in case.name]


def selected(arguments: argparse.Namespace) -> list[Case]:
    """Select the cases by the arguments. Raises ValueError for a kernel that --fp8 does not support."""
    if arguments.fp8 and arguments.kernel not in (None, "all", *cases.FP8_TILES):
        raise ValueError(f"--kernel {arguments.kernel}: with --fp8 it must be {', '.join(cases.FP8_TILES)} or all")
    matrix = cases.fp8_matrix if arguments.fp8 else cases.matrix
    chosen = cases.on_all_kernels(arguments.fp8) if arguments.kernel == "all" else matrix(arguments.kernel)
    return [case for case in chosen if arguments.only in case.name]


# --- the parts of the check ---------------------------------------------------------------------------------------


def check_all(
    chosen: list[Case], random_count: int, only_cases: bool, jobs: int, random_seed: int = 8, fp8: bool = False
) -> dict[str, Any]:
    """Run all parts of the check; return the JSON document. only_cases: leave out wrong results and promises."""
    from ..launch.prepare import device_facts

    start = time.perf_counter()
    beside = cases_beside(fp8, only_cases, random_count > 0)
    compile_missing(needed([*chosen, *beside], *device_facts(0)), jobs)
    verdicts = [shown(judging.check(case)) for case in chosen]
    random_verdicts = check_random(random_count, random_seed, fp8) if random_count else []
    mistakes, promised = {}, {}
    if not only_cases:
        mistakes = mutations(MUTATED_FP8 if fp8 else MUTATED)
        promised = promises(MUTATED_FP8) | same_bits() if fp8 else promises()
    seen = {name: _seen(name, verdict) for name, verdict in mistakes.items()}
    kept = {name: _promise(promise) for name, promise in promised.items()}
    about: dict[str, Any] = {"sources": source_hash(Config), "fp8": fp8, "random_seed": random_seed}
    if fp8 and not only_cases:
        about["long_sums"] = long_sums.measure()
    return about | result_of(start, verdicts, random_verdicts, seen, kept)


def random_kinds(fp8: bool) -> tuple[Case, ...]:
    return cases.fp8_classes(RANDOM_CLASSES) if fp8 else cases.classes(RANDOM_CLASSES)


def check_random(count: int, number: int = 8, fp8: bool = False) -> list[Verdict]:
    """Check `count` random cases over a fixed set of kernels. number: seed; it gives the same cases everywhere."""
    rng, kinds = random.Random(number), random_kinds(fp8)
    length = partial(cases.drawn_length, rng, 1, 400, RANDOM_LENGTHS)
    verdicts = []
    for _ in range(count):
        lengths = tuple((length(), length()) for _ in range(rng.randint(1, 5)))
        heads, window = rng.choice(RANDOM_HEADS), (rng.randint(0, 300), rng.randint(0, 300))
        layout, values = rng.choice(cases.LAYOUTS), rng.choice(cases.VALUES[:3])
        case = cases.drawn(rng.choice(kinds), lengths, heads, window, layout, values)
        verdicts.append(shown(judging.check(case, rng.randrange(1 << 30))))
    return verdicts


def cases_beside(fp8: bool, only_cases: bool, randomly: bool) -> list[Case]:
    """List cases whose kernels check_all needs in addition to the kernels of the chosen cases."""
    kinds = random_kinds(fp8) if randomly else ()
    # Add cases with more keys than rows: they need other kernels if the mask's alignment matters.
    others = [*kinds, *(replace(kind, keys=192) for kind in kinds)]
    if not fp8 and not only_cases:
        others += MUTATIONS_AND_PROMISES
    if fp8 and not only_cases:
        longest = [case for case in cases.long_sums() if case.head_dim == long_sums.HEAD_DIM]
        others += [MUTATED_FP8, *longest, *(replace(case, fp8_mma=mma) for mma in FP8_MMAS for case in SAME_BITS)]
    return others


def _seen(name: str, verdict: Callable[[], Verdict]) -> str:
    """Return the judge's objection to a wrong result; "" if it has none, or if the result could not be made."""
    try:
        return verdict().why
    except (RuntimeError, ValueError, TypeError) as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ""


def _promise(promise: Callable[[], str]) -> str:
    """Return how a promise is broken, "" if it is kept, or NOT_TRIED if the GPU has too little memory."""
    import torch

    try:
        return promise()
    except torch.cuda.OutOfMemoryError:
        return NOT_TRIED
    except (RuntimeError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        torch.cuda.empty_cache()


def summary(result: dict[str, Any]) -> str:
    lines = [f"MISTAKE NOT SEEN: {name}" for name, why in result["mutations"].items() if why == "NOT SEEN"]
    lines += [f"BROKEN {name}: {why}" for name, why in result["promises"].items() if why not in ("kept", NOT_TRIED)]
    if "long_sums" in result:
        lines.append(long_sums.summary(result["long_sums"]))
    lines.append(
        f"{result['cases']} cases and {result['random_cases']} random cases, {len(result['failures'])} failed; largest "
        f"error of a row {result['worst_error_ratio']:.2f} x the reference's (limit {ERROR_RATIO:g}), of an LSE "
        f"{result['worst_lse_error']:.1e}; {sum(w != 'NOT SEEN' for w in result['mutations'].values())} of "
        f"{len(result['mutations'])} wrong results rejected; {sum(w == 'kept' for w in result['promises'].values())} "
        f"of {len(result['promises'])} promises kept; {result['seconds']} s"
    )
    return "\n".join(lines)
