"""Write the Markdown tables of the docs from the committed results of the benchmarks.

Each function reads one file of `benchmarks/results/` and returns a table for a cog block:

    <!-- [[[cog import tables; cog.out(tables.overhead()) ]]] -->

Only the standard library is used, so that any Python can check the docs. `make cog` writes all tables again.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

Document = dict[str, Any]


def result(name: str) -> Document:
    """The committed result of the benchmark of that name."""
    document: Document = json.loads((RESULTS / f"{name}.json").read_text())
    return document


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a blank line on both sides: Markdown readers differ in what may stand right after a comment."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def percent(ratio: float, digits: int = 1) -> str:
    """1.079 as "+7.9%", and what rounds to nothing without a sign."""
    text = f"{(ratio - 1) * 100:+.{digits}f}%"
    return text[1:] if not text.strip("+-0.%") else text


def span(values: Iterable[float], form: str = ",") -> str:
    """The range of the values: "24 to 32", or "24" if all are equal as written."""
    found = list(values)
    least, most = (f"{value:{form}}" for value in (min(found), max(found)))
    return least if least == most else f"{least} to {most}"


# --- The name effect: code --------------------------------------------------------------------------

ARCHS = ("sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
SHAPES = ("straight", "loop", "nested", "softmax")


def published(version: str = "12.8.93") -> str:
    """What was published of the name effect, beside this repository's figures."""
    rows = []
    for row in result("published_table")["samples"][version]:
        claim = row["published"] or {}
        ratios = [claim.get("size"), row["size_ratio"], row["size_ratio_equal_length"], claim.get("capmerc")]
        cells = ["-" if ratio is None else f"{ratio:.2f}" for ratio in (*ratios, row["capmerc_ratio"])]
        code = "changed" if row["code_changed"] else "same"
        rows.append((row["condition"], *cells, "ptxas crashes" if row["failure"] else code))
    header = ("kernel", "size, published", "size", "size, equal length", "capmerc, published", "capmerc", "code")
    return markdown(header, rows)


def triggers() -> str:
    """Families of kernels by architecture: which shapes change, under how many of the ptxas versions."""
    samples = result("name_trigger")["samples"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for family in dict.fromkeys(key.split("/")[0] for key in samples):
        groups.setdefault(tuple(_trigger(samples, family, arch) for arch in ARCHS), []).append(family)
    return markdown(("kernels", *ARCHS), [(", ".join(names), *cells) for cells, names in groups.items()])


def _trigger(samples: Document, family: str, arch: str) -> str:
    """ "loops 9/9": all shapes with a loop change under 9 of 9 versions. "-": there is no such instruction."""
    found: dict[str, list[str]] = {}
    shapes = [shape for shape in SHAPES if f"{family}/{shape} {arch}" in samples]
    for shape in shapes:
        signs = [row[0] for row in samples[f"{family}/{shape} {arch}"].values() if row[0] != "-"]
        changed, crashed = sum(sign in "DX" for sign in signs), signs.count("X")
        share = f"{changed}/{len(signs)}" + (f", {crashed} by a crash" if crashed else "")
        if changed:
            found.setdefault(share, []).append(shape)
    if not found:
        return "none" if shapes else "-"
    loops = list(SHAPES[1:])
    return "; ".join(f"{'loops' if names == loops else ', '.join(names)} {share}" for share, names in found.items())


def trigger_matrix() -> str:
    """Kernels and architectures by ptxas version. Rows that are alike share a line."""
    document = result("name_trigger")
    versions = document["summary"]["ptxas_versions"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for key, row in document["samples"].items():
        signs = tuple(row[version][0] if version in row else "" for version in versions)
        if not set(signs) <= {"-", ""}:
            kernel, arch = key.split(" ")
            groups.setdefault((arch, *signs), []).append(kernel)
    rows = sorted(groups.items(), key=lambda item: ARCHS.index(item[0][0]))
    return markdown(("target", "kernels", *versions), [(arch, _families(k), *signs) for (arch, *signs), k in rows])


def _families(kernels: Iterable[str]) -> str:
    """`fma/loop, fma/nested, tma/loop` as `fma: loop, nested; tma: loop`."""
    shapes: dict[str, list[str]] = {}
    for kernel in kernels:
        family, shape = kernel.split("/")
        shapes.setdefault(family, []).append(shape)
    groups: dict[tuple[str, ...], list[str]] = {}
    for family, found in shapes.items():
        groups.setdefault(tuple(sorted(found, key=SHAPES.index)), []).append(family)
    return "; ".join(f"{', '.join(families)}: {', '.join(found)}" for found, families in groups.items())


def trigger_counts() -> str:
    """How many cells were compared, and what was found in them."""
    document = result("name_trigger")
    summary = document["summary"]
    changed, compared = document["by_name"]["cutlass_*"]
    rows = [
        ("cells asked for", f"{summary['cells']:,}"),
        *[(f"without an answer: {why}", f"{cells:,}") for why, cells in _without_answer(document).items()],
        ("compared (both names assemble)", f"{summary['cells_compared']:,}"),
        ("changed by the name", f"{summary['cells_changed']:,}"),
        ("of these, a crash of ptxas", f"{summary['crashes']:,}"),
        ("of these, other code", f"{summary['code_changed']:,}"),
        ("of these, `.nv.capmerc` changed too", f"{summary['capmerc_changed']:,}"),
        ("of these, the other scheduler was seen", f"{summary['other_scheduler_taken']:,}"),
        ("unsteady", f"{summary['cells_unsteady']:,}"),
        ("changed under `cutlass_*`, of the cells compared under that name", f"{changed:,} of {compared:,}"),
    ]
    return markdown(("cells", "number"), rows)


def _without_answer(document: Document) -> dict[str, int]:
    """Cells that ptxas assembles under no name, by reason: the target is too new for it, or the instruction on it."""
    names = {kernel: len(document["by_name"]) for kernel in document["kernels_of_all_names"]}
    silent: dict[tuple[str, str], list[int]] = {}
    kernels: dict[str, int] = {}
    for place, by_version in document["samples"].items():
        kernel, _, arch = place.rpartition(" ")
        kernels[arch] = kernels.get(arch, 0) + 1
        for version, values in by_version.items():
            if values[0] == "-":
                silent.setdefault((arch, version), []).append(names.get(kernel, len(document["names"])))
    old = sum(sum(cells) for (arch, _), cells in silent.items() if len(cells) == kernels[arch])
    rest = sum(map(sum, silent.values())) - old
    return {"this ptxas is older than the architecture": old, "it is older than the instruction on it": rest}


def miscompilations() -> str:
    """Each known miscompilation: targets and versions that are wrong, and where it is published."""
    document = result("miscompiles")
    wrong: dict[str, dict[str, list[str]]] = {}
    for one in document["samples"]:
        if one["example"] == "wrong":
            wrong.setdefault(one["bug"], {}).setdefault(one["target"], []).append(one["ptxas"])
    rows = []
    for bug in document["bugs"]:
        targets = wrong[bug["bug"]]
        versions = sorted({version for several in targets.values() for version in several}, key=_version)
        source = ", ".join(f"[{_cited(url)}]({url})" for url in bug["sources"]) or "this project"
        evidence = "executed" if bug["executed"] else "assembled"
        rows.append((f"`{bug['bug']}`", f"{versions[0]} to {versions[-1]}", _listed_targets(targets), source, evidence))
    return markdown(("bug", "wrong in ptxas", "targets", "published", "evidence"), rows)


def miscompiled_programs() -> str:
    """What each bug does, its example, and what to do."""
    parts = []
    for bug in result("miscompiles")["bugs"]:
        code = bug["lines"].replace("; ", ";\n")
        parts.append(f"### {bug['bug']}\n\nptxas {bug['does']}.\n\n```text\n{code}\n```\n\nRemedy: {bug['remedy']}.\n")
    return "\n".join(parts)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _listed_targets(targets: Iterable[str]) -> str:
    every = {one["target"] for one in result("miscompiles")["samples"]}
    return "all" if set(targets) == every else ", ".join(targets)


def _cited(url: str) -> str:
    owner, _, rest = url.removeprefix("https://github.com/").partition("/")
    name, _, place = rest.partition("/")
    number = place.rpartition("/")[2]
    return (
        f"{name}#{number}" if number.isdigit() else f"{name}: {number.split('-')[0]}" if number else f"{owner}/{name}"
    )


# --- The name effect: time --------------------------------------------------------------------------

README_ROWS = {  # what the README shows of name_effect.json: (kernel, ptxas)
    ("layer_norm", "Triton's"): "layer norm",
    ("attention_mma", "Triton's"): "attention, head_dim 128, mma.sync",
    ("row_sum", "Triton's"): "row sum",
    ("polynomial", "Triton's"): "FMA loop",
    ("attention_d64", "12.6.85"): "attention, head_dim 64, wgmma",
}


def name_effect(chosen: dict[tuple[str, str], str] | None = None) -> str:
    """Time with `cutlass` in the name over time without, with registers and the instructions that differ."""
    header = ["kernel", "ptxas", "time", "95% interval", "registers"]
    samples = {(_target(row["kernel"]), row["ptxas"]): row for row in result("name_effect")["samples"]}
    rows = []
    for (name, version), row in samples.items():
        low, change, high = _time(row)
        interval = f"{low} to {high}" if low else ""
        rows.append([name, version, change, interval, _registers(row), *_instructions(row)])
    if chosen is None:
        return markdown([*header, "only without", "only with"], rows)
    found = {(row[0], row[1]): row for row in rows}
    versions = {"Triton's": "12.8.93"}
    few = [[title, versions.get(key[1], key[1]), *found[key][2:5]] for key, title in chosen.items()]
    return markdown(header, few)


def mma_throughput() -> str:
    """Cells by architecture: how many change, and whether name and pragma give the same code."""
    document = result("mma_throughput")
    different = [(row["kernel"], row["arch"], row["ptxas"]) for row in document["summary"]["exceptions"]]
    found: dict[str, list[Document]] = {}
    for row in document["samples"]:
        found.setdefault(row["arch"], []).append(row)
    rows = []
    for arch, cells in sorted(found.items(), key=lambda item: (len(item[0].rstrip("af")), item[0])):
        changed = sum(row["plain"] != row["name"] for row in cells)
        unsteady = sum("draws" in row for row in cells)
        other = sum((row["kernel"], row["arch"], row["ptxas"]) in different for row in cells)
        rows.append([arch, f"{len(cells):,}", f"{changed:,}", str(len(cells) - other), str(unsteady)])
    return markdown(["architecture", "cells", "changed by the name", "same by name and by pragma", "unsteady"], rows)


def mma_throughput_in_time() -> str:
    """Time with the pragma over time without, with registers."""
    rows = []
    for row in result("mma_throughput_h200")["samples"]:
        low, change, high = _time(row)
        rows.append([_target(row["kernel"]), change, f"{low} to {high}" if low else "", _registers(row)])
    return markdown(["kernel", "time", "95% interval", "registers"], rows)


def _target(text: str) -> str:
    """ "ab_tutorial_targets:softmax" as "tutorial softmax", other targets by their function."""
    module, _, name = text.rpartition(":")
    return f"tutorial {name}" if "tutorial" in module else name


def _time(row: Document) -> tuple[str, str, str]:
    """Low, value and high of the change. A stripped row was timed the other way round."""
    if not row.get("ratio"):
        return "", row["verdict"], ""
    low, high = row["interval"]
    values = (low, row["ratio"], high)
    low, ratio, high = (1 / high, 1 / row["ratio"], 1 / low) if row.get("stripped") else values
    note = " (inconclusive)" if row["verdict"] == "inconclusive" else ""
    return percent(low), percent(ratio) + note, percent(high)


def _registers(row: Document) -> str:
    """Registers of every kernel without the trigger, then with it."""
    kernels = row.get("comparison", {}).get("kernels", {})
    sides = ("candidate", "reference") if row.get("stripped") else ("reference", "candidate")
    found = [[one for entries in kernels.get(side, {}).values() for one in entries] for side in sides]
    return " to ".join(", ".join(str(one["registers"]) for one in side) for side in found)


def _instructions(row: Document) -> tuple[str, str]:
    """Instructions that only one side has, of all its instructions, in the kernels that differ."""
    sides = _only(row.get("code", {}).values())
    return (sides[1], sides[0]) if row.get("stripped") and sides[1] else sides


def _only(texts: Iterable[str]) -> tuple[str, str]:
    pattern = r"([\d,]+) of ([\d,]+) instructions only in a, ([\d,]+) of ([\d,]+) only in b"
    found = [re.search(pattern, text) for text in texts]
    counts = [[int(count.replace(",", "")) for count in one.groups()] for one in found if one]
    if not counts:
        return ("other order or registers" if found else ""), ""
    removed, of_a, added, of_b = (f"{sum(column):,}" for column in zip(*counts, strict=True))
    return f"{removed} of {of_a}", f"{added} of {of_b}"


def name_effect_assembled(version: str = "12.8.93") -> str:
    """What the name does to the code of the bundled fp8 attention for sm_100a, which was never executed."""
    rows = []
    for row in result("name_effect_assembled")["samples"]:
        if row["ptxas"] == version and row["dtype"] == "fp8e5":
            title = f"fp8, head_dim {row['head_dim']}{', causal' if row['causal'] else ''}"
            changes = dict(re.findall(r"(?:^|; )(stack|spill stores|spill loads) (\d+ -> \d+)", row["code"]))
            cells = [changes.get(name, "").replace("->", "to") for name in ("stack", "spill stores", "spill loads")]
            rows.append((title, *_only([row["code"]]), *cells))
    header = ("attention", "only without", "only with", "stack bytes", "bytes of spill stores", "of spill loads")
    return markdown(header, rows)


# --- The attention kernels --------------------------------------------------------------------------

GLUON = {
    "mma_bf16": "mma.sync bf16",
    "hopper_bf16": "wgmma bf16",
    "hopper_fp8e4nv": "wgmma fp8",
    "sdpa_flash": "torch flash",
    "cudnn": "cuDNN",
    "fa4": "FA4",
    "flex": "Flex",
}


def gluon(name: str = "gluon_h200") -> str:
    """TFLOPS of the Gluon kernels and their peers; where calls were also timed without graphs, behind a slash."""
    samples = result(name)["samples"]
    labels = [label for label in GLUON if any(label in sample["tflops"] for sample in samples)]
    rows = [(sample["shape"], *(_speeds(sample, label) for label in labels)) for sample in samples]
    return markdown(("TFLOPS", *(GLUON[label] for label in labels)), rows)


def _speeds(sample: Document, label: str) -> str:
    speeds = [sample.get(key, {}).get(label) for key in ("tflops", "tflops_eager")]
    return " / ".join(f"{speed:.0f}" for speed in speeds if speed is not None)


def gluon_means(name: str = "gluon_h200") -> str:
    """Geometric means over all shapes of the table above."""
    summary = result(name)["summary"]
    pairs = {
        "hopper_bf16_vs_cudnn_geomean": ("hopper_bf16", "cudnn"),
        "hopper_bf16_vs_fa4_geomean": ("hopper_bf16", "fa4"),
        "hopper_bf16_vs_sdpa_flash_geomean": ("hopper_bf16", "sdpa_flash"),
        "hopper_fp8_vs_bf16_geomean": ("hopper_fp8e4nv", "hopper_bf16"),
        "mma_bf16_vs_sdpa_flash_geomean": ("mma_bf16", "sdpa_flash"),
    }
    rows = []
    for key, (a, b) in pairs.items():
        means = [summary.get(one) for one in (key, f"{key}_eager")]
        if means[0] is not None:
            rows.append((GLUON[a], GLUON[b], *("" if mean is None else f"{mean:.2f}" for mean in means)))
    return markdown(("kernel", "against", "times as fast, in graphs", "eager"), rows)


def gluon_host() -> str:
    """The host's time for a call."""
    summary = result("gluon_h200")["summary"]
    names = {
        "hopper_host_us": "wgmma bf16",
        "hopper_causal_host_us": "wgmma bf16, causal",
        "mma_host_us": "mma.sync bf16",
        "sdpa_flash_host_us": "torch flash, with `sdpa_kernel`",
    }
    return markdown(("B1 H8 S256 D64", "us"), [(title, f"{summary[name]:.0f}") for name, title in names.items()])


def gluon_fp8_accuracy(head_dim: int = 128, length: int = 4096) -> str:
    """Errors of the Hopper kernel's fp8 by kind of data, and the worst ratios of all lengths and masks."""
    rows = []
    samples = [s for s in result("gluon_h200")["fp8_accuracy"] if (s["kernel"], s["head_dim"]) == ("hopper", head_dim)]
    for kind in dict.fromkeys(sample["kind"] for sample in samples):
        mine = [sample for sample in samples if sample["kind"] == kind]
        one = next(s for s in mine if s["seqlen_k"] == length and not s["causal"])
        errors = [one[name] for name in ("rms", "measure_rms", "worst_row", "measure_worst_row")]
        worst = [max(sample[name] for sample in mine) for name in ("rms_ratio", "row_ratio")]
        rows.append((kind, *(f"{100 * error:.2f}%" for error in errors), *(f"{ratio:.2f}" for ratio in worst)))
    header = ("kind of data", "O", "measure", "worst row", "measure", "worst ratio", "of worst rows")
    return markdown(header, rows)


def gluon_names() -> str:
    """For each problem the fastest tile and scheduler of the mma.sync kernel, and what the other scheduler costs."""
    rows = []
    for sample in result("gluon_names")["samples"]:
        best = sample["best"]
        tile, name = _tile(best), ("cutlass_" if best["trigger"] else "") + best["name"]
        times = {entry: statistics.median(values) for entry, values in sample["samples_ms"].items()}
        names = {entry.rpartition(" ")[2]: time for entry, time in times.items() if entry.rpartition(" ")[0] == tile}
        others = [time for entry, time in names.items() if entry != name]
        here = times[f"{tile} {name}"]
        shown = "other" if best["trigger"] else "usual"
        tflops = f"{sample['flops'] / here / 1e9:.0f}"
        change = percent(here / others[0]) if others else ""
        rows.append((f"{sample['dtype']} {sample['shape']}", tile, shown, tflops, change))
    return markdown(("problem", "fastest", "scheduler", "TFLOPS", "against the one not taken"), rows)


def _tile(config: Document) -> str:
    """The tile of a config as the result writes it."""
    kept = " keep_q" * config["keep_q"] + " sum_by_mma" * config["sum_by_mma"]
    stages = f"warps{config['warps']} stages{config['stages']} parts{config['parts']}"
    return f"{config['block_m']}x{config['block_n']} {stages}{kept}"


def gluon_name_counts() -> str:
    """How many tiles the other scheduler makes faster or slower."""
    summary = result("gluon_names")["summary"]
    rows = [
        ("tiles timed with both schedulers", f"{summary['pairs']}"),
        ("faster with the other scheduler by more than 1%", f"{summary['cutlass_faster_by_1pct']}"),
        ("slower with the other scheduler by more than 1%", f"{summary['cutlass_slower_by_1pct']}"),
        ("its speed over that of the usual one, best", f"{summary['largest_gain']:.2f}"),
        ("its speed over that of the usual one, worst", f"{summary['largest_loss']:.2f}"),
    ]
    return markdown(("of the tuner's candidates", ""), rows)


def gluon_ab() -> str:
    """Each attention under `cutlass_`: its code, and the time where it ran."""
    measured = {(row["kernel"], row["ptxas"]): row for row in result("gluon_ab")["samples"]}
    rows = []
    for row in result("gluon_assembled")["samples"]:
        timed = measured.get((row["kernel"], row["ptxas"]), {})
        low, change, high = _time(timed) if timed.get("ratio") else ("", "", "")
        if row["arch"] != "sm_90a":
            change = "*assembled*"
        code = ("same code", "") if row["same_code"] else _only([row["code"]])
        used = " to ".join(map(str, dict.fromkeys(row["registers"])))
        interval = f"{low} to {high}" if low else ""
        rows.append((f"`{row['kernel']}`", row["arch"], row["ptxas"], *code, used, change, interval))
    header = ("target", "for", "ptxas", "only without", "only with", "registers", "time", "95% interval")
    return markdown(header, rows)


def gluon_blackwell(arch: str = "sm_100a") -> str:
    """What every ptxas makes of the Blackwell attention, as ranges over the versions."""
    document = result("gluon_blackwell")
    rows = []
    for title, versions in document["samples"][arch].items():
        plain = [dict(zip(document["columns"], cell[0], strict=True)) for cell in versions.values()]
        ratios = [cell[2][-1] / cell[0][-1] for cell in versions.values() if isinstance(cell[2], list)]
        verdicts = dict.fromkeys(cell[-1] for cell in versions.values())
        sizes = [span(side[name] for side in plain) for name in ("spill_store_bytes", "spills_in_loops", "text_bytes")]
        rows.append((title, *sizes, span(ratios, ".2f"), ", ".join(verdicts)))
    header = ("kernel, row sum", "bytes spilled", "in loops", "`.text` bytes", "capmerc ratio", "with the trigger")
    return markdown(header, rows)


def gemm_chain() -> str:
    """Microseconds per call in CUDA graphs, the larger floor over the time of the fused form, and eager times."""
    names = ("fused", "unfused", "bmm", "compiled")
    rows = []
    for row in result("gemm_chain")["rows"]:
        us, eager = ({name: statistics.median(row[how][name]) for name in names} for how in ("graph_us", "eager_us"))
        rows.append(
            (
                f"{row['m']} x {row['n']} x {row['k']}",
                f"{row['batch']:,}",
                *(f"{us[name]:.1f}" for name in names),
                f"{us['bmm'] / us['fused']:.2f}",
                f"{row['roof_us'] / us['fused']:.2f}",
                f"{eager['fused']:.0f} / {eager['bmm']:.0f}",
            )
        )
    header = ("M x N x K", "batch", "fused", "unfused", "torch.bmm", "torch.compile", "times as fast as torch.bmm")
    return markdown((*header, "of the roof", "eager: fused / torch.bmm"), rows)


def gemm_chain_errors() -> str:
    """The largest error of any row, by kind of data."""
    rows = result("gemm_chain")["rows"]
    names = ("fused", "unfused", "bmm")
    table = [
        (kind, *(f"{max(row['errors'][kind][name] for row in rows):.2e}" for name in names))
        for kind in rows[0]["errors"]
    ]
    return markdown(("data", "fused", "unfused", "torch.bmm"), table)


def gemm_chain_means() -> str:
    """Geometric means over the rows of the table above."""
    summary = result("gemm_chain")["summary"]
    names = {
        "fused_vs_bmm_geomean": "fused against torch.bmm, in graphs",
        "fused_vs_bmm_min": "the same, the worst row",
        "eager_fused_vs_bmm_geomean": "fused against torch.bmm, eager",
        "fused_vs_unfused_geomean": "fused against unfused, in graphs",
        "fused_vs_compiled_geomean": "fused against torch.compile, in graphs",
        "roof_ratio": "of the roof, all rows",
        "roof_ratio_batch_2048": "of the roof, batch 2,048",
    }
    return markdown(("", "mean"), [(text, f"{summary[name]:.2f}") for name, text in names.items()])


def sm120() -> str:
    """TFLOPS of sm120_attn and its peers on an H100."""
    document = result("sm120_bf16_h100")
    peers = {"torch": "torch flash", "fa4": "FA4, SM120 path", "cutlass_ampere": "CUTLASS Ampere example"}
    peers["frost"] = "cudnn-frontend SM120"
    rows = []
    for one in document["problems"]:
        ours = document["summary"]["planned"][_problem(one)]
        speeds = [f"{one['tflops'][name]:.0f}" for name in (ours, *document["peers"])]
        ratio = min(one["median_ms"][name] for name in document["peers"]) / one["median_ms"][ours]
        shape = [str(one[name]) for name in ("batch", "length", "head_dim")]
        rows.append((*shape, "yes" if one["causal"] else "no", *speeds, f"{ratio:.2f}"))
    header = ("B", "S", "D", "causal", "ours", *(peers[name] for name in document["peers"]), "ours over the best")
    return markdown(header, rows)


def _problem(one: Document) -> str:
    mask = "causal" if one["causal"] else "full"
    return f"B{one['batch']} S{one['length']} D{one['head_dim']} {mask}"


def sm120_decode() -> str:
    """Decode over a KV cache on an H200, in CUDA graphs: ours and the peers."""
    document = result("sm120_serving_h200")
    rows = []
    for one in document["decode"]:
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
    """The faster one of FlashInfer's kernels."""
    return min(float(time) for name, time in us.items() if name.startswith("flashinfer") and name.endswith(suffix))


def sm120_fp8_cache() -> str:
    """Decode over FP8 caches with pages of 16 on an H200, beside BF16 caches."""
    rows = []
    for one in result("sm120_serving_h200")["fp8"]:
        if one["page"] != 16:
            continue
        us, planned = one["us"], one["planned"]
        plain, fp8 = (us[f"{kind}, {planned[kind]} splits"] for kind in ("bf16", "fp8"))
        rows.append(
            (
                str(one["batch"]), f"{one['keys']:,}", str(one["group"]), f"{plain:.1f}", f"{fp8:.1f}",
                f"{plain / fp8:.2f}", f"{_flashinfer_us(us):.1f}", f"{one['error']:.1e}",
                f"{one['error_with_rounding']:.1e}",
            )
        )  # fmt: skip
    header = (
        "B", "keys", "GQA", "us, BF16", "us, FP8", "times the tokens", "us, FlashInfer, FP8", "error",
        "error with the rounding of K and V",
    )  # fmt: skip
    return markdown(header, rows)


def sm120_cache_prefill() -> str:
    """Prefill over a paged cache on an H200, beside `attention` on contiguous K and V, and the peers."""
    rows = []
    for one in result("sm120_serving_h200")["prefill"]:
        us, whole = one["us"], one["us"]["attention"]
        ratios = [f"{whole / us[f'ours, page {page}']:.2f}" for page in (16, 32, 64, 128, 256)]
        peers = [us.get("sdpa"), us.get("flashinfer, page 16"), us.get("fa4, page 64")]
        rows.append(
            (
                str(one["batch"]), f"{one['queries']:,}", f"{one['keys']:,}", f"{whole:.0f}", *ratios,
                f"{us['fp8, page 64']:.0f}", *("-" if time is None else f"{time:.0f}" for time in peers),
                f"{max(error for name, error in one['errors'].items() if not name.startswith('fp8')):.1e}",
                f"{one['errors']['fp8, page 64']:.1e}",
            )
        )  # fmt: skip
    header = (
        "B", "queries", "keys", "us, contiguous", "pages of 16", "32", "64", "128", "256", "us, FP8, pages of 64",
        "us, SDPA", "us, FlashInfer, pages of 16", "us, FA4, pages of 64", "error", "error, FP8",
    )  # fmt: skip
    return markdown(header, rows)


def sm120_graph() -> str:
    """Milliseconds of sm120_attn and two peers on an H200, in CUDA graphs and called from Python."""
    document, peers = result("sm120_graph_h200"), {"torch": "torch flash", "fa4": "FA4, SM120 path"}
    rows = []
    for one in document["problems"]:
        ms = {name: statistics.median(samples) for name, samples in one["samples_ms"].items()}
        shape = [str(one[name]) for name in ("batch", "length", "head_dim")]
        times = [f"{ms[name + form]:.3f}" for form in (", graph", "") for name in ("ours", *peers)]
        rows.append((*shape, "yes" if one["causal"] else "no", *times))
    summary = document["summary"]
    for which, title in (("", f"all {summary['rows']} rows"), ("_long", f"the {summary['rows_long']} from 0.1 ms on")):
        ratios = [
            ["", *(f"{summary[f'vs_{peer}_{form}{which}_geomean']:.2f} x" for peer in peers)]
            for form in ("graph", "eager")
        ]
        rows.append((f"mean, {title}", "", "", "", *ratios[0], *ratios[1]))
    header = (
        "B",
        "S",
        "D",
        "causal",
        *(f"{name}, {form}" for form in ("graph", "eager") for name in ("ours", *peers.values())),
    )
    return markdown(header, rows)


def sm120_means() -> str:
    """Geometric means of sm120_attn against its peers, and what a call costs the host."""
    document = result("sm120_bf16_h100")
    titles = {"best_peer": "the best peer of each row", "torch": "torch flash", "fa4": "FA4, SM120 path"}
    titles |= {"cutlass_ampere": "CUTLASS Ampere example", "frost": "cudnn-frontend SM120"}
    long = [one for one in document["problems"] if _ours_ms(one, document) >= 0.1]
    means = []
    for name, title in titles.items():
        ratios = [_peer_ms(one, name, document) / _ours_ms(one, document) for one in long]
        mean = f"{statistics.geometric_mean(ratios):.2f}"
        means.append((f"times as fast as {title}", f"{document['summary'][f'vs_{name}_geomean']:.2f}", mean))
    costs = [(f"host time of a call: {name}", f"{us:.0f} us", "") for name, us in document["host_us"].items()]
    header = (
        "geometric mean; host time",
        f"all {len(document['problems'])} rows",
        f"the {len(long)} rows from 0.1 ms on",
    )
    return markdown(header, [*means, *costs])


def _ours_ms(one: Document, document: Document) -> float:
    time: float = one["median_ms"][document["summary"]["planned"][_problem(one)]]
    return time


def _peer_ms(one: Document, name: str, document: Document) -> float:
    names = document["peers"] if name == "best_peer" else [name]
    fastest: float = min(one["median_ms"][peer] for peer in names)
    return fastest


def quantize() -> str:
    """Microseconds of sm120_attn.quantize and its peers on an H100."""
    rows = []
    for one in result("sm120_quantize_h100")["shapes"]:
        shape = [str(one[name]) for name in ("tensors", "batch", "rows", "head_dim", "dtype")]
        times = [one["floor_us"], *(one["median_us"][name] for name in ("ours", "torch.compile", "torch"))]
        rows.append((*shape, *(f"{time:.1f}" for time in times)))
    return markdown(("tensors", "B", "S", "D", "input", "floor", "ours", "torch.compile", "torch"), rows)


# --- Costs of the tool itself -----------------------------------------------------------------------

OVERHEAD = (  # figure, its name in the result, unit, factor from the result's unit
    ("a compile (GEMM, sm_90), cache miss", "compile_miss_added_ratio", "%", 100),
    ("a disk-cache hit, kernel new to the capture folder", "disk_hit_added_ms", "ms", 1),
    ("the same, captures on a shared disk", "disk_hit_on_disk_added_ms", "ms", 1),
    ("a disk-cache hit, kernel captured before", "disk_hit_repeat_added_ms", "ms", 1),
    ("a launch, capturing kernels only", "launch_added_us", "us", 1),
    ("a launch, recording launches too", "launch_recorded_added_us", "us", 1),
    ("a launch, renaming", "launch_renamed_added_us", "us", 1),
    ("`import tritonhook`", "import_ms", "ms", 1),
    ("`import tritonhook; tritonhook.enable()` beside Triton", "import_and_enable_ms", "ms", 1),
    ("renaming a PTX of 320 KB", "rename_ms", "ms", 1),
    ("diff of the attention pair", "diff_s", "s", 1),
    ("of this outside nvdisasm", "diff_own_ms", "ms", 1),
)


def overhead() -> str:
    """What tritonhook adds to a program, beside tritonparse. Of disk hits also the 10th and 90th percentile."""
    document = result("overhead")
    peer = document["peers"]["tritonparse"]["summary"]
    rows = [
        (title, *(_cost(summary, name, unit, factor) for summary in (document["summary"], peer)))
        for title, name, unit, factor in OVERHEAD
    ]
    return markdown(("added to", "tritonhook", f"tritonparse {document['environment']['tritonparse']}"), rows)


POLICY = (
    ("a compile (GEMM, sm_90) with the rename, in all", "miss_renamed_ms", "ms"),
    ("the policy, beside that", "miss_policy_beside_rename_ms", "ms"),
    ("a disk-cache hit with the policy, beside one with the rename", "hit_policy_beside_rename_ms", "ms"),
    ("a launch, renaming", "launch_renamed_added_us", "us"),
    ("a launch, with the policy", "launch_policy_added_us", "us"),
    ("finding the entry of a PTX of 320 KB", "lookup_ms", "ms"),
    ("renaming the same PTX", "rename_ms", "ms"),
)


def overhead_policy() -> str:
    """What a policy adds, beside a rename that does the same."""
    summary = result("overhead_policy")["summary"]
    rows = [(title, f"{_short(summary[name])} {unit}") for title, name, unit in POLICY]
    return markdown(("", "processor time"), rows)


def _cost(summary: Document, name: str, unit: str, factor: float) -> str:
    if name not in summary:
        return ""
    ends = ""
    if name.endswith("_added_ms"):
        low, high = (_short(summary[name.replace("_added_ms", f"_added_{end}_ms")]) for end in ("low", "high"))
        ends = f" ({low} to {high})"
    shown = "below 0.05" if unit == "us" and abs(summary[name]) < 0.05 else _short(summary[name] * factor)
    return f"{shown} {unit}{ends}"


def _short(value: float) -> str:
    """Two significant digits, and never an exponent."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


LARGE = {
    "show": "`show` of its capture",
    "capture": "capture by `run -- ptxas`",
    "capture_own": "the same, with a program that copies the cubin for ptxas",
    "rename": "`rename --prefix`",
    "diff": "`diff --entry` of two cubins",
}


def large_modules() -> str:
    """Processor time of the commands for modules with many kernels, and how it grows."""
    document = result("large_modules")
    sizes = sorted({sample["kernels"] for sample in document["samples"]})
    tools = {"ptxas": "ptxas alone", "nvdisasm": "nvdisasm alone, one kernel"}
    rows = []
    for name, title in {**LARGE, **tools}.items():
        times = [_cpu_s(document, name, size) for size in sizes]
        growth = document["exponents"].get(name)
        cells = (f"{statistics.median(found):.2f} s" if found else "-" for found in times)
        rows.append((title, *cells, "" if growth is None else f"{growth:.2f}"))
    return markdown(("kernels", *(f"{size:,}" for size in sizes), "exponent"), rows)


def _cpu_s(document: Document, of: str, size: int) -> list[float]:
    return [s["cpu_s"] for s in document["samples"] if (s["of"], s["kernels"]) == (of, size)]


def first_paint() -> str:
    """How soon a report shows in headless Chromium."""
    rows = []
    for name, page in result("reports")["summary"].items():
        times = [f"{page[key]:,.0f} ms" for key in ("first_paint_ms", "slowest_first_paint_ms", "ready_ms")]
        rows.append((name, *times, f"{page['file_bytes'] / 1e6:.2f} MB", f"{page['made_s']:.2f} s"))
    return markdown(("page", "first paint", "slowest of the rounds", "script done", "file", "made in"), rows)


def tune_simulation() -> str:
    """How often a tuning certifies a gain that is not there, and one that is."""
    samples = result("tune_simulation")["samples"]
    names = {"null": "all codes are copies of the own one", "null, forced": "the same, and a copy is always confirmed"}
    rows = []
    for name, runs in samples.items():
        tuned, wins = sum(len(run["blocks"]) for run in runs), sum(run["wins"] for run in runs)
        rows.append((names.get(name, f"one code takes {name} less time"), f"{tuned:,}", f"{wins:,}"))
    return markdown(("kernels", "tuned", "certified wins"), rows)


def calibration() -> str:
    """How often `ab` was right about code whose difference is known."""
    summary = result("ab_calibration")["summary"]
    equal, one, two = summary["aa_runs"], summary["runs_1pct"], summary["runs_2pct"]
    false = round(summary["aa_false_positive_ratio"] * equal)
    false_today = summary["aa_faster_today"] + summary["aa_slower_today"]
    rows = [
        ("equal code called a difference", f"{false} of {equal}", f"{false_today}", _at_most(false_today, equal)),
        (
            "equal code called same",
            f"{round(summary['aa_same_ratio'] * equal)} of {equal}",
            f"{summary['aa_same_today']}",
            "",
        ),
        *(
            (
                f"kernels with {share} more work called slower",
                f"{round(power * runs)} of {runs}",
                f"{found}",
                "",
            )
            for share, power, runs, found in (
                ("1%", summary["power_1pct"], one, summary["slower1_slower_today"]),
                ("2%", summary["power_2pct"], two, summary["slower2_slower_today"]),
            )
        ),
    ]
    return markdown(("calibration on an H100", "as judged then", "today's interval", "so, with 95% confidence"), rows)


def _at_most(found: int, runs: int) -> str:
    """The share that `found` of `runs` allows, with 95% confidence; written for none found."""
    return f"at most {1 - 0.05 ** (1 / runs):.1%}" if found == 0 else ""


def simulation() -> str:
    """How often `ab` is right about simulated kernels whose difference is known."""
    document = result("ab_simulation")
    rows = [
        (
            row["scenario"],
            *(f"{row['verdicts'].get(verdict, 0)}" for verdict in ("same", "faster", "slower", "inconclusive")),
            "-" if row["carries_over"] else f"{row['coverage']:.1%}",
            f"{row['processes_mean']:.1f}",
            f"{row['blocks_mean']:.0f}",
        )
        for row in document["rows"]
    ]
    header = ("scenario", "same", "faster", "slower", "inconclusive", "interval covers", "processes", "blocks")
    return markdown(header, rows)


def sweep() -> str:
    """How busy a sweep keeps the processors."""
    summary = result("sweep")["summary"]
    rows = [
        ("processor time spent in ptxas", f"{summary['cpu_efficiency']:.1%}"),
        ("a run of ptxas", f"{summary['ptxas_cpu_ms']:.1f} ms"),
        ("Python, for each run", f"{summary['python_cpu_ms']:.1f} ms"),
        ("the same sweep again, from the cache", f"{summary['cached_rerun_s']:.2f} s"),
    ]
    return markdown(("sweep of 500 small kernels", "median"), rows)


def minimised() -> str:
    """Kernels that ptxas miscompiles, made small."""
    rows = [
        (
            f"`{row['kernel']}`",
            row["bug"],
            str(row["lines_before"]),
            str(row["lines_after"]),
            f"{row['seconds']:.0f} s",
            str(row["tried"]),
        )
        for row in result("minimise_assembled")["samples"]
    ]
    return markdown(("kernel", "bug", "lines of PTX", "minimised", "time", "forms tried"), rows)


def verified() -> str:
    """What `verify` found on real kernels, on altered cubins, and on known bugs."""
    found = result("verify_h200")["summary"]
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(found["verdicts"].items()))
    same, reasons = found["seeded"]["SAME"], found["seeded_same_for_a_reason"]
    altered = f"{found['seeded']['DIFFERENT']} DIFFERENT, {same} SAME, of which {reasons} must be"
    rows = [
        ("kernels of programs", f"{found['kernels']} run, {found['skipped']} skipped: {verdicts}"),
        ("DIFFERENT or CRASH, not explained", f"{found['accusations_not_explained']} of {found['accusations']}"),
        ("time of a kernel, assembling included", f"median {found['seconds_per_kernel_median']:.2f} s"),
        ("known bugs of ptxas, run", f"{found['known_found']} of {found['known_tried']} found"),
        ("cubins with one altered instruction", altered),
        ("reproducers", f"at most {found['minimised_lines_most']} lines, {found['minimised_seconds_most']:.0f} s"),
    ]
    return markdown(("on an H200", "found"), rows)


def tuned() -> str:
    """How many kernels `tune` made faster, and by how much."""
    document = result("tune_h200")
    summary = document["summary"]
    names = {"fla": "flash-linear-attention", "liger": "Liger", "tutorials": "Triton's tutorials"}
    names |= {"transformer block": "torch.compile, a transformer block", "ours": "gluon_kernels' `mma` attention"}
    sources = [(names.get(name, name), found) for name, found in summary["by_source"].items()]
    units = {"wgmma": "with `wgmma`", "mma.sync": "with `mma.sync`", "neither": "without tensor cores"}
    groups = [(units[name], summary["by_unit"][name]) for name in units]
    whole = {"kernels": summary["kernels"], "wins": summary["wins"], "gain": summary["gain_geomean_of_wins"]}
    groups += [
        (f"{name} registers", summary["by_registers"][name]) for name in ("up to 64", "65 to 128", "129 to 254", "255")
    ]
    rows = [
        (name, str(found["kernels"]), str(found["wins"]), "" if found["gain"] is None else f"{found['gain']:.1f}%")
        for name, found in (*sources, *groups, ("all", whole))
    ]
    return markdown(("kernels", "tuned", "wins", "gain of a win, geometric mean"), rows)


def tuned_truth() -> str:
    """Whether the wins are true, and what they cost."""
    summary = result("tune_h200")["summary"]
    nulls = f"{summary['null_tunings']} on the GPU, {summary['null_tunings_simulated']:,} simulated"
    rows = [
        ("wins timed again in new processes", f"{summary['wins_again']} of {summary['wins']}"),
        ("of these faster again", f"{summary['wins_reproduced_ratio']:.0%}"),
        ("slower with the policy", str(summary["slower_when_applied"])),
        ("tunings of equal codes", nulls),
        ("wins among these", str(summary["null_wins"] + summary["null_wins_simulated"])),
        ("time on the GPU for a kernel", f"median {summary['seconds_per_kernel_median']:.1f} s"),
        ("gain over all kernels, also those that are left", f"{summary['gain_geomean_of_all']:.1f}%"),
        *((f"`{name}` as a whole", f"{gain:.2f}%") for name, gain in summary["gain_end_to_end"].items()),
    ]
    return markdown(("on an H200", "found"), rows)


def tuned_levers() -> str:
    """Which levers won."""
    kinds: dict[str, list[float]] = {}
    for row in result("tune_h200")["kernels"]:
        if row["verdict"] == "WIN":
            kinds.setdefault(_kind(row["winner"]), []).append(row["gain_percent"])
    rows = [
        (kind, str(len(gains)), f"{statistics.median(gains):.1f}%", f"{max(gains):.1f}%")
        for kind, gains in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]
    return markdown(("lever", "wins", "median gain", "largest"), rows)


def _kind(lever: str) -> str:
    """The kind of a lever that won, without its numbers."""
    if "pragma" in lever or "name" in lever:
        return "`name`, `pragma`, also with another ptxas"
    if lever.startswith("ptxas"):
        return "`ptxas=VERSION` alone"
    return {"m": "`maxnreg=N`", "O": "`O1`, `O2`"}.get(lever[0], "`regusage=N`, `regalloc=N`")
