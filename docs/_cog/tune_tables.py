"""Write the tables about `tritonhook tune`."""

from __future__ import annotations

from results import markdown, result


def tune_simulation() -> str:
    """Write how often a simulated tuning certifies false gains and real ones."""
    samples = result("tune_simulation")["samples"]
    kernels = {
        "null": "all codes are copies of the compiler's",
        "null, forced": "the same, and a copy is always confirmed",
        **{name: f"one code takes {name} less time" for name in ("1%", "3%")},
    }
    rows = []
    for name, what in kernels.items():
        tuned, wins = sum(len(run["blocks"]) for run in samples[name]), sum(run["wins"] for run in samples[name])
        rows.append((what, f"{tuned:,}", f"{wins:,}"))
    return markdown(("kernels", "tuned", "certified wins"), rows)


def tuned_sum() -> str:
    """State how many kernels were tuned, and the gains."""
    summary = result("tune_h200")["summary"]
    return (
        f"\n{summary['wins']} of {summary['kernels']} kernels have a lever that beats the best configuration, by "
        f"{summary['gain_geomean_of_wins']:.1f}% in the geometric mean and {summary['gain_most']:.0f}% at most.\n"
        f"{summary['kernels_autotuned']} are autotuned; {summary['configurations_raced']} configurations raced "
        f"beside those that their tuners chose.\nOf {summary['kernels_planned']} planned kernels, the others "
        "were not reached in the time on the GPU.\n\n"
    )


def tuned_truth() -> str:
    """Write how reliable the wins are, and the time on the GPU."""
    summary, whole = result("tune_h200")["summary"], result("end_to_end")["summary"]
    low, high = whole["interval_percent_gla"]
    rows = [
        ("tunings of 16 copies of one code, each forced through the confirmation", str(summary["null_confirmed"])),
        ("wins among these", str(summary["null_wins"])),
        ("simulated tunings of equal codes", f"{summary['null_tunings_simulated']:,}"),
        ("wins among these", str(summary["null_wins_simulated"])),
        (
            "wins that were faster again in new processes",
            f"{round(summary['wins_again'] * summary['wins_reproduced_ratio'])} of {summary['wins_again']}",
        ),
        ("winning codes that programs got when they ran with the policy", str(summary["applied"]["applied"])),
        ("time on the GPU for a kernel", f"median {summary['seconds_per_kernel_median']:.1f} s"),
        (
            f"a training step of a GLA block, {whole['step_us_gla'] / 1000:.1f} ms, with the policy",
            f"{whole['gain_percent_gla']:.1f}% less time ({low:.1f}% to {high:.1f}%)",
        ),
        (
            "a training step of a Llama layer with Liger's kernels, which no CUDA graph takes",
            f"{whole['verdict_llama']}: {whole['reason_llama']}",
        ),
    ]
    return markdown(("on an H200", "found"), rows)
