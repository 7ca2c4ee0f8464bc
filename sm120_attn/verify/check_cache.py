"""Compare `attention_with_kv_cache` with float64, and show that the comparison would see mistakes.

Everything in a cache that a sequence does not use is NaN: rows behind its length, other pages. Entries of the table
that it does not use point nowhere.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..compile.build import source_hash
from ..kv_cache.config import PAGE_SIZES, DecodeConfig
from . import appended, cache_cases
from .cache_cases import CacheCase
from .compile_ahead import compile_missing
from .inputs import torch_dtype
from .judging import ROUNDING, Verdict, compare, result_of, shown

RANDOM_CLASSES = 40
NOWHERE = 1 << 29  # an entry of the table that must not be read
MUTATED = CacheCase(
    "mistakes", (333, 97, 250), 3, page_size=16, num_splits=2, sinks=True, window=(120, 5), heads=8, heads_kv=2
)


MUTATED_PREFILL = replace(
    MUTATED, name="mistakes, FP8 prefill", queries=40, window=None, num_splits=None, kv_dtype="e4m3", descale="head"
)


def tensors(case: CacheCase, seed: int = 0, device: str = "cuda") -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the tensors of a case, and the other arguments of `attention_with_kv_cache`."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int) -> Any:
        return torch.randn(*size, generator=generator, device=device)

    batch, dtype = len(case.lengths), torch_dtype(case.dtype)
    factors = {"large": (250, 1), "small": (1e-3, 1e-3)}.get(case.values, (1, 1))
    sizes = (sum(case.counts),) if case.packed else (batch, case.counts[0] if batch else 1)
    q = (normal(*sizes, case.heads, case.head_dim) * factors[0]).to(dtype)
    table, pages, rows = None, batch, case.capacity
    if case.page_size:
        table, pages = _table(case, generator, device)
        rows = case.page_size
    kv_dtype = torch_dtype(case.kv_dtype or case.dtype)
    caches = [lay_out(case.layout, (pages, rows, case.heads_kv, case.head_dim), kv_dtype, device, n) for n in range(2)]
    places = None if table is None else table.tolist()
    for i, length in enumerate(case.lengths):
        for cache, name in zip(caches, "kv", strict=True):
            values = normal(length, case.heads_kv, case.head_dim) * factors[1]
            if case.values == "equal" and name == "k":
                values = values * 0 + 0.5
            _write(
                cache[i : i + 1] if places is None else cache, [0] if places is None else places[i], values.to(kv_dtype)
            )
    made = {"q": q, "k_cache": caches[0], "v_cache": caches[1]}
    made["cache_seqlens"] = torch.tensor(case.lengths, dtype=torch.int32, device=device)
    if table is not None:
        made["block_table"] = table
    if case.descale:
        size = (batch, case.heads_kv) if case.descale == "head" else ()
        for name in ("k_descale", "v_descale"):
            made[name] = 0.5 + torch.rand(size, generator=generator, device=device)
    if case.sinks:
        made["sinks"] = normal(case.heads) * 3
    options: dict[str, Any] = {
        "causal": case.causal, "window": case.window, "softcap": case.softcap, "return_lse": case.lse,
    }  # fmt: skip
    if case.packed:
        starts = list(itertools.accumulate(case.counts, initial=0))
        made["cu_seqlens_q"] = torch.tensor(starts, dtype=torch.int32, device=device)
        options["max_seqlen_q"] = max(case.counts)
    if case.new is not None:
        made |= appended.new_tensors(case, normal, device)
        options["rotary_interleaved"] = case.rotary == "interleaved"
    return made, options | {"num_splits": case.num_splits}


def _table(case: CacheCase, generator: Any, device: str) -> tuple[Any, int]:
    """A table of shuffled pages, and the number of pages. Sequences may share their first pages."""
    import torch

    used = [-(-length // case.page_size) for length in case.totals]
    total = sum(used) + 3
    order = torch.randperm(total, generator=generator, device=device).tolist()
    table = torch.full((len(used), case.most_pages), NOWHERE, dtype=torch.int32, device=device)
    for i, count in enumerate(used):
        mine = [order.pop() for _ in range(count)]
        if case.shared and i:
            common = min(count, used[0], max(case.lengths[0] // case.page_size, 0))
            mine[:common] = table[0, :common].tolist()
        table[i, :count] = torch.tensor(mine, dtype=torch.int32, device=device)
    return table, total


def lay_out(layout: str, size: tuple[int, ...], dtype: Any, device: str, number: int) -> Any:
    """A cache full of NaN. number: 0 for K, 1 for V, where the layout has a place for both."""
    import torch

    pages, rows, heads, dim = size
    layouts: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        "pages": (size, lambda t: t),
        "interleaved": ((pages, 2, rows, heads, dim), lambda t: t[:, number]),
        "heads first": ((pages, heads, rows, dim), lambda t: t.transpose(1, 2)),
        "wide": ((pages, rows, heads, dim + 16 // dtype.itemsize), lambda t: t[..., :dim]),
    }
    shape, place = layouts[layout]
    return place(torch.full(shape, math.nan, device=device).to(dtype))


def _write(cache: Any, pages: list[int], values: Any) -> None:
    """Write the rows of a sequence into its pages."""
    size, cache, values = cache.shape[1], as_bytes(cache), as_bytes(values)
    for number in range(-(-len(values) // size)):
        part = values[number * size : (number + 1) * size]
        cache[pages[number], : len(part)] = part


def as_bytes(tensor: Any) -> Any:
    """FP8 as bytes, since torch cannot index it; others as they are."""
    import torch

    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def reference(made: dict[str, Any], options: dict[str, Any], low_precision: bool = False) -> tuple[Any, Any]:
    """Output and LSE in float64, of packed queries over the keys that each sequence has in the cache."""
    import torch

    from .reference import attention_reference

    q, lengths, table = made["q"], made["cache_seqlens"].tolist(), made.get("block_table")
    gathered = [_gathered(made[f"{name}_cache"], lengths, table, made.get(f"{name}_descale")) for name in "kv"]
    packed = "cu_seqlens_q" in made
    rows = None if packed else torch.arange(q.shape[0] + 1, dtype=torch.int32) * q.shape[1]
    starts = made["cu_seqlens_q"] if packed else rows
    keys = torch.tensor(list(itertools.accumulate(lengths, initial=0)))
    o, lse = attention_reference(
        q if packed else q.flatten(0, 1), *gathered, causal=options["causal"], window=options["window"],
        softcap=options["softcap"], scale=options.get("scale"), cu_seqlens_q=starts, cu_seqlens_k=keys,
        sinks=made.get("sinks"), low_precision=low_precision,
    )  # fmt: skip
    if packed:
        return o, lse
    return o.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)


def _gathered(cache: Any, lengths: list[int], table: Any, descale: Any = None) -> Any:
    """The rows of all sequences, packed; those of an FP8 cache in float64, times their descale."""
    import torch

    parts = []
    for i, length in enumerate(lengths):
        if table is None:
            part = as_bytes(cache)[i, :length]
        else:
            used = table[i, : -(-length // cache.shape[1])].long()
            part = as_bytes(cache)[used].flatten(0, 1)[:length]
        if cache.element_size() == 1:
            part = part.view(cache.dtype).double()
            if descale is not None:
                part = part * (descale if descale.numel() == 1 else descale[i, :, None]).double()
        parts.append(part)
    return torch.cat(parts) if parts else cache[:0, 0]


def run(made: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """Run a case. Returns O and LSE (None if not asked for)."""
    from ..kv_cache.api import attention_with_kv_cache

    result = attention_with_kv_cache(**made, **options)
    return result if options["return_lse"] else (result, None)


def judge(
    case: CacheCase, made: dict[str, Any], options: dict[str, Any], o: Any, lse: Any, before: Any = None
) -> Verdict:
    """Judge a result: compare it with float64 on the same inputs.

    before: of a case that appends, the caches as they were, see appended.snapshot; those of `made` have the new keys.
    """
    why: list[str] = []
    if case.new is not None:
        why = appended.judge_caches(case, made, before)
        made, options = appended.attended(case, made, options)
    q = made["q"]
    if o.shape != q.shape or o.dtype != q.dtype or not o.is_contiguous():
        return Verdict(case.name, "decode", math.inf, math.inf, math.inf, f"output is {list(o.shape)} of {o.dtype}")
    if o.numel() == 0:
        return Verdict(case.name, "decode", 0.0, 0.0, 0.0, "; ".join(why))
    yard, _ = reference(made, options, low_precision=True)
    return compare(case.name, "decode", (o, lse), reference(made, options), yard, ROUNDING[case.dtype], why)


def check(case: CacheCase, seed: int = 0) -> Verdict:
    """Run and judge one case. An exception is a failure, with its message."""
    if os.environ.get("SM120_ATTN_TRACE"):  # the last line names the case that hangs
        print(case.name, file=sys.stderr, flush=True)
    try:
        made, options = tensors(case, seed)
        before = appended.snapshot(made)
        return judge(case, made, options, *run(made, options), before)
    except Exception as error:  # the DSL's errors have no common base
        if "CUDA" in str(error) and "out of memory" not in str(error):
            raise  # the CUDA context is lost: later results would mean nothing
        return Verdict(case.name, "decode", math.inf, math.inf, math.inf, f"{type(error).__name__}: {error}")


def mistakes() -> dict[str, Callable[[], Verdict]]:
    """Functions by name: each makes a wrong result, and judges it as if it were right."""
    import torch

    def judged(
        change: Callable[[dict[str, Any], dict[str, Any]], Any], case: CacheCase = MUTATED
    ) -> Callable[[], Verdict]:
        def verdict() -> Verdict:
            made, options = tensors(case)
            return judge(case, made, options, *change(made, options))

        return verdict

    def changed(case: CacheCase = MUTATED, **changes: Callable[[Any], Any]) -> Callable[[], Verdict]:
        def change(made: dict[str, Any], options: dict[str, Any]) -> Any:
            return run({n: changes[n](t) if n in changes else t for n, t in made.items()}, options)

        return judged(change, case)

    def asked(**options: Any) -> Callable[[], Verdict]:
        return judged(lambda made, given: run(made, given | options))

    def swapped(tensor: Any, axis: int, a: int, b: int) -> Any:
        order = torch.arange(tensor.shape[axis], device=tensor.device)
        order[[a, b]] = order[[b, a]]
        return tensor.index_select(axis, order)

    def swapped_pages(table: Any) -> Any:
        """A page that the window hides in part, and one that every query sees: else the order of keys is nothing."""
        table = table.clone()
        table[0, [13, 19]] = table[0, [19, 13]]
        return table

    def in_order_of_the_mma(tensor: Any) -> Any:
        """Move the even columns of each 16 before the odd ones: the order that MMAs over FP8 caches have."""
        columns = torch.arange(tensor.shape[-1], device=tensor.device).view(-1, 8, 2).transpose(1, 2).flatten()
        return as_bytes(tensor)[..., columns].view(tensor.dtype)

    def columns_of_o(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = run(made, options)
        return in_order_of_the_mma(o), lse

    def without_first_keys(made: dict[str, Any], options: dict[str, Any]) -> Any:
        """Keys 0 to 31 of each sequence count for nothing."""
        return run(made | {"block_table": made["block_table"][:, 2:], "cache_seqlens": made["cache_seqlens"] - 32},
                   options)  # fmt: skip

    def wrong_lse(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = run(made, options)
        return o, lse * math.log2(math.e)

    def one_nan(made: dict[str, Any], options: dict[str, Any]) -> Any:
        o, lse = run(made, options)
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
        "no sinks": judged(lambda m, o: run({n: t for n, t in m.items() if n != "sinks"}, o)),
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
    """Functions by promise: each says how it is broken, "" if it is kept."""
    return {"the same bits every time": _same_bits, "a CUDA graph takes new lengths": _graph, "check=True": _checked}


PROMISED = CacheCase("promises", (3000, 2999, 1200, 33), 2, page_size=32, num_splits=7, sinks=True)


def _same_bits() -> str:
    import torch

    made, options = tensors(PROMISED)
    first = run(made, options)
    for number in range(20):
        again = run(made, options)
        if not all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(first, again, strict=True)):
            return f"run {number + 2} differs from run 1"
    return ""


def _graph() -> str:
    """Capture once; replay with other lengths, other pages and other values."""
    import torch

    case = PROMISED
    made, options = tensors(case)
    run(made, options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = run(made, options)
    said = []
    for number, lengths in enumerate(((3000, 17, 1200, 0), (1, 3000, 0, 999), (2999, 2998, 31, 33), (0, 0, 0, 1))):
        other, _ = tensors(replace(case, lengths=lengths), number)
        for name, tensor in made.items():
            if name in ("k_cache", "v_cache"):
                if len(other[name]) > len(tensor):
                    return f"{name} of {lengths} has more pages than the captured one"
                tensor.fill_(math.nan)
                tensor[: len(other[name])] = other[name]
            elif name == "block_table":
                tensor.fill_(NOWHERE)
                tensor[:, : other[name].shape[1]] = other[name][:, : tensor.shape[1]]
            else:
                tensor.copy_(other[name])
        graph.replay()
        torch.cuda.synchronize()
        verdict = judge(case, made, options, o, lse)
        if not verdict.passed:
            said.append(f"replay {number} with lengths {lengths}: {verdict.why}")
    return "; ".join(said)


def _checked() -> str:
    made, options = tensors(PROMISED)
    run(made, options | {"check": True})
    for name, value in (("block_table", len(made["k_cache"])), ("cache_seqlens", 4000)):
        wrong = {n: t.clone() for n, t in made.items()}
        wrong[name].view(-1)[0] = value
        try:
            run(wrong, options | {"check": True})
        except ValueError as error:
            if f"{name}[0" not in str(error):
                return f"{name}: {error}"
        else:
            return f"{name} with {value} is accepted"
    return ""


def check_random(count: int, number: int = 8) -> list[Verdict]:
    """Check `count` cases drawn by hypothesis from seed `number`, over a fixed set of kernels."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    verdicts: list[Verdict] = []
    lengths = st.one_of(st.integers(0, 40), st.integers(0, 600), st.sampled_from(cache_cases.LENGTHS))

    @seed(number)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        kind=st.sampled_from(cache_cases.classes(RANDOM_CLASSES)),
        lengths=st.lists(lengths, min_size=1, max_size=5),
        queries=st.lists(st.integers(0, 8), min_size=1, max_size=5).filter(any),
        page_size=st.sampled_from(PAGE_SIZES),
        splits=st.integers(1, 9),
        window=st.tuples(st.integers(0, 300), st.integers(1, 300)),
        layout=st.sampled_from(cache_cases.LAYOUTS),
        values=st.sampled_from(cache_cases.VALUES),
        shared=st.booleans(),
        data_seed=st.integers(0, 2**30),
    )
    def draw(kind: CacheCase, lengths: list[int], queries: list[int], data_seed: int, **other: Any) -> None:
        case = cache_cases.drawn(kind, tuple(lengths), tuple(queries), **other)
        verdicts.append(shown(check(case, data_seed)))

    draw()
    return verdicts


def needed(chosen: list[CacheCase], arch: str, sms: int, randomly: bool = True, only_cases: bool = False) -> list[Any]:
    """The kernels of these cases, of random ones, and unless only_cases of mistakes and promises, each once."""
    from . import append_promises

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
    """Run everything; the result can be written as JSON. only_cases: neither mistakes nor promises."""
    from ..launch.prepare import device_facts
    from . import append_promises

    start = time.perf_counter()
    compile_missing(needed(chosen, *device_facts(0), random_count > 0, only_cases), jobs)
    verdicts = [shown(check(case)) for case in chosen]
    random_verdicts = check_random(random_count, seed) if random_count else []
    wrong, promised = mistakes() | append_promises.mistakes(), promises() | append_promises.promises()
    seen = {} if only_cases else {name: verdict().why for name, verdict in wrong.items()}
    kept = {} if only_cases else {name: promise() for name, promise in promised.items()}
    about = {"sources": source_hash(DecodeConfig), "cache": True, "random_seed": seed}
    return about | result_of(start, verdicts, random_verdicts, seen, kept)
