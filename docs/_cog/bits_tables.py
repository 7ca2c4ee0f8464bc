"""Write the Markdown table about stored bits from the committed result of benchmarks/same_bits.py."""

from __future__ import annotations

from collections import Counter

from results import markdown, result


def libraries() -> str:
    """What became of the kernels and programs of each library."""
    rows = []
    for name, summary in result("same_bits")["summary"].items():
        orders, configs, batch = (summary[one] for one in ("deterministic", "configs", "batch"))
        other = configs.get("OTHER BITS", 0) + configs.get("WRONG", 0)
        judged = [f"{batch.get(verdict, 0)} of {batch['judged']}" for verdict in ("SAME", "BATCH VARIANT")]
        rows.append(
            (
                name,
                str(summary["programs"]),
                f"{orders.get('SAME', 0)} of {orders['judged']}",
                f"{other} of {configs['judged']}",
                *judged,
                str(len(summary["left_out"])),
            )
        )
    header = "library", "programs", "deterministic kernels", "kernels with configurations of other bits"
    return markdown((*header, "programs with the same rows", "batch-variant", "questions left out"), rows)


def on_a_gpu() -> str:
    """How many kernels have the groups of a GPU."""
    document = result("same_bits_h100")
    summary, samples = document["summary"], document["samples"]
    gpus = Counter(row["on"] for row in samples)
    most = max(row["configurations"] for row in samples)
    other = "; ".join(
        f"{row['kernel']}, {len(row['gpu'])} on the GPU and {len(row['emulated'])} emulated"
        for row in samples
        if row["gpu"] != row["emulated"]
    )
    where = " and ".join(f"an {gpu} ({count})" for gpu, count in gpus.items())
    return (
        f"Executed on {where}: {summary['kernels']} kernels of attorch, liger, fla, the tutorials and this "
        f"project, each in all its configurations that fit, at most {most}. The groups are the emulated ones in "
        f"{summary['equal']}; others: {other}.\n"
    )
