"""The tables of the page of all results (docs/_cog/pages.py), in sections by what they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import emulate_tables
import foreign_tables
import gluon_tables
import name_tables
import sm120_tables
import timing_tables
import tune_tables
import upgrade_tables
import verify_tables
from results import RESULTS, markdown, result

Table = tuple[str, str, Callable[[], str]]  # its title, what is to know, what makes it


def coverage() -> str:
    """How much of what each result tried has a verdict, and why the rest has none."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        summary = result(path.stem).get("summary", {})
        if "left_out" in summary:
            left = "; ".join(f"{count:,}: {reason}" for reason, count in summary["left_out"].items())
            rows.append((f"`{path.name}`", f"{summary['tried']:,}", f"{summary['judged']:,}", left))
    return markdown(("result", "tried", "judged", "left out"), rows)


SECTIONS: dict[tuple[str, str], tuple[Table, ...]] = {
    ("The cutlass name", "../explanation/cutlass-name.md"): (
        (
            "Times with cutlass in the name",
            "*Measured* on an H100 with `tritonhook ab` (Triton 3.6.0 with ptxas 12.8.93, CuTe DSL 4.8.1; "
            "`name_effect.json`): time with `cutlass` in the name over time without. Registers are without and with; "
            "instructions are those that one side alone has. Where it says *same code*, nothing was timed. Five rows "
            "are inconclusive by today's rules: these runs began with three processes, `ab` begins with five.",
            name_tables.name_effect,
        ),
    ),
    ("Gluon attention", "../explanation/gluon.md"): (
        (
            "Speed on an H200",
            "*Measured*: TFLOPS in a CUDA graph / in calls from Python (`gluon_h200.json`). The fp8 columns have "
            "[errors](#errors-of-fp8-beside-its-peers).",
            gluon_tables.gluon,
        ),
        (
            "Speed on an H100",
            "*Measured* as above (`gluon_h100.json`).",
            lambda: gluon_tables.gluon("gluon_h100"),
        ),
        (
            "Errors of fp8 beside its peers",
            "*Measured* on an H200: e4m3, head_dim 128, no mask, by the number of keys. The P, V and O of Triton's "
            "tutorial are e5m2, and its measure is another one: 5.2% for normal data. cuDNN's O was scaled to the "
            "range of e4m3.",
            gluon_tables.gluon_fp8_peers,
        ),
    ),
    ("Attention for RTX 50", "../explanation/sm120-attention.md"): (
        ("TFLOPS on an H100", "*Measured* (`sm120_bf16_h100.json`).", sm120_tables.sm120),
    ),
    ("KV cache for RTX 50", "../how-to/use-sm120-kv-cache.md"): (
        ("Decode", "*Measured* on an H200 in CUDA graphs (`sm120_serving_h200.json`).", sm120_tables.sm120_decode),
        (
            "Errors of the formats",
            "rms of the output / worst row over its largest value (`sm120_kv_formats_error.json`).",
            sm120_tables.sm120_kv_formats,
        ),
        (
            "Decode over four formats",
            "*Measured* on an H200, us of a call, captured / eager (`sm120_kv_formats_h200.json`).",
            sm120_tables.sm120_kv_speed,
        ),
    ),
    ("Tests without a GPU", "../how-to/test-without-a-gpu.md"): (
        (
            "Programs in the interpreter and emulated",
            "CPU seconds of a call after the first, two cores (`interpret.json`).",
            foreign_tables.interpreted,
        ),
    ),
    ("Known miscompilations", "../explanation/miscompilations.md"): (
        ("All known bugs", "*Executed* or *assembled* (`miscompiles.json`).", verify_tables.miscompilations),
        (
            "What each bug does, and the remedy",
            "`tritonhook verify --known` says it of the bugs that a kernel meets.",
            verify_tables.miscompilation_remedies,
        ),
        ("Examples", "PTX that the wrong versions of ptxas miscompile.", verify_tables.miscompiled_programs),
    ),
    ("Times", "../explanation/timing.md"): (
        ("Simulated kernels", "Simulated, no GPU (`ab_simulation.json`).", timing_tables.simulation),
        (
            "Simulated tunings",
            "Simulated, no GPU (`tune_simulation.json`): runs of 50 kernels with eight other codes each. Places differ "
            "by a standard deviation; where the order is fixed, each code lies at one place in every process.",
            tune_tables.tune_simulation,
        ),
    ),
    ("Emulation", "../explanation/emulation.md"): (
        (
            "PTX that is understood",
            "Any other form is NOT UNDERSTOOD when it is reached.",
            lambda: emulate_tables.opcodes("ptx"),
        ),
        (
            "Machine code that is understood",
            "Of sm_80 to sm_121a, with or without the `U` of the uniform datapath.",
            lambda: emulate_tables.opcodes("sass"),
        ),
    ),
    ("Upgrades", "../explanation/upgrades.md"): (
        (
            "What each ptxas does",
            "*Assembled*; time of ptxas is processor time of all kernels on two shared cores, over that of Triton's.",
            upgrade_tables.which,
        ),
    ),
    ("What was tried", ""): (
        ("Tried, judged, left out", "Of each result that judges: how much its figures are of.", coverage),
    ),
}


def sections() -> str:
    """All tables, each below its title."""
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    for (title, page), tables in SECTIONS.items():
        yield f"## {title}\n" + (f"\n[How it was measured]({page}).\n" if page else "")
        for heading, note, table in tables:
            yield f"### {heading}\n\n{note}\n{table()}"
