"""Start `tritonhook run --arch` in a folder, as a user would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ended import python_ended


def run_dry(
    folder: Path, script: str, *options: str, arch: str = "sm_90a", status: int = 0, command: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script, or a command beside it, and check how it ended. Captures go to folder/out; Triton's cache is the
    test's, or folder/triton."""
    (folder / "script.py").write_text(script)
    words = ["run", "--arch", arch, "--out", str(folder / "out"), *options, *(command or ("script.py",))]
    cache, without = os.environ.get("TRITON_CACHE_DIR", str(folder / "triton")), ["TRITONHOOK", "PYTHON"]
    line = "-m", "tritonhook", *words
    return python_ended(*line, folder=folder, status=status, without=without, TRITON_CACHE_DIR=cache)
