"""A script or MODULE:FUNCTION, run once to record its launches: for ab, verify and tune."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tritonhook.capture.settings import VALUES, make_settings
from tritonhook.children.environment import capture_environment
from tritonhook.cli._programs import run_to_end, script_command
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError, UsageError


def is_function(target: str) -> bool:
    return ":" in target and not Path(target).exists()


def is_script(target: str) -> bool:
    return target.endswith(".py")


def why_no_gpu() -> str | None:
    """Why nothing can be launched here; None if there is a GPU. Loads no torch."""
    try:
        driver = Driver()
        driver.init()
        return None if driver.device_count() else "CUDA_VISIBLE_DEVICES leaves no GPU"
    except DeviceError as error:
        return str(error)


def why_not_timed() -> str | None:
    """Why nothing can be timed here; None if there are torch and a GPU. Loads no torch."""
    return "torch is not installed" if find_spec("torch") is None else why_no_gpu()


def record_launches(words: Sequence[str], out: Path, without: str) -> None:
    """Run a script with its arguments, or MODULE:FUNCTION, with launches recorded.

    without: what a failure leaves undone, such as "nothing was timed". Raises UsageError if it fails, or no kernel was
    seen.
    """
    target = words[0]
    if is_function(target):
        command = [sys.executable, "-m", "tritonhook.verify.program", target]
    else:
        command = script_command(list(words), False)
    settings = make_settings(out, launches=VALUES)
    print(f"running {target} once, to record its launches ...", file=sys.stderr, flush=True)
    code = run_to_end(command, capture_environment(settings, os.environ), stdout_is_ours=True)
    if code:
        raise UsageError(f"{target} ended with status {code}: {without}")
    if not (out / "index").is_dir():
        raise UsageError(f"{target}: no kernel was seen: Triton was not used")
