"""The timed comparison that README.md and the third tutorial show: the layer norm of examples/ under two names.

    python -m benchmarks example_layer_norm

Runs `tritonhook ab layer_norm:launch` in examples/ and keeps its document, with all raw samples. Copy what it prints
into README.md and docs/tutorials/3-time.md; tests/docs/test_readme.py compares them with the result. Needs a GPU and
torch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import REPOSITORY, environment

EXAMPLES = REPOSITORY / "examples"
DIGITS = 6


NEEDS = ("gpu", "torch", "triton")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "ab.json"
        words = [sys.executable, "-m", "tritonhook", "ab", "layer_norm:launch", "--save", str(saved)]
        done = subprocess.run(words, cwd=EXAMPLES, check=False)
        if not saved.exists():
            raise SystemExit(f"tritonhook ab ended with {done.returncode}, and has no result")
        timed = json.loads(saved.read_text())
    return {
        "environment": environment("torch", "triton", "tritonhook") | {"gpu": timed["device"]},
        "summary": {"blocks": len(timed["blocks"]), "stopped": timed["stopped"], "seconds": timed["seconds"]},
        "samples": timed,
    }
