"""Write the Markdown table about stored bits from the committed result of benchmarks/same_bits.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from results import Columns, Document, result, table


def libraries() -> str:
    """Write the table of verdicts on kernels and programs, by library."""

    def of(question: str, *verdicts: str) -> Callable[[Document], str]:
        return lambda row: f"{sum(row[question].get(one, 0) for one in verdicts)} of {row[question]['judged']}"

    columns: Columns = {
        "library": "{library}",
        "programs": "{programs}",
        "deterministic kernels": of("deterministic", "SAME"),
        "kernels with configurations of other bits": of("configs", "OTHER BITS", "WRONG"),
        "programs with the same rows": of("batch", "SAME"),
        "batch-variant": of("batch", "BATCH VARIANT"),
        "questions left out": lambda row: str(len(row["left_out"])),
    }
    summary = result("same_bits")["summary"]
    return table(({"library": name} | found for name, found in summary.items()), columns)


def on_a_gpu() -> str:
    """State for how many kernels the emulated groups of configurations are those of a GPU."""
    document = result("same_bits_h100")
    summary, samples = document["summary"], document["samples"]
    gpus = Counter(row["on"] for row in samples)
    most = max(row["configurations"] for row in samples)
    other = "; ".join(
        f"{row['kernel']} ({len(row['gpu'])} groups on the GPU, {len(row['emulated'])} emulated)"
        for row in samples
        if row["gpu"] != row["emulated"]
    )
    where = " and ".join(f"an {gpu} ({count})" for gpu, count in gpus.items())
    return (
        f"Executed on {where}: {summary['kernels']} kernels of attorch, liger, fla, the tutorials and this "
        f"project, in all configurations that fit, at most {most}. The GPU's groups are the "
        f"emulated ones for {summary['equal']} kernels; the exception is {other}.\n"
    )
