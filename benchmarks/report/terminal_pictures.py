"""The pictures of README.md of a test that passes without a GPU, and of one that fails.

    python -m benchmarks terminal_pictures [--out FOLDER]

Needs torch and Triton; no GPU. The test that fails is examples/test_row_sum.py with a mask of one element too many.
Look at both pictures before you commit them.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import REPOSITORY

RESULT = None
NEEDS = ("torch", "triton")
QUICK = ("--out", "{folder}")
COLUMNS = 100
OPTIONS = ("--kernel-arch", "sm_90a", "--kernel-emulate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs" / "images")


def run(arguments: argparse.Namespace) -> None:
    source = (REPOSITORY / "examples" / "test_row_sum.py").read_text()
    wrong = source.replace("mask=at < columns", "mask=at <= columns")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("test-passes", source), ("test-fails", wrong)):
        picture = drawn(f"$ pytest {' '.join(OPTIONS)} test_row_sum.py", printed(text))
        (arguments.out / f"{name}.svg").write_text(picture)
        print(arguments.out / f"{name}.svg")


def printed(source: str) -> str:
    """What pytest prints of a test file, in colours."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_row_sum.py").write_text(source)
        pytest = "-m", "pytest", "--color=yes", "--no-header", "-p", "no:cacheprovider", "-x"
        command = [sys.executable, *pytest, *OPTIONS]
        variables = os.environ | {"COLUMNS": str(COLUMNS), "PYTHONPATH": str(REPOSITORY), "TRITON_CACHE_DIR": folder}
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False).stdout


def drawn(title: str, text: str) -> str:
    """An SVG of a terminal. It names no font of another site."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(text.strip("\n")))
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    return console.export_svg(title=title, code_format=form, unique_id="terminal")
