"""Compare `attention_with_kv_cache` with float64, and show that the comparison rejects wrong results."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..compile.build import source_hash
from ..kernels.decode.config import PAGE_SIZES, DecodeConfig
from . import append_promises, cache_calls, cache_cases
from .cache_calls import NOWHERE, as_bytes
from .cache_cases import CacheCase
from .cases import drawn_length
from .compile_ahead import compile_missing
from .judging import Verdict, result_of, shown

RANDOM_CLASSES = 40
MUTATED = CacheCase(
    "mistakes", (333, 97, 250), 3, page_size=16, num_splits=2, sinks=True, window=(120, 5), heads=8, heads_kv=2
)


MUTATED_PREFILL = replace(
    MUTATED, name="mistakes, FP8 prefill", queries=40, window=None, num_splits=None, kv_dtype="e4m3", descale="head"
)


def mistakes() -> dict[str, Callable[[], Verdict]]:
    """Map names of mistakes to functions. Each makes a wrong result, and judges it as if it were right."""
    import torch

    def judged(
        change: Callable[[dict[str, Any], dict[str, Any]], Any], case: CacheCase = MUTATED
    ) -> Callable[[], Verdict]:
        def verdict() -> Verdict:
            made, options = cache_calls.tensors(case)
            return cache_calls.judge(case, made, options, *change(made, options))

        return verdict

    def changed(case: CacheCase = MUTATED, **changes: Callable[[Any], Any]) -> Callable[[], Verdict]:
        def change(made: dict[str, Any], options: dict[str, Any]) -> Any:
            return cache_calls.run({n: changes[n](t) if n in changes else t for n, t in made.items()}, options)

        return judged(change, case)

    def asked(**options: Any) -> Callable[[], Verdict]:
        return judged(lambda made, given: cache_calls.run(made, given | options))

    def swapped(tensor: Any, axis: int, a: int, b: int) -> Any:
        order = torch.arange(tensor.shape[axis], device=tensor.device)
        order[[a, b]] = order[[b, a]]
        return tensor.index_select(axis, order)

    def swapped_pages(table: Any) -> Any:
        """Swap a page that the window partly hides with a visible page. Two visible pages would change no result."""
        table = table.clone()
        table[0, [13, 19]] = table[0, [19, 13]]
        return table

    def in_order_of_the_mma(tensor: Any) -> Any:
        """In each 16 columns move the even columns before the odd columns, as in MMA operands of FP8 caches."""
        columns = torch.arange(tensor.shape[-1], device=tensor.device).view(-1, 8, 2).transpose(1, 2).flatten()
        return as_bytes(tensor)[..., columns].view(tensor.dtype)

    def columns_of_o(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = cache_calls.run(made, options)
        return in_order_of_the_mma(o), lse

    def without_first_keys(made: dict[str, Any], options: dict[str, Any]) -> Any:
        """Ignore keys 0 to 31 of each sequence."""
        later = {"block_table": made["block_table"][:, 2:], "cache_seqlens": made["cache_seqlens"] - 32}
        return cache_calls.run(made | later, options)

    def wrong_lse(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = cache_calls.run(made, options)
        return o, lse * math.log2(math.e)

    def one_nan(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = cache_calls.run(made, options)
        o[1, 2, 3, 5] = math.nan
        return o, lse

    return {
        "two pages of a sequence swapped": changed(block_table=swapped_pages),
        "another sequence's pages": changed(block_table=lambda t: t[[0, 0, 2]]),
        "one key too few": changed(cache_seqlens=lambda t: t - 1),
        "one key too many": changed(cache_seqlens=lambda t: t + 1),
        "key heads swapped": changed(k_cache=lambda t: swapped(t, 2, 0, 1), v_cache=lambda t: swapped(t, 2, 0, 1)),
        "query heads of a group swapped": changed(q=lambda t: swapped(t, 2, 1, 2)),
        "two queries swapped": changed(q=lambda t: swapped(t, 1, 0, 2)),
        "two rows of V swapped": changed(v_cache=lambda t: swapped(t, 1, 3, 4)),
        "the first keys dropped": judged(without_first_keys),
        "no sinks": judged(lambda m, o: cache_calls.run({n: t for n, t in m.items() if n != "sinks"}, o)),
        "another head's sink": changed(sinks=lambda t: t.flip(0)),
        "mask one key too wide": asked(causal=False, window=(120, 1)),
        "window one key too narrow": asked(window=(119, 5)),
        "no window": asked(window=None),
        "scale 2 % off": asked(scale=1.02 / math.sqrt(128)),
        "LSE in base 2": judged(wrong_lse),
        "one NaN": judged(one_nan),
        "FP8 prefill, K's descales of another head": changed(MUTATED_PREFILL, k_descale=lambda t: t.flip(1)),
        "FP8 prefill, V's descales left out": changed(MUTATED_PREFILL, v_descale=lambda t: t * 0 + 1),
        "FP8 prefill, columns of K in another order": changed(MUTATED_PREFILL, k_cache=in_order_of_the_mma),
        "FP8 prefill, columns of O in another order": judged(columns_of_o, MUTATED_PREFILL),
    }


def promises() -> dict[str, Callable[[], str]]:
    """Map promises to functions. Each tests its promise and returns how it is broken, or "" if it is kept."""
    return {"the same bits every time": _same_bits, "a CUDA graph takes new lengths": _graph, "check=True": _checked}


PROMISED = CacheCase("promises", (3000, 2999, 1200, 33), 2, page_size=32, num_splits=7, sinks=True)


def _same_bits() -> str:
    import torch

    made, options = cache_calls.tensors(PROMISED)
    first = cache_calls.run(made, options)
    for number in range(20):
        again = cache_calls.run(made, options)
        if not all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(first, again, strict=True)):
            return f"run {number + 2} differs from run 1"
    return ""


def _graph() -> str:
    """Capture once; replay with other lengths, other pages and other values."""
    import torch

    case = PROMISED
    made, options = cache_calls.tensors(case)
    cache_calls.run(made, options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = cache_calls.run(made, options)
    said = []
    for number, lengths in enumerate(((3000, 17, 1200, 0), (1, 3000, 0, 999), (2999, 2998, 31, 33), (0, 0, 0, 1))):
        other, _ = cache_calls.tensors(replace(case, lengths=lengths), number)
        for name, tensor in made.items():
            if name in ("k_cache", "v_cache"):
                if len(other[name]) > len(tensor):
                    return f"{name} for lengths {lengths} has more pages than the captured {name}"
                tensor.fill_(math.nan)
                tensor[: len(other[name])] = other[name]
            elif name == "block_table":
                tensor.fill_(NOWHERE)
                tensor[:, : other[name].shape[1]] = other[name][:, : tensor.shape[1]]
            else:
                tensor.copy_(other[name])
        graph.replay()
        torch.cuda.synchronize()
        verdict = cache_calls.judge(case, made, options, o, lse)
        if not verdict.passed:
            said.append(f"replay {number} with lengths {lengths}: {verdict.why}")
    return "; ".join(said)


def _checked() -> str:
    made, options = cache_calls.tensors(PROMISED)
    cache_calls.run(made, options | {"check": True})
    for name, value in (("block_table", len(made["k_cache"])), ("cache_seqlens", 4000)):
        wrong = {n: t.clone() for n, t in made.items()}
        wrong[name].view(-1)[0] = value
        try:
            cache_calls.run(wrong, options | {"check": True})
        except ValueError as error:
            if f"{name}[0" not in str(error):
                return f"{name}: {error}"
        else:
            return f"{name} with {value} is accepted: must raise ValueError"
    return ""


def check_random(count: int, number: int = 8) -> list[Verdict]:
    """Check `count` random cases over a fixed set of kernels. number: seed; it gives the same cases everywhere."""
    rng, kinds = random.Random(number), cache_cases.classes(RANDOM_CLASSES)
    verdicts = []
    for _ in range(count):
        lengths = tuple(drawn_length(rng, 0, 600, cache_cases.LENGTHS) for _ in range(rng.randint(1, 5)))
        queries = (*(rng.randint(0, 8) for _ in range(rng.randint(0, 4))), rng.randint(1, 8))  # the last one is not 0
        window = (rng.randint(0, 300), rng.randint(1, 300))
        case = cache_cases.drawn(
            rng.choice(kinds), lengths, queries, rng.choice(PAGE_SIZES), rng.randint(1, 9), window,
            rng.choice(cache_cases.LAYOUTS), rng.choice(cache_cases.VALUES), rng.random() < 0.5,
        )  # fmt: skip
        verdicts.append(shown(cache_calls.check(case, rng.randrange(1 << 30))))
    return verdicts


def needed(chosen: list[CacheCase], arch: str, sms: int, randomly: bool = True, only_cases: bool = False) -> list[Any]:
    """List the kernels of these cases and random cases, once each; unless only_cases, of mistakes and promises."""
    kinds = cache_cases.classes(RANDOM_CLASSES) if randomly else ()
    others = [
        MUTATED, replace(MUTATED, causal=False), replace(MUTATED, window=None), replace(MUTATED, sinks=False), PROMISED,
        MUTATED_PREFILL, append_promises.MUTATED, append_promises.MUTATED_FP8, append_promises.PROMISED,
        replace(append_promises.MUTATED, rotary="interleaved"), replace(append_promises.PROMISED, page_size=0),
    ]  # fmt: skip
    others = [] if only_cases else others
    drawn = [
        cache_cases.drawn(kind, (100,), (4,), 16, 2, (1, 1), "pages", "normal", False) for kind in kinds
    ]  # fmt: skip
    cases = [case for case in (*chosen, *drawn, *others) if case.lengths and any(case.counts)]
    configs = itertools.chain.from_iterable((case.config(arch, sms), case.append_config(arch)) for case in cases)
    return list(dict.fromkeys(config for config in configs if config))


def check_all(chosen: list[CacheCase], random_count: int, only_cases: bool, jobs: int, seed: int = 8) -> dict[str, Any]:
    """Run all parts of the check; return the JSON document. only_cases: run only the cases, not the
    kernels with planted mistakes and not the checks of documented promises."""
    from ..launch.prepare import device_facts

    start = time.perf_counter()
    compile_missing(needed(chosen, *device_facts(0), random_count > 0, only_cases), jobs)
    verdicts = [shown(cache_calls.check(case)) for case in chosen]
    random_verdicts = check_random(random_count, seed) if random_count else []
    wrong, promised = mistakes() | append_promises.mistakes(), promises() | append_promises.promises()
    seen = {} if only_cases else {name: verdict().why for name, verdict in wrong.items()}
    kept = {} if only_cases else {name: promise() for name, promise in promised.items()}
    about = {"sources": source_hash(DecodeConfig), "cache": True, "random_seed": seed}
    return about | result_of(start, verdicts, random_verdicts, seen, kept)
