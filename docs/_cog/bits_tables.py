"""Write the Markdown table about stored bits from the committed result of benchmarks/same_bits.py."""

from __future__ import annotations

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
