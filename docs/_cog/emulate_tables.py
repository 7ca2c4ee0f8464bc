"""Write the tables about the emulator from the committed results of benchmarks/emulate.py and fuzz_gpu.py."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from results import markdown, result


def figures() -> str:
    """Write the counts of kernels that the emulator understood, compared and searched for faults."""
    found = result("emulate")["summary"]
    programs, real = found["captured"], found["launched"]
    understood = found["kernels"] - found["verdicts"].get("not understood", 0)
    rows = [
        (
            f"kernels of libraries ({found['with_mma']} with mma or wgmma)",
            f"{found['kernels']:,}",
        ),
        ("their targets", ", ".join(f"{name} {count}" for name, count in found["targets"].items())),
        ("understood in both forms", f"{understood:,}"),
        ("PTX and machine code store the same bits", f"{found['verdicts'].get('same', 0):,}"),
        ("they differ in last bits, as PTX allows", f"{found['verdicts'].get('rounding', 0):,}"),
        ("both have the same fault: a recorded buffer is too small", f"{found['verdicts'].get('crash in both', 0):,}"),
        ("seconds for two CTAs, median", f"{found['seconds_median']:.1f}"),
        ("known miscompilations found", f"{found['known_found']} of {found['known']}"),
        ("their builds that an H200 ran too", f"{found['known_cells_of_h200']:,}"),
        ("of these, emulated with the H200's verdict", f"{found['known_cells_as_h200']:,}"),
    ]
    if found["altered_of_h200"]:
        rows += [
            ("cubins with one altered instruction that an H200 ran too", f"{found['altered_of_h200']:,}"),
            ("of these, emulated with the H200's verdict", f"{found['altered_as_h200']:,}"),
        ]
    rows += [
        (
            "kernels that were SAME on an H200, with all builds verified, also at -O0",
            f"{found['verified']:,} of {found['verified_of']:,} ({found['verified_absent']} are not in a dry run; "
            f"{found['verified'] - found['verified_same_launch']} have another launch of the kernel)",
        ),
        ("of these, reported as wrong", f"{found['false_different']:,}"),
        (
            f"kernels of {programs['judged']} programs searched for faults of their own: finished",
            f"{programs['kernels'] - programs['not_finished']:,} of {programs['kernels']:,}",
        ),
        ("of these, with a finding", str(programs["faults"])),
        (
            f"all launches of {real['tried']} programs, with real values: finished programs, launches (without fla and "
            "the CuTe DSL), kernels",
            f"{real['judged']}, {real['launches']:,}, {real['kernels']}",
        ),
        ("of these kernels, with a finding", str(real["kernels_with_a_finding"])),
        ("kernels with one barrier removed: found", _barriers(found)),
    ]
    return markdown(("emulated", ""), rows)


def _barriers(found: dict[str, Any]) -> str:
    why = found["without_a_barrier_why"]
    rest = "".join(f"; {name} {count}" for name, count in sorted(why.items()))
    return f"{found['without_a_barrier_found']:,} of {found['without_a_barrier']:,}{rest}"


def made_up() -> str:
    """Write verdicts on generated kernels that a GPU executed, by form: sums over all groups."""
    found = result("fuzz_gpu")["summary"]
    kinds = {"equal": "equal", "open": "open", "wrong": "differs", "bug of ptxas": "bug of ptxas"}
    rows = []
    for form, title in (("ptx", "PTX"), ("machine code", "machine code")):
        counts: Counter[str] = sum((Counter(group[form]) for group in found["groups"].values()), Counter())
        cells = [f"{counts[kind]:,}" for kind in (*kinds, "not understood")]
        rows.append((title, f"{counts.total():,}", *cells))
    return markdown(("form", "kernels", *kinds.values(), "not understood"), rows)


def published() -> str:
    """State how many published programs are understood, and which ones the newest ptxas miscompiles."""
    found = result("emulate")["summary"]
    wrong = ", ".join(found["published_wrong_in_newest"])
    counts = f"Of {found['published']} programs of FuzzX, {found['published_judged']} are understood in both forms"
    return f"{counts}. Only the three newest versions of ptxas were tried.\nThe newest miscompiles {wrong}.\n\n"


def opcodes(form: str) -> str:
    """List the opcodes that the emulator understands, by their first part. form: "ptx" or "sass"."""
    names = result("emulate")["opcodes"][form]
    rows = [
        (f"`{first}`", ", ".join(f"`{name}`" for name in several if name != first))
        for first, several in groupby(names, lambda name: name.partition(".")[0])
    ]
    if form == "sass":
        return "\n" + ", ".join(first for first, _ in rows) + "\n\n"
    return markdown(("opcode", "forms that are listed apart"), rows)


def sanitizer() -> str:
    """State what `emulate` and Compute Sanitizer report on small kernels, faulty and correct ones."""
    kernels = result("sanitizer_cases")["samples"]
    faulty, correct = ([one for one in kernels if bool(one["kind"]) == found] for found in (True, False))

    def count(ones: list[dict[str, Any]], verdict: str) -> tuple[int, int]:
        ours, theirs = (sum(one[tool] == verdict for one in ones) for tool in ("emulate", "compute_sanitizer"))
        return ours, theirs

    (found, found_there), (accused, accused_there) = count(faulty, "found"), count(correct, "false")
    alone = Counter(
        str(one["kind"]).partition(" (")[0] for one in faulty if one["emulate"] == "found" != one["compute_sanitizer"]
    )
    kinds = ", ".join(f"{kind} {number}" for kind, number in alone.most_common())
    return (
        f"\nOf {len(faulty)} small kernels with one fault, `emulate` finds {found}, and Compute Sanitizer (all four "
        f"tools, on an H100) {found_there}.\nOf {len(correct)} correct ones, `emulate` accuses {accused}, and Compute "
        f"Sanitizer {accused_there}. Only `emulate` finds: {kinds}.\n\n"
    )


def counters(name: str = "counters_h100") -> str:
    """Write how many counters equal those of Nsight Compute."""
    found = result(name)["summary"]
    rows = [
        ("launches tried, judged, left out", f"{found['tried']}, {found['judged']}, {sum(found['left_out'].values())}"),
        ("instructions, of these executed", f"{found['instructions']:,}, {found['instructions_executed']:,}"),
        ("of these, equal in all counters", f"{found['instructions_equal']:,}"),
        ("with a counter that is not known", f"{found['instructions_unknown']:,}"),
        ("totals of launches, of these equal", f"{found['totals']:,}, {found['totals_equal']:,}"),
    ]
    if "cost_whole" in found:
        rows.append(("time of the processor with counting / without, of all launches", f"{found['cost_whole']:.2f}"))
        rows.append(("the same, of the launch where it costs most", f"{found['cost_most']:.2f}"))
    return markdown(("what", "how many"), rows)


def floors() -> str:
    """Write the floor of time as a share of times that a GPU measured."""
    rows = []
    for label, name in (
        ("simple launches", "counters_h100"),
        ("patterns", "counters_patterns_h100"),
        ("kernels", "counters_kernels_h100"),
    ):
        found = result(name)["summary"]
        shares = [f"{100 * found[f'floor_of_time_{one}']:.0f}%" for one in ("median", "most")]
        rows.append((label, str(found["timed"]), *shares))
    return markdown(("launches", "how many", "floor / time, median", "most"), rows)


def sanitizer_cost() -> str:
    """Write the sentence on the time and memory that the sanitizer adds."""
    rows = result("sanitizer_cost")["samples"]
    times = [row["factor"] for row in rows]
    most, tensors = (max(row[name] for row in rows) / 2**20 for name in ("more_bytes", "tensors_bytes"))
    return (
        f"\nFor {len(rows)} programs with up to {tensors:.0f} MiB of tensors, sanitized launches take {min(times):.2f} "
        f"to {max(times):.2f} times the\nprocessor time, and the process at most {most:.0f} MiB more memory.\n\n"
    )
