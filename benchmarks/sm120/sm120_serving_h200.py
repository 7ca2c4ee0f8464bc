"""sm120_attn over a KV cache on an H200, compiled for sm_90a: decode and prefill, beside a copy and other kernels.

    CUTE_DSL_ARCH=sm_90a python -m benchmarks sm120_serving_h200 [--part decode] [--out FILE]
    python -m benchmarks sm120_serving_h200 --again     # without a GPU: the summary anew, from the samples

An H200 is not an RTX 50: kernels that use only what both have read its memory at this rate, and this says nothing about
the speed of an SM120. Peers: serving_peers.py. All forms of a row take turns, round by round, each as a captured graph
of several calls, which the host launches while the device is still busy; `us` is the median over the rounds,
`samples_us` has them all. Calls rotate among several caches where keys and values of one fit into the L2 cache.

Rates count the bytes of K and V once. The ratio divides them by the rate of a copy of 4 GiB in the same run, which
reads and writes. Errors are against float64 on the inputs of the row: the largest error of a row of O, divided by the
largest value of that row, over the first sequence and its first key head (prefill: its first head).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import environment, write_json
from benchmarks.sm120.serving_peers import PEERS, Launch, Missing, Problem, contiguous, ours

HEADS_KV, DIM = 8, 128
BATCHES, KEYS, GROUPS = (1, 4, 16, 64), (4096, 32768, 131072), (1, 4, 8)
PAGES = (0, 16, 64)  # 0: a contiguous cache
PREFILL_PAGES, PREFILL_GROUP = (16, 32, 64, 128, 256), 4
PREFILLS = (  # batch, queries, keys
    (1, 4096, 4096), (1, 16384, 16384), (8, 2048, 2048), (1, 2048, 32768), (4, 512, 16384), (16, 256, 4096),
)  # fmt: skip
PLACES = 264  # CTAs of the decode kernel that an H200 runs at the same time
ARCH, SMS = "sm_90a", 132
ROUNDS = 7
LAUNCH_CYCLES = 200_000  # 0.1 ms: longer than the host needs to launch a graph
# Calls of a graph, by the bytes of K and V of a call: what a graph needs to begin must not count.
SHORT_BYTES, SHORT_CALLS = 512 << 20, 16
LONG_BYTES, CALLS = 4 << 30, 4  # from LONG_BYTES on one call is long enough
APPENDS = ((1, 4096), (16, 4096), (64, 4096), (1, 32768), (16, 32768))  # batch, keys
APPEND_GROUP, APPEND_PAGES = 4, (0, 16)
L2_BYTES = 60 << 20  # of an H200; a row counts for the ratio above twice of it
POOL_BYTES = 18 << 30  # of K, and of V


NEEDS = ("gpu", "torch", "cutlass")
OFFLINE = ("--again",)
QUICK = ("--part", "append")
SMALL = {"ROUNDS": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="may be repeated; default: all")
    parser.add_argument("--again", action="store_true", help="only make the summary anew")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.again:
        return measured(arguments.part or list(PARTS), arguments.out)
    document = json.loads(arguments.out.read_text())
    return document | {"summary": summary_of(document)}


def measured(parts: list[str], out: Path) -> dict[str, Any]:
    """Run the parts; after each row the result is written."""
    import torch

    from sm120_attn.compile.build import source_hash
    from sm120_attn.kernels.decode.config import DecodeConfig
    from sm120_attn.verify import bench

    started = time.perf_counter()
    document: dict[str, Any] = {
        "what": "sm120_attn over a KV cache, compiled for sm_90a and timed on an H200 in turns with other kernels",
        "summary": {},
        "sources": source_hash(DecodeConfig),
        "device": bench.device(),
        "environment": environment("torch", "nvidia-cutlass-dsl", "flash-attn-4", "apache-tvm-ffi")
        | {"flashinfer-python": _flashinfer_version()},
        "rounds": ROUNDS,
    }
    pool = Pool(torch)
    for name in parts:
        for found in PARTS[name](pool):
            document |= found | {"seconds": time.perf_counter() - started}
            document["summary"] = summary_of(document)
            write_json(out, document)
    return document


def _flashinfer_version() -> str | None:
    try:
        import flashinfer
    except ImportError:
        return None
    return str(flashinfer.__version__)


class Pool:
    """Random K and V, of which all problems take their caches: in BF16, and the first of them in e4m3."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensors = {torch.bfloat16: self._random()}

    def _random(self) -> tuple[Any, Any]:
        k, v = (self.torch.empty(POOL_BYTES // 2, dtype=self.torch.bfloat16, device="cuda") for _ in range(2))
        for tensor in (k, v):
            for part in tensor.split(1 << 30):
                part.normal_()
        return k, v

    def fp8(self) -> Any:
        """The dtype of FP8 caches, whose values are those of the BF16 caches of the same number, rounded."""
        dtype = self.torch.float8_e4m3fn
        if dtype not in self.tensors:
            plain = self.tensors[self.torch.bfloat16]
            k, v = (self.torch.empty(len(t), dtype=dtype, device="cuda") for t in plain)
            for tensor, values in zip((k, v), plain, strict=True):
                for into, part in zip(tensor.split(1 << 30), values.split(1 << 30), strict=True):
                    into.copy_(part)
            self.tensors[dtype] = k, v
        return dtype

    def caches(self, pages: int, size: int, number: int, dtype: Any) -> tuple[Any, Any]:
        """K and V of [pages, size, HEADS_KV, DIM]; each number gives others, as long as the pool has room."""
        k, v = self.tensors[dtype]
        count = pages * size * HEADS_KV * DIM
        start = number % max(len(k) // count, 1) * count
        return tuple(t[start : start + count].view(pages, size, HEADS_KV, DIM) for t in (k, v))  # type: ignore[return-value]


def problem(
    pool: Pool, batch: int, keys: int, group: int, page: int, queries: int = 1, dtype: Any = None, q: Any = None
) -> Problem:
    """Queries over as many different caches as a graph has calls, and as the L2 cache asks for."""
    torch = pool.torch
    dtype = dtype or torch.bfloat16
    kv_bytes = 2 * batch * keys * HEADS_KV * DIM * dtype.itemsize
    calls = SHORT_CALLS if kv_bytes < SHORT_BYTES else CALLS if kv_bytes < LONG_BYTES else 1
    different = min(max(-(-3 * L2_BYTES // kv_bytes), calls), 64)
    if q is None:
        q = torch.randn(batch, queries, HEADS_KV * group, DIM, dtype=torch.bfloat16, device="cuda")
    lengths = torch.full((batch,), keys, dtype=torch.int32, device="cuda")
    size, pages, table = keys, batch, None
    if page:
        size, pages = page, batch * keys // page
        table = torch.randperm(pages, device="cuda").int().view(batch, keys // page)
    caches = tuple(pool.caches(pages, size, number, dtype) for number in range(different))
    return Problem(q, caches, lengths, table, keys, page)


# --- timing ------------------------------------------------------------------------------------------------------


def in_turns(torch: Any, forms: dict[str, list[Launch]]) -> dict[str, list[float]]:
    """Microseconds of a call of each form, one sample per round. Each is a graph of all its launches."""
    graphs = {name: captured(torch, launches) for name, launches in forms.items()}
    names = list(graphs)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned if number % 2 else turned[::-1]:
            samples[name].append(elapsed_us(torch, graphs[name].replay, LAUNCH_CYCLES) / len(forms[name]))
    return samples


def captured(torch: Any, launches: list[Launch]) -> Any:
    launches[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    return graph


def eager_us(torch: Any, launches: list[Launch], rounds: int = ROUNDS) -> float:
    """Microseconds of a call when Python calls one after another: the median of the rounds."""

    def all_calls() -> None:
        for launch in launches:
            launch()

    return statistics.median(elapsed_us(torch, all_calls) / len(launches) for _ in range(rounds))


def elapsed_us(torch: Any, work: Callable[[], Any], behind: int = 0) -> float:
    """Microseconds of the device. behind: cycles for which it is busy first, while the host launches the work."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if behind:
        torch.cuda._sleep(behind)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(1000 * begin.elapsed_time(end))


def with_peers(
    forms: dict[str, list[Launch]], made: Problem, suffix: str, names: tuple[str, ...], missing: dict[str, str]
) -> None:
    """Add the peers that can do this problem to `forms`, and why the others cannot to `missing`."""
    for name in names:
        try:
            launches = PEERS[name](made)
            launches[0]()
            made.q.new_zeros(1).item()  # waits: an error of the peer shows here
        except Missing as error:
            missing[name + suffix] = str(error)
        except Exception as error:  # of other software: then it is no peer
            missing[name + suffix] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        else:
            forms[name + suffix] = launches


def timed_row(torch: Any, forms: dict[str, list[Launch]], missing: dict[str, str]) -> dict[str, Any]:
    samples = in_turns(torch, forms)
    return {"us": {n: statistics.median(s) for n, s in samples.items()}, "samples_us": samples, "missing": missing}


def error_of(made: Problem, found: Any, exact: Problem | None = None) -> float:
    """The largest relative error of `found`, against float64 on the values of `exact` (or of the problem itself)."""
    from sm120_attn.verify.cache_calls import reference

    exact = exact or made
    heads = made.q.shape[2] // HEADS_KV if made.queries == 1 else 1
    k, v = (t[:, :, :1] for t in exact.caches[0])
    first = {name: t[:1] for name, t in exact.arguments.items()}
    wanted, _ = reference(
        {"q": made.q[:1, :, :heads], "k_cache": k, "v_cache": v, **first},
        {"causal": True, "window": None, "softcap": 0.0},
    )
    off = (found[:1, :, :heads].double() - wanted).abs().amax(-1)
    return float((off / wanted.abs().amax(-1)).max())


def shown(what: str, row: dict[str, Any]) -> None:
    print(what, " ".join(f"{name}: {us:.1f}" for name, us in row["us"].items()), flush=True)


# --- parts -------------------------------------------------------------------------------------------------------


def grown(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows so far, after each one."""
    found: list[dict[str, Any]] = []
    for row in rows:
        found.append(row)
        yield found


def copy_part(pool: Pool) -> Iterator[dict[str, Any]]:
    """The rate of a copy, reads and writes together."""
    k, v = pool.tensors[pool.torch.bfloat16]
    source, target = k[: 1 << 31], v[-(1 << 31) :]
    us = [elapsed_us(pool.torch, lambda: target.copy_(source)) for _ in range(10)]
    target.normal_()
    yield {"copy_gb_per_s": 2 * source.nbytes / statistics.median(us) / 1000, "copy_us": us}


def decode_part(pool: Pool) -> Iterator[dict[str, Any]]:
    for rows in grown(decode_row(pool, *shape) for shape in itertools.product(BATCHES, KEYS, GROUPS)):
        yield {"decode": rows}


def decode_row(pool: Pool, batch: int, keys: int, group: int) -> dict[str, Any]:
    """One query of each sequence: ours with all sizes of pages and several numbers of splits, and the peers."""
    problems = {page: problem(pool, batch, keys, group, page) for page in PAGES}
    numbers = candidates(batch, keys, group)
    forms = {ours_name(page, n): ours(made, num_splits=n) for page, made in problems.items() for n in numbers}
    missing: dict[str, str] = {}
    with_peers(forms, problems[0], "", ("sdpa",), missing)
    for page in PAGES[1:]:
        with_peers(forms, problems[page], f", page {page}", ("flashinfer", "flashinfer, no tensor cores"), missing)
    with_peers(forms, problems[64], ", page 64", ("fa4",), missing)
    kv_bytes = 2 * batch * keys * HEADS_KV * DIM * 2
    called = {"ours": ours(problems[0]), "sdpa": forms.get("sdpa", [])}
    row = {
        "batch": batch, "keys": keys, "group": group, "kv_bytes": kv_bytes, "beyond_l2": kv_bytes > 2 * L2_BYTES,
        "errors": {str(page): error_of(made, ours(made)[0]()) for page, made in problems.items()},
        "eager_us": {name: eager_us(pool.torch, launches) for name, launches in called.items() if launches},
    } | timed_row(pool.torch, forms, missing)  # fmt: skip
    shown(f"decode B{batch} {keys} keys GQA {group} planned {planned_splits(batch, keys, group)}", row)
    return row


def ours_name(page: int, splits: int) -> str:
    return f"ours, page {page}, {splits} splits"


def planned_splits(batch: int, keys: int, group: int, kv_dtype: str = "") -> int:
    """CTAs over which the planner splits the keys now."""
    from sm120_attn.kv_cache.planner import CacheShape, plan_cache

    shape = CacheShape(
        arch=ARCH, dtype="bf16", head_dim=DIM, batch=batch, heads=HEADS_KV * group, heads_kv=HEADS_KV, seqlen_q=1,
        capacity=keys, sms=SMS, kv_dtype=kv_dtype,
    )  # fmt: skip
    return plan_cache(shape).num_splits


def candidates(batch: int, keys: int, group: int, kv_dtype: str = "") -> list[int]:
    """Numbers of splits to time: the planned one, and those that fill the GPU once, twice, four and eight times."""
    filling = (max(times * PLACES // (batch * HEADS_KV), 1) for times in (1, 2, 4, 8))
    return sorted({planned_splits(batch, keys, group, kv_dtype), *(n for n in filling if n <= min(keys // 128, 128))})


def fp8_part(pool: Pool) -> Iterator[dict[str, Any]]:
    for rows in grown(fp8_row(pool, *shape) for shape in itertools.product(BATCHES, KEYS[1:], GROUPS, (0, 16))):
        yield {"fp8": rows}


def fp8_row(pool: Pool, batch: int, keys: int, group: int, page: int) -> dict[str, Any]:
    """A cache in e4m3 beside the same one in BF16. Errors: of the kernel, and with the rounding of the cache."""
    plain = problem(pool, batch, keys, group, page)
    made = replace(problem(pool, batch, keys, group, page, dtype=pool.fp8(), q=plain.q), table=plain.table)
    numbers = {"bf16": candidates(batch, keys, group), "fp8": candidates(batch, keys, group, "e4m3")}
    problems = {"bf16": plain, "fp8": made}
    forms = {f"{kind}, {n} splits": ours(problems[kind], num_splits=n) for kind in problems for n in numbers[kind]}
    missing: dict[str, str] = {}
    with_peers(forms, made, "", ("flashinfer", "flashinfer, no tensor cores"), missing)
    found = ours(made)[0]()
    row = {
        "batch": batch, "keys": keys, "group": group, "page": page, "kv_bytes": 2 * batch * keys * HEADS_KV * DIM,
        "error": error_of(made, found), "error_with_rounding": error_of(made, found, plain),
    } | timed_row(pool.torch, forms, missing)  # fmt: skip
    shown(f"fp8 B{batch} {keys} keys GQA {group} page {page}", row)
    return row


def append_part(pool: Pool) -> Iterator[dict[str, Any]]:
    for rows in grown(append_row(pool, *shape, page) for shape in APPENDS for page in APPEND_PAGES):
        yield {"append": rows}


def append_row(pool: Pool, batch: int, keys: int, page: int) -> dict[str, Any]:
    """A decode step that appends one key, beside decode alone, and beside decode after torch has written the key.

    torch's write: `index_put` of K and of V, to rows that are known before. Angles: rotary embedding of all columns.
    """
    torch = pool.torch
    made = problem(pool, batch, keys, APPEND_GROUP, page)
    before = replace(made, lengths=made.lengths - 1)
    new = [torch.randn(batch, 1, HEADS_KV, DIM, dtype=made.q.dtype, device="cuda") for _ in range(2)]
    angles = torch.rand(keys, DIM // 2, device="cuda") * 6.3
    given = {"k_new": new[0], "v_new": new[1]}
    turned = given | {"rotary_cos": angles.cos().to(made.q.dtype), "rotary_sin": angles.sin().to(made.q.dtype)}
    numbers = torch.arange(batch, device="cuda")
    where = (numbers if made.table is None else made.table[:, -1].long(), (before.lengths.long() % (page or keys)))

    def written(attend: Launch, cache: tuple[Any, Any]) -> Launch:
        def launch() -> Any:
            for tensor, rows in zip(cache, new, strict=True):
                tensor[where] = rows[:, 0]
            return attend()

        return launch

    forms = {
        "decode": ours(made),
        "append": ours(before, **given),
        "append, rotary": ours(before, **turned),
        "torch writes": [written(a, cache) for a, cache in zip(ours(made), made.caches, strict=True)],
    }
    equal = bool(torch.equal(forms["append"][0](), forms["torch writes"][0]()))
    eager = {name: eager_us(torch, launches) for name, launches in forms.items()}
    row = {"batch": batch, "keys": keys, "group": APPEND_GROUP, "page": page, "equal": equal, "eager_us": eager}
    row |= timed_row(torch, forms, {})
    shown(f"append B{batch} {keys} keys page {page}", row)
    return row


def prefill_part(pool: Pool) -> Iterator[dict[str, Any]]:
    for rows in grown(prefill_row(pool, *shape) for shape in PREFILLS):
        yield {"prefill": rows}


def prefill_row(pool: Pool, batch: int, queries: int, keys: int) -> dict[str, Any]:
    """Queries at the end of their keys: `attention` on contiguous K and V, ours on pages, and the peers."""
    plain = problem(pool, batch, keys, PREFILL_GROUP, 0, queries)
    problems = {page: problem(pool, batch, keys, PREFILL_GROUP, page, queries, q=plain.q) for page in PREFILL_PAGES}
    forms = {"attention": contiguous(plain), "ours, page 0": ours(plain)}
    forms |= {f"ours, page {page}": ours(made) for page, made in problems.items()}
    fp8 = problem(pool, batch, keys, PREFILL_GROUP, 64, queries, dtype=pool.fp8(), q=plain.q)
    forms["fp8, page 64"] = ours(fp8)
    missing: dict[str, str] = {}
    with_peers(forms, plain, "", ("sdpa",), missing)
    with_peers(forms, problems[16], ", page 16", ("flashinfer",), missing)
    with_peers(forms, problems[64], ", page 64", ("flashinfer", "fa4"), missing)
    row = {
        "batch": batch, "queries": queries, "keys": keys, "group": PREFILL_GROUP,
        "errors": {name: error_of(plain, forms[name][0]()) for name in ("attention", "ours, page 0")}
        | {f"ours, page {page}": error_of(made, forms[f"ours, page {page}"][0]()) for page, made in problems.items()}
        | {"fp8, page 64": error_of(fp8, forms["fp8, page 64"][0]())},
    } | timed_row(pool.torch, forms, missing)  # fmt: skip
    shown(f"prefill B{batch} {queries} queries {keys} keys", row)
    return row


PARTS: dict[str, Callable[[Pool], Iterator[dict[str, Any]]]] = {
    "copy": copy_part,
    "append": append_part,
    "prefill": prefill_part,
    "fp8": fp8_part,
    "decode": decode_part,
}


# --- summary -----------------------------------------------------------------------------------------------------


def summary_of(document: dict[str, Any]) -> dict[str, Any]:
    """The figures, from the samples, for what the planner picks now. A ratio above 1 means: ours is faster."""
    for row in (*document.get("decode", ()), *document.get("fp8", ())):
        names = {"bf16": "", "fp8": "e4m3"} if "page" in row else {f"ours, page {page}": "" for page in PAGES}
        sizes = row["batch"], row["keys"], row["group"]
        row["planned"] = {name: planned_splits(*sizes, kv_dtype) for name, kv_dtype in names.items()}
    found: dict[str, Any] = {}
    if "decode" in document:
        found |= _decode_summary(document["decode"], document.get("copy_gb_per_s"))
    if "append" in document:
        found |= _append_summary(document["append"])
    if "fp8" in document:
        found |= _fp8_summary(document["fp8"])
    if "prefill" in document:
        found |= _prefill_summary(document["prefill"])
    return found


def medians(row: dict[str, Any]) -> dict[str, float]:
    """Microseconds of each form. Ours with the planned splits has a name without splits, too."""
    us = {name: statistics.median(samples) for name, samples in row["samples_us"].items()}
    for name, splits in row.get("planned", {}).items():
        if f"{name}, {splits} splits" not in us:
            raise SystemExit(f"{name} of {row['batch']} x {row['keys']} keys: {splits} splits were not timed")
        us[name] = us[f"{name}, {splits} splits"]
    return us


def _decode_summary(rows: list[dict[str, Any]], copy: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    times = [(row, medians(row)) for row in rows]
    for name, pages in (("", PAGES), ("_contiguous", (0,)), ("_page16", (16,)), ("_page64", (64,))):
        rates = [r["kv_bytes"] / us[f"ours, page {p}"] / 1000 for r, us in times for p in pages if r["beyond_l2"]]
        if rates and copy:
            found[f"decode_bandwidth_ratio{name}_geomean"] = statistics.geometric_mean(rate / copy for rate in rates)
    best = [best_peer(us, page) / us[f"ours, page {page}"] for _, us in times for page in PAGES]
    found["decode_vs_best_peer_geomean"] = statistics.geometric_mean(best)
    found["decode_vs_best_peer_min"] = min(best)
    found["decode_vs_best_peer_rows"] = len(best)
    found["decode_slower_than_best_peer_rows"] = sum(ratio < 1 for ratio in best)
    paged = [best_peer(us, p, paged=True) / us[f"ours, page {p}"] for _, us in times for p in PAGES[1:]]
    paged = [ratio for ratio in paged if ratio != float("inf")]
    if paged:
        found["decode_vs_best_paged_peer_geomean"] = statistics.geometric_mean(paged)
    sdpa = [us["sdpa"] / us["ours, page 0"] for _, us in times if "sdpa" in us]
    found["decode_vs_sdpa_geomean"] = statistics.geometric_mean(sdpa)
    found["decode_worst_error"] = max(error for row in rows for error in row["errors"].values())
    return found


def best_peer(us: dict[str, float], page: int, paged: bool = False) -> float:
    """Microseconds of the fastest peer of ours with pages of this size.

    SDPA on K and V that are gathered already counts for all sizes of pages, unless only paged peers are asked for.
    """
    mine = [t for name, t in us.items() if page and name.endswith(f", page {page}") and not name.startswith("ours")]
    return min([*mine, *([] if paged or "sdpa" not in us else [us["sdpa"]])], default=float("inf"))


def _fp8_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ratios = [us["bf16"] / us["fp8"] for us in map(medians, rows)]
    found["fp8_kv_tokens_ratio_geomean"] = statistics.geometric_mean(ratios)
    found["fp8_kv_tokens_ratio_min"] = min(ratios)
    found["fp8_kv_worst_error"] = max(row["error"] for row in rows)
    found["fp8_kv_worst_error_with_rounding"] = max(row["error_with_rounding"] for row in rows)
    peers = [
        min(t for n, t in us.items() if n.startswith("flashinfer")) / us["fp8"]
        for us in map(medians, rows)
        if any(n.startswith("flashinfer") for n in us)
    ]
    if peers:
        found["fp8_kv_vs_flashinfer_geomean"] = statistics.geometric_mean(peers)
    return found


def _append_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    times = [medians(row) for row in rows]
    return {
        "append_vs_torch_write_geomean": statistics.geometric_mean(us["torch writes"] / us["append"] for us in times),
        "append_us": statistics.median(us["append"] - us["decode"] for us in times),
        "append_rotary_us": statistics.median(us["append, rotary"] - us["decode"] for us in times),
        "append_equals_torch_write": all(row["equal"] for row in rows),
    }


def _prefill_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    times = [medians(row) for row in rows]
    for name, pages in (("", (64, 128, 256)), ("_small_pages", (16, 32))):
        ratios = [us["attention"] / us[f"ours, page {page}"] for us in times for page in pages]
        found[f"paged_prefill_vs_contiguous{name}_geomean"] = statistics.geometric_mean(ratios)
        found[f"paged_prefill_vs_contiguous{name}_min"] = min(ratios)
    fp8 = [us["ours, page 64"] / us["fp8, page 64"] for us in times]
    found["fp8_prefill_vs_bf16_geomean"] = statistics.geometric_mean(fp8)
    found["prefill_worst_error"] = max(error for row in rows for error in row["errors"].values())
    return found
