"""List the kernels in a capture folder, or show one kernel.

Each kernel has a short id. Every verb takes it in place of the kernel's folder; some first digits suffice.

  tritonhook show                        # the folder that `tritonhook run` writes to
  tritonhook show captures --sort spills --filter gemm
  tritonhook show a1b2c3
  tritonhook show captures/a1b2c3
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tritonhook.capture.settings import default_out
from tritonhook.capture.store import CaptureFolder, read_capture
from tritonhook.cli._captures import full_document
from tritonhook.cli._places import place
from tritonhook.cli._results import add_results, give
from tritonhook.cli._streams import show_summary
from tritonhook.errors import UsageError

_Kernel = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        nargs="?",
        type=place,
        default=default_out(),
        help="capture folder, or one kernel: its id, or its folder (default: the folder that `run` writes to)",
    )
    parser.add_argument("--sort", choices=_ORDERS, help="list the kernels with most of this first (default: instrs)")
    parser.add_argument("--filter", metavar="REGEX", help="list only kernels in whose row this is found")
    parser.add_argument("--wide", action="store_true", help="print all columns, in lines as long as that takes")
    parser.add_argument("--rank", help="list only kernels of processes with this rank (torchrun sets one)")
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.path)
    if (path / "capture.json").exists():
        _give_capture(arguments, path)
    else:
        _give_folder(arguments, path)
    return 0


def _give_capture(arguments: argparse.Namespace, path: Path) -> None:
    from tritonhook.report.documents.captures import capture_document

    capture = read_capture(path)
    give(arguments, lambda full: (full_document if full else capture_document)(capture) | {"path": str(path)})


def _give_folder(arguments: argparse.Namespace, path: Path) -> None:
    from tritonhook.report.documents.captures import captures_document

    folder = CaptureFolder.open(path)
    if arguments.rank is not None:
        folder = folder.of_rank(arguments.rank)
    document = captures_document(folder)
    kernels = document["kernels"]
    if arguments.filter is not None:
        kernels = _filtered(document, arguments.filter)
    if arguments.sort is not None:
        kernels = sorted(kernels, key=_ORDERS[arguments.sort])
    document |= {"kernels": kernels, "hidden": len(document["kernels"]) - len(kernels)}
    give(arguments, lambda full: document, show=lambda summary: show_summary(summary, arguments.wide))


def _filtered(document: Mapping[str, Any], wanted: str) -> list[_Kernel]:
    """The kernels in whose row, with all its columns, the expression is found. Raises UsageError if it is none."""
    from tritonhook.report.summaries.captures import captures_summary

    try:
        expression = re.compile(wanted, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--filter {wanted}: not a regular expression: {error}") from None
    rows = [row for table in captures_summary(document).tables for row in table.rows]
    rows = [(*row, str(kernel["kernel"])) for row, kernel in zip(rows, document["kernels"], strict=True)]
    return [k for k, row in zip(document["kernels"], rows, strict=True) if any(map(expression.search, row))]


def _most(*fields: str) -> Callable[[_Kernel], tuple[bool, int]]:
    """A sort key: the kernels with most first, those for which it is not known last."""

    def key(kernel: _Kernel) -> tuple[bool, int]:
        resources = kernel["resources"] or {}
        values = [resources.get(field) for field in fields]
        known = [value for value in values if value is not None]
        return len(known) < len(values), -sum(known)

    return key


_ORDERS: dict[str, Callable[[_Kernel], Any]] = {
    "name": lambda kernel: str(kernel["kernel"]),
    "regs": _most("registers"),
    "spills": _most("spill_stores", "spill_loads"),
    "stack": _most("stack"),
    "shared": _most("shared"),
    "instrs": _most("instructions"),
}
