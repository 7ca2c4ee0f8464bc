"""One kernel under its own name, a new one and a control name, for `diff --rename`."""

from __future__ import annotations

from collections.abc import Sequence

from tritonhook.cli._inputs import Input
from tritonhook.cli._streams import Results, give, working
from tritonhook.cli.rename import check_mapping
from tritonhook.compare.names import NameComparison, compare_names
from tritonhook.errors import UsageError
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.rename import Rename


def give_names(kernel: Input, rename: Rename, ptxas: Tool, options: Sequence[str], results: Results) -> int:
    """Assemble a kernel under three names, and compare the codes. A crash under the new name is a result, as other code
    is; without the control there is no result."""
    from tritonhook.report.results.names import Names

    if kernel.ptx is None:
        raise UsageError(f"{kernel.label}: no PTX to assemble under two names; give PTX or a capture that has it")
    check_mapping(rename, kernel.ptx, kernel.label)
    with working(f"assembling {kernel.entry} under three names with ptxas {ptxas.version}"):
        comparison = compare_names(kernel.ptx, rename, toolchain_of(ptxas), options, kernel.entry)
        comparison = comparison.with_launches(kernel.dynamic_shared)
    give(results, lambda full: Names.of(comparison, ptxas, options, full))
    return _exit_code(comparison)


def _exit_code(comparison: NameComparison) -> int:
    if comparison.renamed.cubin is None:
        return 1
    if comparison.control.cubin is None or comparison.diff is None:
        return 2
    return 0 if comparison.diff.identical_code and comparison.control_is_neutral else 1
