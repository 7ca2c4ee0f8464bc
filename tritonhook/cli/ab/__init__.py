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

import argparse

from tritonhook.cli._inputs import check_entry, chosen_arguments, chosen_ptxas, load_input
from tritonhook.cli._places import add_place
from tritonhook.cli._progress import working
from tritonhook.cli._recording import is_function, is_script
from tritonhook.cli._renames import add_rename, check_mapping, wanted_rename
from tritonhook.cli._results import add_results, give
from tritonhook.cli.ab.targets import is_timed
from tritonhook.cli.ab.timed import add_timing, refuse_timing, run_timed
from tritonhook.cli.diff import add_tool_options
from tritonhook.compare.names import NameComparison, compare_names
from tritonhook.errors import UsageError
from tritonhook.ptxas.toolchain import toolchain_of
from tritonhook.rename import PREFIX, Rename


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_place(
        parser,
        "target",
        nargs="*",
        help="MODULE:FUNCTION, SCRIPT.py [-- ARGUMENTS], capture folder, captured kernel or its id, PTX file, or two "
        "cubins",
    )
    add_rename(parser)
    add_tool_options(parser)
    add_timing(parser)
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    if is_timed(arguments):
        return run_timed(arguments)
    if not arguments.target:
        raise UsageError("nothing to compare; give a PTX file, a capture, MODULE:FUNCTION, a script, or --from FILE")
    refuse_timing(arguments)
    target = _only_target(arguments)
    given = load_input(target, arguments.entry)
    check_entry(arguments.entry, [given])
    if given.ptx is None:
        raise UsageError(f"{target}: no PTX to assemble under two names; give PTX or a capture that has it")
    rename = wanted_rename(arguments) or Rename(prefix=PREFIX)
    check_mapping(rename, given.ptx, target)
    toolchain = toolchain_of(chosen_ptxas(arguments, [given]))
    options = chosen_arguments(arguments.options, [given])
    with working(f"assembling {given.entry} under three names with ptxas {toolchain.ptxas.version}"):
        comparison = compare_names(given.ptx, rename, toolchain, options, given.entry)
        comparison = comparison.with_launches(given.dynamic_shared)
    from tritonhook.report.documents.names import names_document

    give(arguments, lambda full: names_document(comparison, toolchain.ptxas, options, full))
    return _exit_code(comparison)


def _only_target(arguments: argparse.Namespace) -> str:
    """The file whose code is compared under two names. Raises UsageError for arguments that would be ignored."""
    target: str = arguments.target[0]
    if arguments.rest is not None:
        raise UsageError(f"-- {' '.join(arguments.rest)}: only a script takes arguments after --")
    if len(arguments.target) > 1:
        two = " ".join(arguments.target[:2])
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
