"""The tables of the page of all results (docs/_cog/pages.py), in sections by what they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cost_tables
import dry_tables
import emulate_tables
import foreign_tables
import gluon_tables
import lock_tables
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
        (
            "What was published, beside what is found",
            "*Assembled* for sm_100a, ptxas 12.8.93 (`published_table.json`): ratios of a kernel with `cutlass` in its "
            'name over the same kernel without. "Equal length" compares with a control name of the same length. '
            "capmerc is the section `.nv.capmerc`.",
            name_tables.published,
        ),
        ("The pragma by architecture", "*Assembled* (`mma_throughput.json`).", name_tables.mma_throughput),
        ("Cells of the sweep", "*Assembled* (`name_trigger.json`).", name_tables.trigger_counts),
        (
            "Changed code by version of ptxas",
            "*Assembled* (`name_trigger.json`). D: changed. X: ptxas crashes under the name alone. A dot: same. "
            '"-": does not assemble. The name is `cutlass_kernel`.',
            name_tables.trigger_matrix,
        ),
    ),
    ("Gluon attention", "../explanation/gluon.md"): (
        (
            "Speed on an H200",
            "*Measured*: TFLOPS in a CUDA graph / in calls from Python (`gluon_h200.json`). The fp8 columns have "
            "[errors](#errors-of-fp8).",
            gluon_tables.gluon,
        ),
        (
            "Speed on an H100",
            "*Measured* as above (`gluon_h100.json`).",
            lambda: gluon_tables.gluon("gluon_h100"),
        ),
        (
            "Errors of fp8",
            "*Measured* on an H200: e4m3, head_dim 128. First the errors of the Hopper kernel's O and of the measure, "
            "relative to the norm, with 4,096 keys and no mask. Then the worst ratio of the two with 4,096, 16,384 and "
            "65,536 keys, with and without a mask. An error below 2^-9, the rounding of O to bf16, counts as 2^-9.",
            gluon_tables.gluon_fp8_accuracy,
        ),
        (
            "Errors of fp8 beside its peers",
            "*Measured* on an H200: e4m3, head_dim 128, no mask, by the number of keys. The P, V and O of Triton's "
            "tutorial are e5m2, and its measure is another one: 5.2% for normal data. cuDNN's O was scaled to the "
            "range of e4m3.",
            gluon_tables.gluon_fp8_peers,
        ),
        (
            "The scheduler that the tuner of mma.sync takes",
            "*Measured* on an H100 by name, ptxas 12.8.93 (`gluon_names.json`). The last column: how much less time "
            "the kernel takes than the same tile with the other scheduler.",
            gluon_tables.gluon_names,
        ),
        (
            "Each attention under the cutlass name",
            "Default configurations. Code and registers are *assembled*, times *measured* on an H100; B4 H16 S4096 "
            "(`gluon_assembled.json`, `gluon_ab.json`).",
            gluon_tables.gluon_ab,
        ),
        (
            "The Blackwell kernel under every ptxas",
            "*Assembled* for sm_100a, Triton 3.6, the plain name; ranges over 11 versions of ptxas "
            "(`gluon_blackwell.json`). The ratio is the size of `.nv.capmerc` under the cutlass name over that under "
            "the plain name.",
            gluon_tables.gluon_blackwell,
        ),
    ),
    ("Attention for RTX 50", "../explanation/sm120-attention.md"): (
        ("TFLOPS on an H100", "*Measured* (`sm120_bf16_h100.json`).", sm120_tables.sm120),
        (
            "Graphs and calls on an H100",
            "*Measured*: milliseconds in CUDA graphs and of calls from Python (`sm120_graph_h100.json`).",
            sm120_tables.sm120_graph,
        ),
        (
            "Steady loops",
            "*Assembled* for sm_120a, ptxas 13.4.59 (`tests/golden/sm120/`), as for sm_121a and sm_120f: the loop "
            "over tiles without masks and rescaling. cudnn-frontend's SM120 prefill with head_dim 128 and tiles of 128 "
            "x 128 has 796 instructions with 256 HMMA; the best public FP8 kernels have 758 (head_dim 128) and 583 "
            "(64), with 40 SHFL, 24 PRMT, 101 and 56 MOV.",
            sm120_tables.sm120_loops,
        ),
        ("Code over a KV cache", "*Assembled* for sm_120a.", sm120_tables.sm120_cache_code),
    ),
    ("KV cache for RTX 50", "../how-to/use-sm120-kv-cache.md"): (
        ("Goals of serving", "*Measured* on an H200 (`sm120_serving_h200.json`).", sm120_tables.sm120_serving_goals),
        ("Decode", "*Measured* on an H200 in CUDA graphs (`sm120_serving_h200.json`).", sm120_tables.sm120_decode),
        ("Decode over FP8 caches", "*Measured* on an H200, pages of 16.", sm120_tables.sm120_fp8_cache),
        ("Decode that appends a key", "*Measured* on an H200.", sm120_tables.sm120_append),
        ("Prefill over pages", "*Measured* on an H200.", sm120_tables.sm120_cache_prefill),
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
        (
            "Variants of decode over NVFP4",
            "*Measured* on an H200, us of a call in a CUDA graph, in turns with FP8 and BF16, 64 sequences of 32,768 "
            "keys, GQA 8, pages of 64 (`sm120_nvfp4_causes_h200.json`). Where a part is left out no result is right.",
            sm120_tables.sm120_nvfp4_causes,
        ),
    ),
    ("A chain of GEMMs", "../how-to/write-a-gemm-chain.md"): (
        ("Time of each shape", "*Measured* on an H200 (`gemm_chain.json`).", gluon_tables.gemm_chain),
        (
            "Errors of the chain",
            "*Measured* on an H200: the largest relative error of any row against float64, by kind of data (norm of "
            "the difference over norm of the result).",
            gluon_tables.gemm_chain_errors,
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
    ("Tuning", "../how-to/tune-kernels.md"): (
        ("Kernels that were tuned", "*Measured* on an H200 (`tune_h200.json`).", tune_tables.tuned),
        ("Every tuned kernel", "*Measured* on an H200 (`tune_h200.json`).", tune_tables.tuned_kernels),
        (
            "Levers that won",
            "*Measured* on an H200 (`tune_h200.json`).",
            lambda: tune_tables.tuned_levers() + tune_tables.tuned_maxnreg(),
        ),
    ),
    ("Times", "../explanation/timing.md"): (
        ("Places of one code", "*Measured* on an H200 (`placement.json`).", timing_tables.placement),
        ("Simulated kernels", "Simulated, no GPU (`ab_simulation.json`).", timing_tables.simulation),
        (
            "Simulated tunings",
            "Simulated, no GPU (`tune_simulation.json`): runs of 50 kernels with eight other codes each. Places differ "
            "by a standard deviation; where the order is fixed, each code lies at one place in every process.",
            tune_tables.tune_simulation,
        ),
    ),
    ("Costs", "costs.md"): (
        ("A policy", "*Measured* on two shared cores, medians (`overhead_policy.json`).", cost_tables.overhead_policy),
        (
            "Modules with many kernels",
            "*Measured* on two busy cores (`large_modules.json`).",
            cost_tables.large_modules,
        ),
    ),
    ("Dry runs", "../how-to/capture-without-a-gpu.md"): (
        (
            "Libraries in a dry run",
            "*Assembled* for sm_90a, on two cores (`dry_run.json`).",
            dry_tables.libraries,
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
            "Time of 500 kernels",
            "*Measured*: 86 kernels under several names, each with its own PTX; the start of Python is included.",
            lock_tables.speed,
        ),
        ("Changes that were seeded", "*Assembled* (`lock.json`).", lock_tables.found),
        ("Triton 3.6 to 3.9: the kernels that got worse", "*Assembled*.", lambda: lock_tables.worst("triton")),
        ("ptxas to 13.5.37: the kernels that got worse", "*Assembled*.", lambda: lock_tables.worst("ptxas")),
        ("The corpus of the audit", "Captured by dry runs (`upgrades.json`).", upgrade_tables.corpus),
        (
            "What each ptxas does",
            "*Assembled*; time of ptxas is processor time of all kernels on two shared cores, over that of Triton's.",
            upgrade_tables.which,
        ),
        ("Kernels that the newest ptxas makes worse", "*Assembled*.", upgrade_tables.worse),
        ("Kernels that meet a known bug", "Versions that are wrong for the target.", upgrade_tables.bugs),
        ("What newer versions of Triton do", "Each with its own ptxas. *Assembled*.", upgrade_tables.triton),
        ("Kernels that a newer Triton makes worse", "*Assembled*.", upgrade_tables.worse_by_triton),
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
