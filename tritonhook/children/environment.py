"""The environment of child processes, so that they capture kernels or watch memory without knowing of tritonhook.

A private folder with a `sitecustomize` is first on PYTHONPATH, and a variable holds the settings. The sitecustomize
runs bootstrap.py. Where PYTHONPATH does not reach a process, a .pth file can run it (pth_file.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tritonhook._util.variables import RUN_ID, WATCH
from tritonhook.capture.settings import Settings
from tritonhook.children import SITE


def capture_environment(settings: Settings, base: Mapping[str, str], command: Sequence[str] = ()) -> dict[str, str]:
    """The environment for a child that captures, with its children. Raises UsageError for rewrites that cannot be
    handed to them.

    command: what this run runs, so that a later run of it into the same folder is known as such. Dry runs of it for
    several architectures are several commands: each compiles kernels of its own.
    """
    config = settings.to_run_config().to_environment()
    arch = [] if settings.dry_run is None else [settings.dry_run.arch]
    return {**base, **config, RUN_ID: _run_id([*arch, *command]), "PYTHONPATH": _path(base)}


def _run_id(command: Sequence[str]) -> str:
    """A run's command in its folder as a hash, and when it began; as capture.store.reader.Run reads it."""
    program = hashlib.sha256(json.dumps([str(Path.cwd()), *command]).encode()).hexdigest()
    return f"{program[:16]}-{time.time_ns()}"


def watch_environment(folder: Path, period_ms: float, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child whose GPU memory is watched, with its children; see memwatch.begin_run."""
    return {**base, WATCH: json.dumps({"folder": str(folder), "period_ms": period_ms}), "PYTHONPATH": _path(base)}


def _path(base: Mapping[str, str]) -> str:
    """PYTHONPATH with the private folder first, once."""
    given = base.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(SITE), *(entry for entry in given if entry and entry != str(SITE))])
