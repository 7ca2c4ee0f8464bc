"""What `tritonhook verify --cpu` says of a capture folder, for verbs and plugins that gate on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tritonhook.errors import UsageError
from tritonhook.verify.model import NORMAL


def verify_captures(folder: Path | str, *options: str) -> tuple[bool, str]:
    """Verify each kernel in a process of its own, on one input: whether one is wrong, and the summary as text.

    Raises UsageError if nothing could be verified."""
    command = (sys.executable, "-m", "tritonhook", "verify", "--cpu", str(folder), "--inputs", NORMAL, *options)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise UsageError(f"verify: {(done.stderr or done.stdout).strip() or f'code {done.returncode}'}")
    return done.returncode == 1, done.stdout
