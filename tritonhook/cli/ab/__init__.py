"""Time a kernel under its own name and a new one on a GPU; or assemble both and compare the codes.

It times MODULE:FUNCTION (a function that launches, or returns one that does), the launch that takes most of the time
of SCRIPT.py, a capture with recorded launches (`tritonhook run --launches`), or two cubins or PTX with a recorded
launch (`--args`). Both forms run in turn; the same code under a control name shows the noise. Exit codes: 0 same, 1
faster or slower, 2 inconclusive, wrong outputs or trouble; with --fail-on slower: 1 if slower, else 0.

Without a GPU it compares the code only: for PTX, for a capture without launches, and with --code. It also assembles a
control name of the same length: the control differs from the new name in spelling only. Exit codes: 0 same code, 1
other code, or ptxas crashes under the new name, 2 trouble, or ptxas crashes under the control name.

  tritonhook ab my_kernels:launch --save result.json
  tritonhook ab train.py -- --steps 3
  tritonhook ab captures/kernels/softmax-0123 --strip
  tritonhook ab a.cubin b.cubin --args launch.json
  tritonhook ab kernel.ptx                      # code only; adds the prefix cutlass_
  tritonhook ab --from result.json
"""

from __future__ import annotations

from tritonhook.cli._inputs import check_entry, chosen_arguments, chosen_ptxas, load_input
from tritonhook.cli._parser import given_options
from tritonhook.cli._programs import is_function, is_script
from tritonhook.cli._streams import give, working
from tritonhook.cli.ab.options import Options
from tritonhook.cli.ab.targets import is_timed
from tritonhook.cli.ab.timed import run_timed
from tritonhook.cli.rename import check_mapping
from tritonhook.compare.names import NameComparison, compare_names
from tritonhook.errors import UsageError
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.rename import PREFIX, Rename


def run(options: Options) -> int:
    if is_timed(options):
        return run_timed(options)
    if not options.target:
        raise UsageError("nothing to compare; give a PTX file, a capture, MODULE:FUNCTION, a script, or --from FILE")
    if idle := [name for name in given_options(options.timing) if name != "--code"]:
        raise UsageError(f"{', '.join(idle)}: only for timed comparisons; this compares only code")
    target = _only_target(options)
    kernel = load_input(target, options.tool.entry)
    check_entry(options.tool.entry, [kernel])
    if kernel.ptx is None:
        raise UsageError(f"{target}: no PTX to assemble under two names; give PTX or a capture that has it")
    rename = options.rename.wanted() or Rename(prefix=PREFIX)
    check_mapping(rename, kernel.ptx, target)
    toolchain = toolchain_of(chosen_ptxas(options.tool.ptxas, options.tool.trust, [kernel]))
    ptxas_options = chosen_arguments(options.tool.ptxas_options, [kernel])
    with working(f"assembling {kernel.entry} under three names with ptxas {toolchain.ptxas.version}"):
        comparison = compare_names(kernel.ptx, rename, toolchain, ptxas_options, kernel.entry)
        comparison = comparison.with_launches(kernel.dynamic_shared)
    from tritonhook.report.results.names import Names

    give(options.results, lambda full: Names.of(comparison, toolchain.ptxas, ptxas_options, full))
    return _exit_code(comparison)


def _only_target(options: Options) -> str:
    """The file whose code is compared under two names. Raises UsageError for arguments that would be ignored."""
    target: str = options.target[0]
    if options.rest is not None:
        raise UsageError(f"-- {' '.join(options.rest)}: only a script takes arguments after --")
    if len(options.target) > 1:
        two = " ".join(options.target[:2])
        raise UsageError(f"--code is for one target under two names; `tritonhook diff {two}` compares the code of two")
    if is_function(target) or is_script(target):
        raise UsageError(f"--code {target}: no PTX; capture it with `tritonhook run`, and give the capture")
    return target


def _exit_code(comparison: NameComparison) -> int:
    """A crash under the new name is a result, as other code is; without the control there is no result."""
    if comparison.renamed.cubin is None:
        return 1
    if comparison.control.cubin is None or comparison.diff is None:
        return 2
    return 0 if comparison.diff.identical_code and comparison.control_is_neutral else 1
