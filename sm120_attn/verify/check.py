"""Run everything that `check` consists of: cases, random cases, wrong results, promises."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..compile.build import source_hash
from ..config import FP8_MMAS, KERNELS, Config
from . import cases, judging, long_sums
from .cases import Case
from .compile_ahead import compile_ahead_if_missing
from .judging import ERROR_RATIO, NOT_TRIED, Verdict, result_of, shown
from .promises import SAME_BITS, promises, same_bits
from .wrong_results import MUTATED, MUTATED_FP8, mutations

RANDOM_CLASSES = 60
# Cases with the kernels of `mutations` and `promises`, to compile them ahead.
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


def check_all(
    chosen: list[Case], random_count: int, only_cases: bool, jobs: int, random_seed: int = 8, fp8: bool = False
) -> dict[str, Any]:
    """Run everything; the result can be written as JSON. only_cases: neither wrong results nor promises."""
    from ..launch.prepare import device_facts

    start = time.perf_counter()
    beside = cases_beside(fp8, only_cases, random_count > 0)
    compile_ahead_if_missing([*chosen, *beside], *device_facts(0), jobs)
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
    """Check `count` cases drawn by hypothesis from seed `number`, over a fixed set of kernels.

    Failing cases are small already, and are not shrunk.
    """
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    verdicts: list[Verdict] = []
    kinds = random_kinds(fp8)
    lengths = st.one_of(
        st.integers(1, 40), st.integers(1, 400), st.sampled_from((63, 64, 65, 127, 128, 129, 255, 256, 257))
    )

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        kind=st.sampled_from(kinds),
        lengths=st.lists(st.tuples(lengths, lengths), min_size=1, max_size=5),
        heads=st.sampled_from(((1, 1), (2, 2), (4, 2), (3, 1), (8, 2))),
        window=st.tuples(st.integers(0, 300), st.integers(0, 300)),
        layout=st.sampled_from(cases.LAYOUTS),
        values=st.sampled_from(cases.VALUES[:3]),
        data_seed=st.integers(0, 2**30),
    )
    def draw(kind: Case, lengths: Any, heads: Any, window: Any, layout: str, values: str, data_seed: int) -> None:
        case = cases.drawn(kind, tuple(lengths), heads, window, layout, values)
        verdicts.append(shown(judging.check(case, data_seed)))

    draw()
    return verdicts


def cases_beside(fp8: bool, only_cases: bool, randomly: bool) -> list[Case]:
    """Cases whose kernels check_all needs, apart from the chosen cases."""
    kinds = random_kinds(fp8) if randomly else ()
    # With other numbers of keys than of rows: where the alignment matters, that is another kernel.
    others = [*kinds, *(replace(kind, keys=192) for kind in kinds)]
    if not fp8 and not only_cases:
        others += MUTATIONS_AND_PROMISES
    if fp8 and not only_cases:
        longest = [case for case in cases.long_sums() if case.head_dim == long_sums.HEAD_DIM]
        others += [MUTATED_FP8, *longest, *(replace(case, fp8_mma=mma) for mma in FP8_MMAS for case in SAME_BITS)]
    return others


def _seen(name: str, verdict: Callable[[], Verdict]) -> str:
    """What the judge says is wrong with a wrong result; "" if it accepts it, or if it could not be tried."""
    try:
        return verdict().why
    except (RuntimeError, ValueError, TypeError) as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return ""


def _promise(promise: Callable[[], str]) -> str:
    """What is wrong, "" if nothing; NOT_TRIED where the GPU has too little memory."""
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
        f"{result['cases']} cases and {result['random_cases']} random ones, {len(result['failures'])} failed; worst "
        f"row at {result['worst_error_ratio']:.2f} x the yardstick (limit {ERROR_RATIO:g}), worst LSE off by "
        f"{result['worst_lse_error']:.1e}; {sum(w != 'NOT SEEN' for w in result['mutations'].values())} of "
        f"{len(result['mutations'])} mistakes seen; {sum(w == 'kept' for w in result['promises'].values())} of "
        f"{len(result['promises'])} promises kept; {result['seconds']} s"
    )
    return "\n".join(lines)
