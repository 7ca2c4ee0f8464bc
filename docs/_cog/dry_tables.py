"""Write the Markdown tables about dry runs from the committed result of benchmarks/dry_run.py."""

from __future__ import annotations

from results import result


def libraries_sum() -> str:
    """State in a paragraph how many programs ran dry, and how many kernels have the PTX of a GPU run."""
    document = result("dry_run")
    rows, told = document["samples"]["libraries"], document["summary"]
    equal = sum(row["equal"] for row in document["samples"]["against_gpu"])
    programs, kernels = told["programs"], told["kernels"]
    failed, refused = (sum(len(row[name]) for row in rows) for name in ("failed", "refused"))
    stopped = sum(bool(row["stopped"]) for row in rows)
    ended = f", and {stopped} collections were stopped before their end" if stopped else ""
    times = (
        told[f"{name}seconds_by_compile_seconds{part}"]
        for name, part in (("", ""), ("", "_not_emulated"), ("program_", ""))
    )
    return (
        f"\n{programs} programs of {told['libraries']} collections compiled {kernels:,} kernels; {failed} programs "
        f"failed, and libraries refused to run {refused} with this Triton{ended}.\n"
        f"Of {told['kernels_of_gpu']} kernels whose PTX is known from an H200, "
        f"{told['kernels_of_gpu_same_configuration']} were compiled in the same configuration, and {equal} have the "
        "same PTX.\nA run takes {:.2f} times as long as its compilations by Triton and ptxas, {:.2f} times without the "
        "emulated programs.\nWithout the start of Python, torch and the library, once per process, the factor is "
        "{:.2f}.\n\n"
    ).format(*times)
