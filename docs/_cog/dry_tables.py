"""Write the Markdown tables about dry runs from the committed result of benchmarks/dry_run.py."""

from __future__ import annotations

from results import markdown, result


def libraries() -> str:
    """What the programs of each library gave, and how much of the GPU's PTX was found."""
    document = result("dry_run")
    rows = document["samples"]["libraries"]
    table = markdown(
        ("library", "programs", "failed", "kernels", "launches", "seconds"),
        (
            (
                row["library"] + (" (stopped)" if row["stopped"] else ""),
                str(row["programs"]),
                str(len(row["failed"])),
                f"{row['kernels']:,}",
                f"{row['launches']:,}",
                f"{row['seconds']:,.0f}",
            )
            for row in rows
        ),
    )
    told = document["summary"]
    equal = sum(row["equal"] for row in document["samples"]["against_gpu"])
    said = (
        f"Of {told['kernels_of_gpu']} kernels whose PTX is known from an H200, "
        f"{told['kernels_of_gpu_same_configuration']} were compiled in the same configuration, and {equal} have the "
        "same PTX.\nSeconds are those of a machine with 2 cores that others used at the same time.\n"
    )
    return f"{table}{said}\n"
