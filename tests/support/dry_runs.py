"""Start `tritonhook run --arch` in a folder, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repository import ROOT


def run_dry(
    folder: Path, script: str, *options: str, arch: str = "sm_90a", status: int = 0, command: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script, or a command beside it, and check how it ended. Captures go to folder/out."""
    (folder / "script.py").write_text(script)
    words = ["run", "--arch", arch, "--out", str(folder / "out"), *options, *(command or ("script.py",))]
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("TRITONHOOK", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-m", "tritonhook", *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done
