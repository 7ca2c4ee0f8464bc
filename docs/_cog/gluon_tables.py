"""Write the tables about gluon_kernels and the chain of GEMMs."""

from __future__ import annotations

import statistics

from results import Document, markdown, result

GLUON = {
    "mma_bf16": "mma.sync bf16",
    "hopper_bf16": "wgmma bf16",
    "hopper_fp8e4nv": "wgmma fp8",
    "sdpa_flash": "torch flash",
    "cudnn": "cuDNN",
    "fa4": "FA4",
    "cudnn_fp8e4nv": "cuDNN fp8",
    "tutorial_fp8e5": "Triton's tutorial, fp8",
    "flex": "Flex",
}


def gluon(*shapes: str) -> str:
    """Write TFLOPS of the Gluon kernels and their peers on an H200, in CUDA graphs / in eager calls."""
    samples = [sample for sample in result("gluon_h200")["samples"] if sample["shape"] in shapes]
    labels = [label for label in GLUON if any(label in sample["tflops"] for sample in samples)]
    rows = [(sample["shape"], *(_speeds(sample, label) for label in labels)) for sample in samples]
    return markdown(("TFLOPS", *(GLUON[label] for label in labels)), rows)


def _speeds(sample: Document, label: str) -> str:
    speeds = [sample.get(key, {}).get(label) for key in ("tflops", "tflops_eager")]
    return " / ".join(f"{speed:.0f}" for speed in speeds if speed is not None)


def gluon_means() -> str:
    """Write the geometric means of speed ratios over all shapes of `gluon`."""
    summary = result("gluon_h200")["summary"]
    pairs = {
        "hopper_bf16_vs_cudnn_geomean": ("hopper_bf16", "cudnn"),
        "hopper_bf16_vs_fa4_geomean": ("hopper_bf16", "fa4"),
        "hopper_bf16_vs_sdpa_flash_geomean": ("hopper_bf16", "sdpa_flash"),
        "hopper_fp8_vs_bf16_geomean": ("hopper_fp8e4nv", "hopper_bf16"),
        "hopper_fp8_vs_cudnn_fp8_geomean": ("hopper_fp8e4nv", "cudnn_fp8e4nv"),
        "hopper_fp8_vs_tutorial_fp8_geomean": ("hopper_fp8e4nv", "tutorial_fp8e5"),
        "mma_bf16_vs_sdpa_flash_geomean": ("mma_bf16", "sdpa_flash"),
    }
    rows = []
    for key, (a, b) in pairs.items():
        means = [summary.get(one) for one in (key, f"{key}_eager")]
        if means[0] is not None:
            rows.append((GLUON[a], GLUON[b], *("" if mean is None else f"{mean:.2f}" for mean in means)))
    return markdown(("kernel", "against", "times as fast, in graphs", "eager"), rows)


def gluon_fp8_peers(*kinds: str) -> str:
    """Write errors of O of the timed fp8 attentions, by kind of data, with head_dim 128 and no mask."""
    document = result("gluon_h200")
    ours = [s for s in document["fp8_accuracy"] if (s["kernel"], s["head_dim"]) == ("hopper", 128)]
    columns = [("hopper_fp8e4nv", ours, "rms"), ("measure", ours, "measure_rms")]
    for peer in ("cudnn_fp8e4nv", "tutorial_fp8e5"):
        columns.append((peer, [s for s in document["fp8_peers"] if s["kernel"] == peer], "rms"))
    rows = []
    for kind in kinds:
        cells = []
        for _, samples, name in columns:
            mine = [s[name] for s in samples if s["kind"] == kind and not s["causal"]]
            cells += [f"{100 * error:.1f}%" for error in (mine[0], mine[-1])] if mine else ["", ""]
        rows.append((kind, *cells))
    lengths = sorted({sample["seqlen_k"] for sample in ours})
    header = [f"{GLUON.get(name, name)}, {n:,}" for name, _, _ in columns for n in (lengths[0], lengths[-1])]
    return markdown(("kind of data", *header), rows)


def gluon_own_sums() -> str:
    """Write the worst row's error with q = k, and the speed by length, for `own_sums=4` and head_dim 128."""
    document = result("own_sums_h100")
    judged = [s for s in document["errors"] if (s["what"], s["kind"], s["head_dim"]) == ("judge", "q = k", 128)]
    timed = [s for s in document["times"] if s["head_dim"] == 128]
    lengths = sorted({sample["seqlen"] for sample in timed})
    rows = []
    for dtype, causal in dict.fromkeys((sample["dtype"], sample["causal"]) for sample in judged):
        errors = {s["form"]: s for s in judged if (s["dtype"], s["causal"]) == (dtype, causal)}
        worst = (errors["default"]["worst"], errors["own4"]["worst"], errors["default"]["measure_worst"])
        speeds = {s["seqlen"]: _own_speeds(s) for s in timed if (s["dtype"], s["causal"]) == (dtype, causal)}
        title = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}[dtype] + ("" if causal is None else ", causal")
        rows.append((title, *(f"{100 * error:.2f}%" for error in worst), *(speeds[length] for length in lengths)))
    header = ("inputs", "default", "`own_sums=4`", "measure", *(f"speed, {length:,} keys" for length in lengths))
    return markdown(header, rows)


def _own_speeds(sample: Document) -> str:
    """Format the speed relative to the default, in graphs / eager."""
    times = [[statistics.median(sample[how][form]["ms"]) for form in ("default", "own4")] for how in ("graph", "eager")]
    return " / ".join(f"{default / own:.3f}" for default, own in times)


def gluon_name_counts() -> str:
    """State how many tiles the other scheduler makes faster or slower."""
    summary = result("gluon_names")["summary"]
    return (
        f"\nOf {summary['pairs']} tiles that were timed with both schedulers, the other one makes "
        f"{summary['cutlass_faster_by_1pct']} faster by more than 1%\nand {summary['cutlass_slower_by_1pct']} slower. "
        f"Its speed is {summary['largest_loss']:.2f} to {summary['largest_gain']:.2f} times that of the usual one.\n\n"
    )


def gemm_chain_means() -> str:
    """Write the geometric means of speed ratios of the GEMM chain over all shapes."""
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
