"""List the kernels in a capture folder, or show one capture.

tritonhook show tritonhook-captures
tritonhook show tritonhook-captures/kernels/add-0123456789abcdef
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tritonhook.cli._output import add_json, show, show_json
from tritonhook.store import CaptureFolder, describe, read_capture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", help="capture folder, or one kernel's folder in it")
    parser.add_argument("--rank", help="only what processes of this rank met (torchrun and the like set one)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    place = Path(arguments.dir)
    if (place / "capture.json").exists():
        capture = read_capture(place)
        if arguments.json:
            show_json({"format": 1, **describe(capture)})
        else:
            from tritonhook.report.terminal import render_capture

            show(render_capture(capture, str(place)))
        return 0
    folder = CaptureFolder.open(place)
    if arguments.rank is not None:
        folder = folder.of_rank(arguments.rank)
    if arguments.json:
        from tritonhook.report.json import captures_document

        show_json(captures_document(folder))
    else:
        from tritonhook.report.terminal import render_captures

        show(render_captures(folder))
    return 0
