"""The environment of child processes that shall capture kernels, or watch their memory, without knowing of tritonhook.

A private folder with a `sitecustomize` is first on PYTHONPATH, and a variable holds the settings. The sitecustomize
runs bootstrap.py. Where PYTHONPATH does not reach a process, a .pth file can run it (pth_file.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tritonhook._util.variables import WATCH
from tritonhook.capture.settings import Settings
from tritonhook.children import SITE


def capture_environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child that shall capture, with its children. Raises UsageError for rewrites that cannot be
    handed to them."""
    return {**base, **settings.to_run_config().to_environment(), "PYTHONPATH": _path(base)}


def watch_environment(folder: Path, period_ms: float, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child whose GPU memory shall be watched, with its children; see memwatch.begin_run."""
    return {**base, WATCH: json.dumps({"folder": str(folder), "period_ms": period_ms}), "PYTHONPATH": _path(base)}


def _path(base: Mapping[str, str]) -> str:
    """PYTHONPATH with the private folder first, once."""
    given = base.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SITE), *(entry for entry in given if entry and entry != str(SITE))])
