"""gluon_kernels on an H100 beside torch's flash attention, cuDNN, FlexAttention and FlashAttention-4, in one run.

    python benchmarks/gluon_h100.py [--subjects mma_bf16,...] [--out FILE]     # on the GPU
    python benchmarks/gluon_h100.py --tables        # those of README.md and docs/gluon.md, from the committed results

Every launch is captured into a CUDA graph and timed in random order in the same rounds; compiling is over before,
and a launch whose output disagrees with PyTorch's is absent. Raw samples are kept.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path
from typing import Any

from _common import REPOSITORY, RESULTS, environment, write_json
from gluon_names import key
from name_effect import code_cells

from gluon_kernels.mma.config import BASE_NAME, NAMES, MmaConfig, default_config
from gluon_kernels.verify.bench import Row, Shape, bench, geomean, table

RESULT = RESULTS / "gluon_h100.json"
NAMES_RESULT = RESULTS / "gluon_names.json"
ASSEMBLED_RESULT = RESULTS / "gluon_assembled.json"
AB_RESULT = RESULTS / "gluon_ab.json"  # by name_effect.py: see gluon_assembled.py
TEXTS = (REPOSITORY / "README.md", REPOSITORY / "docs" / "gluon.md")

# The first four have FlexAttention, which compiles for each shape.
SHAPES = [Shape(4, 16, 4096, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(1, 16, 16384, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(16, 16, 1024, d, c) for d in (128, 64) for c in (False, True)]
SHAPES += [Shape(2, 32, 4096, 128, c, num_heads_kv=8) for c in (False, True)]  # grouped queries
SHAPES += [Shape(8, 16, 2048, 128, c) for c in (False, True)]
SHAPES += [Shape(4, 8, 4096, 256, c) for c in (False, True)]
SHAPES += [Shape(2, 16, 2000, 128, c) for c in (False, True)]  # the last tile is partial
SHAPES += [Shape(4, 16, 512, 128, seqlen_k=8192), Shape(1, 16, 1024, 128)]

SUMMARY = {
    "hopper_bf16_vs_cudnn_geomean": ("hopper_bf16", "cudnn"),
    "hopper_bf16_vs_fa4_geomean": ("hopper_bf16", "fa4"),
    "hopper_bf16_vs_sdpa_flash_geomean": ("hopper_bf16", "sdpa_flash"),
    "hopper_fp8_vs_bf16_geomean": ("hopper_fp8e4nv", "hopper_bf16"),
    "mma_bf16_vs_sdpa_flash_geomean": ("mma_bf16", "sdpa_flash"),
}
COLUMNS = ("mma_bf16", "hopper_bf16", "hopper_fp8e4nv", "sdpa_flash", "cudnn", "fa4", "flex")
TITLES = ("mma.sync bf16", "wgmma bf16", "wgmma fp8", "torch flash", "cuDNN", "FA4", "Flex")


def document(rows: list[Row]) -> dict[str, Any]:
    import torch

    return {
        "format": 1,
        "environment": environment("torch", "triton", "flash-attn-4", "nvidia-cudnn-cu13", "nvidia-cutlass-dsl")
        | {"gpu": torch.cuda.get_device_name()},
        "samples": [as_sample(row) for row in rows],
        "summary": {name: geomean(row.ratio(*pair) for row in rows) for name, pair in SUMMARY.items()}
        | {"shapes": len(rows)},
    }


def as_sample(row: Row) -> dict[str, Any]:
    return {
        "shape": row.shape.label,
        "flops": row.shape.flops,
        "tflops": {label: row.tflops(label) for label in row.times},
        "names": {label: entry(label, row.shape) for label in row.times if entry(label, row.shape)},
        "absent": row.absent,
        "graph": {label: timed.graph for label, timed in row.times.items()},
        "samples_ms": {label: list(timed.samples_ms) for label, timed in row.times.items()},
    }


def entry(label: str, shape: Shape) -> str | None:
    """The entry that the mma.sync kernel ran under: its default is the name that was measured to be faster."""
    kernel, _, dtype = label.partition("_")
    if kernel != "mma":
        return None
    causal = "top-left" if shape.causal else None
    return default_config(90, dtype, shape.head_dim, causal, shape.seqlen_q).name


def markdown(document: dict[str, Any], rows: int | None = None) -> str:
    """TFLOPS of the first `rows` shapes, then the geometric means over all."""
    lines = ["| TFLOPS | " + " | ".join(TITLES) + " |", "|---|" + "---|" * len(TITLES)]
    for sample in document["samples"][:rows]:
        cells = [sample["tflops"].get(label) for label in COLUMNS]
        lines.append(f"| {sample['shape']} | " + " | ".join("" if c is None else f"{c:.0f}" for c in cells) + " |")
    lines.append("")
    titles = dict(zip(COLUMNS, TITLES, strict=True))
    for name, (subject, baseline) in SUMMARY.items():
        ratio = document["summary"][name]
        if ratio is not None:
            lines.append(f"* {titles[subject]} against {titles[baseline]}: {ratio:.2f} times as fast (geometric mean)")
    return "\n".join(lines)


def names_markdown(document: dict[str, Any]) -> str:
    """For each problem the fastest tile and name, and what the other name would cost."""
    lines = [
        "| problem | fastest | name | TFLOPS | other name |",
        "|---|---|---|---|---|",
    ]
    for sample in document["samples"]:
        best = MmaConfig(**sample["best"])
        times = {name: statistics.median(values) for name, values in sample["samples_ms"].items()}
        here = times[f"{key(best)} {best.name}"]
        (other,) = (times.get(f"{key(best)} {name}") for name in NAMES if name != best.name)
        change = "" if other is None else f"{(here / other - 1) * 100:+.1f}%"
        name = "plain" if best.name == BASE_NAME else "`cutlass_`"
        tflops = sample["flops"] / here / 1e9
        lines.append(f"| {sample['dtype']} {sample['shape']} | {key(best)} | {name} | {tflops:.0f} | {change} |")
    summary = document["summary"]
    lines += [
        "",
        f"Of {summary['pairs']} tiles timed under both names, {summary['cutlass_faster_by_1pct']} were faster by more "
        f"than 1% under `cutlass_` and {summary['cutlass_slower_by_1pct']} slower: at best "
        f"{summary['largest_gain']:.2f}, at worst {summary['largest_loss']:.2f} times as fast.",
    ]
    return "\n".join(lines)


def ab_markdown(assembled: dict[str, Any], measured: dict[str, Any]) -> str:
    """Each attention under `cutlass_`: its code, assembled, and what `tritonhook ab` said of the time, where it ran."""
    lines = [
        "| target | for | ptxas | only without the word | only with it | registers | time | 95% interval |",
        f"|{'---|' * 8}",
    ]
    said = {(row["kernel"], row["ptxas"]): row for row in measured["samples"]}
    for row in assembled["samples"]:
        timed = said.get((row["kernel"], row["ptxas"]), {})
        change = interval = ""
        if timed.get("ratio"):
            change = f"{(timed['ratio'] - 1) * 100:+.1f}%" + " (inconclusive)" * (timed["verdict"] == "inconclusive")
            interval = " to ".join(f"{(x - 1) * 100:+.1f}%" for x in timed["interval"])
        elif row["arch"] != "sm_90a":
            change = "*assembled*"
        code = ("same code", "") if row["same_code"] else code_cells({"code": {"": row["code"]}})
        used = " to ".join(map(str, dict.fromkeys(row["registers"])))
        cells = (f"`{row['kernel']}`", row["arch"], row["ptxas"], *code, used, change, interval)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_tables(text: str, tables: dict[str, str]) -> str:
    """`text` with each table between its marks; marks that `text` lacks are left alone."""
    for name, new in tables.items():
        begin, end = f"<!-- {name}: made by benchmarks/gluon_h100.py --tables -->", f"<!-- end of {name} -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        text = re.sub(pattern, lambda _, t=new, b=begin, e=end: f"{b}\n{t}\n{e}", text, flags=re.DOTALL)
    return text


def tables() -> dict[str, str]:
    """All tables of the committed results, by the name in their marks."""
    found = {}
    if RESULT.exists():
        document = json.loads(RESULT.read_text())
        found |= {"gluon_h100": markdown(document, 8), "gluon_h100_all": markdown(document)}
    if AB_RESULT.exists() and ASSEMBLED_RESULT.exists():
        documents = [json.loads(path.read_text()) for path in (ASSEMBLED_RESULT, AB_RESULT)]
        found["gluon_ab"] = ab_markdown(*documents)
    if NAMES_RESULT.exists():
        found["gluon_names"] = names_markdown(json.loads(NAMES_RESULT.read_text()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", default="mma_bf16,hopper_bf16,hopper_fp8e4nv")
    parser.add_argument("--baselines", default="sdpa_flash,cudnn,flex,fa4")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--tables", action="store_true", help="only write the committed results' tables into the texts")
    options = parser.parse_args()
    if options.tables:
        for path in TEXTS:
            path.write_text(with_tables(path.read_text(), tables()))
        return
    rows: list[Row] = []

    def report(row: Row) -> None:
        rows.append(row)
        cells = ", ".join(f"{label} {row.tflops(label):.0f}" for label in row.times)
        print(f"{row.shape.label}: {cells}", flush=True)
        write_json(options.out, document(rows))  # what there is, should the time be over

    subjects, baselines = options.subjects.split(","), options.baselines.split(",")
    bench(SHAPES, subjects, baselines, options.rounds, report=report)
    print(table(rows))


if __name__ == "__main__":
    main()
