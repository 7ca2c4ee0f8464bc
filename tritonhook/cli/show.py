"""List the kernels in a capture folder, or show one capture.

tritonhook show tritonhook-captures
tritonhook show tritonhook-captures/kernels/add-0123456789abcdef
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tritonhook.capture.store import CaptureFolder, read_capture
from tritonhook.cli._captures import capture_document, folder_document
from tritonhook.cli._results import add_results, give


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", help="capture folder, or one kernel's folder in it")
    parser.add_argument("--rank", help="show only kernels of processes with this rank (torchrun sets one)")
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    place = Path(arguments.dir)
    if (place / "capture.json").exists():
        capture = read_capture(place)
        give(arguments, lambda full: capture_document(capture, full) | {"path": str(place)})
        return 0
    folder = CaptureFolder.open(place)
    if arguments.rank is not None:
        folder = folder.of_rank(arguments.rank)
    from tritonhook.report.documents.captures import captures_document

    def document(full: bool) -> dict[str, Any]:
        return captures_document(folder) if arguments.json and not full else folder_document(folder)

    give(arguments, document)
    return 0
