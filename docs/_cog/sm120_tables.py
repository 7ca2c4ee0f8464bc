"""Write the tables about sm120_attn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from results import Columns, Document, markdown, result, table

PEERS = {"torch": "torch flash", "fa4": "FA4, SM120 path", "frost": "cudnn-frontend SM120"}


def sm120(**where: int | tuple[int, ...]) -> str:
    """Write TFLOPS of sm120_attn and its peers on an H100, captured / eager. where: field values that select rows."""
    rows = []
    for one in _where(result("sm120_graph_h100")["problems"], where):
        operations = 4 * one["batch"] * one["heads"] * one["length"] ** 2 * one["head_dim"] / (1 + one["causal"])
        ms = {name: statistics.median(samples) for name, samples in one["samples_ms"].items()}
        speeds = [
            " / ".join(f"{operations / ms[name + form] / 1e9:.0f}" for form in (", graph", ""))
            for name in ("ours", *PEERS)
        ]
        ratios = (min(ms[name + form] for name in PEERS) / ms["ours" + form] for form in (", graph", ""))
        shape = [str(one[name]) for name in ("batch", "length", "head_dim")]
        rows.append((*shape, "yes" if one["causal"] else "no", *speeds, " / ".join(f"{one:.2f}" for one in ratios)))
    return markdown(("B", "S", "D", "causal", "ours", *PEERS.values(), "ours over the best"), rows)


def sm120_decode(**where: int | tuple[int, ...]) -> str:
    """Write times of decode over a KV cache on an H200, ours and the peers'. where: field values that select rows."""
    document = result("sm120_serving_h200")
    rows = []
    for one in _where(document["decode"], where):
        us = one["us"]
        ours = {page: us[f"ours, page {page}, {one['planned'][f'ours, page {page}']} splits"] for page in (0, 16, 64)}
        peers = [us["sdpa"], _flashinfer_us(us, ", page 16"), us["fa4, page 64"]]
        rate = one["kv_bytes"] / ours[16] / 1000 / document["copy_gb_per_s"]
        rows.append(
            (
                str(one["batch"]), f"{one['keys']:,}", str(one["group"]), str(one["planned"]["ours, page 0"]),
                *(f"{time:.1f}" for time in (*ours.values(), *peers)), f"{min(peers[:2]) / ours[16]:.2f}",
                f"{rate:.2f}" if one["beyond_l2"] else "in L2", f"{max(one['errors'].values()):.1e}",
            )
        )  # fmt: skip
    header = (
        "B", "keys", "GQA", "splits", "us, contiguous", "us, pages of 16", "us, pages of 64", "us, SDPA, gathered",
        "us, FlashInfer, pages of 16", "us, FA4, pages of 64", "pages of 16 over the best", "of a copy", "error",
    )  # fmt: skip
    return markdown(header, rows)


def _flashinfer_us(us: Document, suffix: str = "") -> float:
    """Return the time of FlashInfer's faster kernel."""
    return min(float(time) for name, time in us.items() if name.startswith("flashinfer") and name.endswith(suffix))


def _where(rows: list[Document], fields: Mapping[str, int | tuple[int, ...]]) -> list[Document]:
    wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in fields.items()}
    return [row for row in rows if all(row[name] in values for name, values in wanted.items())]


def sm120_kv_formats(*kinds: str) -> str:
    """Write errors of attention over KV caches of four formats, by kind of data: rms of O, and the worst row."""
    document = result("sm120_kv_formats_error")
    names = [name for name in document["rows"][0] if name not in ("kind", "bf16")]
    rows = []
    for row in document["rows"]:
        if row["kind"] not in kinds:
            continue
        errors = [row[name]["format"] for name in names]
        rows.append((row["kind"], *(f"{e['rms']:.1e} / {e['worst']:.1e}" for e in errors)))
    return markdown(
        ("data", *({"e4m3": "FP8"}.get(n, n.replace("nvfp4", "NVFP4").replace("mxfp8", "MXFP8")) for n in names)), rows
    )


def sm120_kv_speed(**where: int | tuple[int, ...]) -> str:
    """Write times of decode over KV caches of four formats on an H200, captured / eager."""
    kinds = {"bf16": "BF16", "e4m3": "FP8", "mxfp8": "MXFP8", "nvfp4": "NVFP4"}

    def times(kind: str) -> Callable[[Document], str]:
        return lambda row: f"{_us(row['us'][kind])} / {_us(row['eager_us'][kind])}"

    columns: Columns = {
        **{"batch": "{batch}", "keys": "{keys:,}", "GQA": "{group}", "page": "{page}"},
        **{title: times(kind) for kind, title in kinds.items()},
        "BF16 / NVFP4": lambda row: f"{row['us']['bf16'] / row['us']['nvfp4']:.2f}",
        "FP8 / NVFP4": lambda row: f"{row['us']['e4m3'] / row['us']['nvfp4']:.2f}",
    }
    return table(_where(result("sm120_kv_formats_h200")["rows"], where), columns)


def _us(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def sm120_kv_means() -> str:
    """State the mean speeds of the four formats over all rows, and the kernels' own errors."""
    nhd, hnd = (result(f"sm120_kv_formats_{name}")["summary"] for name in ("h200", "hnd_h200"))
    own = max(one["own_worst"] for one in result("sm120_kv_formats_error")["summary"]["worst"].values())
    return (
        f"\nOver all rows, NVFP4 reaches {nhd['nvfp4_tokens_over_bf16_geomean']:.2f} times the tokens per second of "
        f"BF16 and {nhd['nvfp4_tokens_over_e4m3_geomean']:.2f} times those of FP8 (worst row\n"
        f"{nhd['nvfp4_tokens_over_e4m3_min']:.2f}); with eager calls "
        f"{nhd['nvfp4_tokens_over_bf16_eager_geomean']:.2f} and {nhd['nvfp4_tokens_over_e4m3_eager_geomean']:.2f} "
        f"times; in HND pages {hnd['nvfp4_tokens_over_bf16_geomean']:.2f} and "
        f"{hnd['nvfp4_tokens_over_e4m3_geomean']:.2f} times (worst row {hnd['nvfp4_tokens_over_e4m3_min']:.2f}).\n"
        f"It reads at {nhd['nvfp4_of_a_copy_geomean']:.2f} of a copy's rate (HND "
        f"{hnd['nvfp4_of_a_copy_geomean']:.2f}), FP8 at {nhd['e4m3_of_a_copy_geomean']:.2f}, MXFP8 at "
        f"{nhd['mxfp8_of_a_copy_geomean']:.2f}. The kernels add at most {own:.1e}\nof a row's largest value to the "
        "errors above, on the twelve kinds of data.\n\n"
    )


def sm120_serving_sum() -> str:
    """State how decode compares with its peers, and FP8 caches with BF16 ones."""
    s = result("sm120_serving_h200")["summary"]
    return (
        f"\nDecode is slower than its best peer in {s['decode_slower_than_best_peer_rows']} of "
        f"{s['decode_vs_best_peer_rows']} rows, by up to {1 - s['decode_vs_best_peer_min']:.0%}. FP8 caches give "
        f"{s['fp8_kv_tokens_ratio_geomean']:.2f} times\nthe tokens per second of BF16 "
        f"({s['fp8_kv_tokens_ratio_min']:.2f} in the worst row).\n\n"
    )


def sm120_graph_means() -> str:
    """Write geometric means of speed ratios over all rows and over the long ones, captured and eager."""
    summary = result("sm120_graph_h100")["summary"]

    def means(name: str) -> list[str]:
        keys = [f"vs_{name}_{form}{rows}_geomean" for rows in ("", "_long") for form in ("graph", "eager")]
        return [f"{summary[key]:.2f}" if key in summary else "" for key in keys]

    least = [f"{summary[f'vs_best_peer_{form}_min']:.2f}" for form in ("graph", "eager")]
    rows = [
        ("the best peer of each row", *means("best_peer")),
        ("the best peer, worst row", *least, "", ""),
        *((title, *means(name)) for name, title in PEERS.items()),
    ]
    every, long = (f"{summary[name]} rows" for name in ("rows", "rows_long"))
    header = (f"all {every}, in graphs", "eager", f"the {long} from 0.1 ms on, in graphs", "eager")
    return markdown(("times as fast as", *header), rows)
