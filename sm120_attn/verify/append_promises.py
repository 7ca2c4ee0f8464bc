"""Wrong append calls that `check --cache` must detect, and properties ("promises") that one append call cannot show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import cache_calls, cache_writes
from .cache_calls import NOWHERE
from .cache_cases import CacheCase
from .judging import Verdict

MUTATED = CacheCase("append, mistakes", (330, 95, 16), 3, page_size=16, num_splits=2, new=3, rotary="half")
MUTATED_FP8 = replace(MUTATED, name="append, mistakes, FP8 cache", kv_dtype="e4m3", descale="head", new=3)
PROMISED = CacheCase("append, promises", (40, 0, 15, 63), 2, page_size=16, num_splits=3, new=2, rotary="interleaved")

Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def mistakes() -> dict[str, Callable[[], Verdict]]:
    """Map names of mistakes to functions. Each makes a wrong call or cache, and judges it as if it were right."""

    def judged(change: Change, case: CacheCase = MUTATED) -> Callable[[], Verdict]:
        """Run and judge a call. change: edits tensors and options before it; may return a function to run after it."""

        def verdict() -> Verdict:
            right, options = cache_calls.tensors(case)
            before = cache_writes.snapshot(right)
            given, asked = dict(right), dict(options)
            after = change(given, asked)
            o, lse = cache_calls.run(given, asked)
            if after is not None:
                after(given)
            return cache_calls.judge(case, right, options, o, lse, before)

        return verdict

    def put(name: str, value: Callable[[dict[str, Any]], Any], case: CacheCase = MUTATED) -> Callable[[], Verdict]:
        return judged(lambda made, options: made.__setitem__(name, value(made)), case)

    def nothing_new(made: dict[str, Any], options: dict[str, Any]) -> Any:
        old = cache_writes.snapshot(made)
        return lambda after: [cache_writes.bytes_of(after[name]).copy_(old[name]) for name in old]

    def one_more(made: dict[str, Any], options: dict[str, Any]) -> Any:
        """Write the row after the last new row, too."""
        page = int(made["block_table"][0, 333 // 16])
        return lambda after: after["v_cache"][page, 333 % 16].zero_()

    def swap(made: dict[str, Any], options: dict[str, Any]) -> None:
        made["k_new"], made["v_new"] = made["v_new"], made["k_new"]

    def query_without_rotary(made: dict[str, Any], options: dict[str, Any]) -> None:
        """Rotate Q back before the call, so that the call's rotation has no effect."""
        positions = cache_writes.positions_of(MUTATED, MUTATED.counts, made["q"].device)
        back = made | {"rotary_sin": -made["rotary_sin"]}
        made["q"] = cache_writes.turned(MUTATED, back, made["q"].flatten(0, 1), positions).view_as(made["q"]).to(
            made["q"].dtype
        )  # fmt: skip

    return {
        "appended one row too late": put("cache_seqlens", lambda made: made["cache_seqlens"] + 1),
        "appended one row too early": put("cache_seqlens", lambda made: made["cache_seqlens"] - 1),
        "new keys and values exchanged": judged(swap),
        "new keys of another sequence": put("k_new", lambda made: made["k_new"].roll(1, 0)),
        "new keys of another head": put("k_new", lambda made: made["k_new"].flip(2)),
        "new keys in another order": put("v_new", lambda made: made["v_new"].flip(1)),
        "nothing appended": judged(nothing_new),
        "a row behind the new ones written": judged(one_more),
        "the other form of rotary embedding": judged(lambda m, o: o.__setitem__("rotary_interleaved", True)),
        "turned the other way": put("rotary_sin", lambda made: -made["rotary_sin"]),
        "cosines of the position before": put("rotary_cos", lambda made: made["rotary_cos"].roll(1, 0)),
        "queries not turned": judged(query_without_rotary),
        "descales of another head": put("k_descale", lambda made: made["k_descale"].flip(1), MUTATED_FP8),
        "values not divided by their descale": put("v_descale", lambda made: made["v_descale"] * 0 + 1, MUTATED_FP8),
    }  # fmt: skip


def promises() -> dict[str, Callable[[], str]]:
    """Map promises to functions. Each tests its promise and returns how it is broken, or "" if it is kept."""
    return {
        "a CUDA graph appends at each replay": _graph,
        "what does not fit is not written": _does_not_fit,
        "the lengths of the caller stay": _lengths_stay,
    }


def _graph() -> str:
    """Capture once; replay with other lengths and other new keys."""
    import torch

    made, options = cache_calls.tensors(PROMISED)
    start = {name: tensor.clone() for name, tensor in made.items() if name not in ("k_cache", "v_cache")}
    kept = cache_writes.snapshot(made)
    cache_calls.run(made, options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = cache_calls.run(made, options)
    for lengths in ((40, 0, 15, 63), (38, 0, 14, 2), (1, 0, 0, 63)):
        case = replace(PROMISED, lengths=lengths)
        for name, flat in kept.items():
            cache_writes.bytes_of(made[name]).copy_(flat)
        for name, tensor in start.items():
            made[name].copy_(tensor)
        made["cache_seqlens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        for name in ("k_new", "v_new"):
            made[name].normal_()
        graph.replay()
        torch.cuda.synchronize()
        verdict = cache_calls.judge(case, dict(made), options, o, lse, kept)
        if not verdict.passed:
            return f"replay with lengths {lengths}: {verdict.why}"
    return ""


def _does_not_fit() -> str:
    """Append at the end of the cache, and with an invalid entry in the table. Other memory must keep its bytes."""
    import torch

    from ..kv_cache.append.call import NewTensors
    from ..kv_cache.append.launch import append
    from ..kv_cache.call import CacheTensors

    asked = ((True, -1, -1), 1.0, 0.0, False, PROMISED.counts[0], None)
    for case in (PROMISED, replace(PROMISED, page_size=0)):
        made, _ = cache_calls.tensors(case)
        capacity = case.capacity
        made["cache_seqlens"].copy_(torch.tensor([capacity - 1, capacity, capacity + 5, 3], dtype=torch.int32))
        if case.page_size:
            made["block_table"][made["block_table"] == NOWHERE] = len(made["k_cache"]) - 1
            made["block_table"][3, 0] = NOWHERE
        before = cache_writes.snapshot(made)
        page, row = (int(made["block_table"][0, -1]), case.page_size - 1) if case.page_size else (0, capacity - 1)
        given, new = ({n: made[n] for n in kind._fields if n in made} for kind in (CacheTensors, NewTensors))
        append(CacheTensors(**given), NewTensors(**new), asked, True)  # attention would read the invalid entry
        for name in ("k", "v"):
            cache = made[f"{name}_cache"]
            if name == "v" and not torch.equal(cache[page, row], made["v_new"][0, 0]):
                return f"page size {case.page_size}: the last row of the cache is not written"
            changed = int((cache_writes.bytes_of(cache) != before[f"{name}_cache"]).sum())
            rows = 1 if case.page_size else 3  # without pages the last sequence has room for both new keys
            if changed > rows * cache[page, row].numel() * cache.element_size():
                return (
                    f"page size {case.page_size}: {changed} bytes of {name}_cache have changed, more than the new rows"
                )
    return ""


def _lengths_stay() -> str:
    import torch

    made, options = cache_calls.tensors(PROMISED)
    given = made["cache_seqlens"].clone()
    cache_calls.run(made, options)
    return "" if torch.equal(given, made["cache_seqlens"]) else "cache_seqlens has changed"
