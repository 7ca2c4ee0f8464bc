"""Enabling tritonhook in processes that never heard of it: an environment for them, and what it starts.

`environment` puts a private folder with a `sitecustomize` first on PYTHONPATH and the settings into
TRITONHOOK_RUN. The sitecustomize calls `begin`, which waits for `import triton` or `import cutlass` and then begins
a session; a process that imports neither pays for a few small modules. The user's own sitecustomize still runs.
Where PYTHONPATH does not get through, a .pth file calls `begin` (pth_file.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.import_hook import AfterImport
from tritonhook.capture.inductor import inductor

if TYPE_CHECKING:
    from tritonhook.ptx_capture import Settings

VARIABLE = "TRITONHOOK_RUN"
WATCH = "TRITONHOOK_WATCH"
FOLDER = Path(__file__).parent / "_site"


def environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child that shall capture, with its children."""
    from dataclasses import asdict  # here, as every child process imports this module

    from tritonhook.errors import UsageError
    from tritonhook.ptx_capture import FIXES
    from tritonhook.rename import Rename

    steps = settings.rewrites.steps
    renames = [asdict(step) for step in steps[:1] if isinstance(step, Rename)]
    fixes = [name for step in steps[len(renames) :] for name, fix in FIXES.items() if step == fix]
    if len(renames) + len(fixes) < len(steps):
        raise UsageError("only a rename, and after it rewrites that have a name, can be handed to child processes")
    config = {
        "out": str(settings.out),
        "only": settings.only,
        "rename": renames[0] if renames else None,
        "fixes": fixes,
    } | ({"launches": settings.launches} if settings.launches else {})
    return {**base, VARIABLE: json.dumps(config), "PYTHONPATH": _path(base)}


def watch_environment(folder: Path, period_ms: float, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child whose GPU memory shall be watched, with its children; see memwatch.begin_run."""
    return {**base, WATCH: json.dumps({"folder": str(folder), "period_ms": period_ms}), "PYTHONPATH": _path(base)}


def _path(base: Mapping[str, str]) -> str:
    """PYTHONPATH with the private folder first, once."""
    given = base.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(FOLDER), *(entry for entry in given if entry and entry != str(FOLDER))])


_begun = _watch_begun = False


def begin(then_users: bool = True) -> None:
    """Called by the private sitecustomize: capture as soon as triton or cutlass is there, then run the user's own.
    Also called by the .pth file, where the user's own runs by itself."""
    global _begun, _watch_begun
    if VARIABLE in os.environ and not _begun:
        _begun = True
        AfterImport("triton", _enable).begin()
        AfterImport("cutlass", lambda: _enable("cute")).begin()
        AfterImport("cuda.tile", _enable_tile).begin()
        inductor.await_modules()  # now: torch imports triton from within them
    if WATCH in os.environ and not _watch_begun:
        _watch_begun = True
        AfterImport("triton", _watch).begin()
    if then_users:
        _run_users_sitecustomize()


def _enable(front_end: str = "triton") -> None:
    """Never breaks the program: what goes wrong is said in a line."""
    try:
        from tritonhook.ptx_capture import begin_run
        from tritonhook.rename import Rename

        config = json.loads(os.environ[VARIABLE])
        rename = None if config["rename"] is None else Rename(**config["rename"])
        fixes = {"rewrites": config["fixes"]} if config["fixes"] else {}
        launches = {"launches": config["launches"]} if "launches" in config else {}
        begin_run(config["out"], rename, config["only"], front_end, **fixes, **launches)
    except Exception as error:
        print(f"tritonhook: not enabled in process {os.getpid()}: {error}", file=sys.stderr)


def _enable_tile() -> None:
    """As _enable, for cuda.tile, whose kernels are captured where tileiras calls ptxas."""
    try:
        from tritonhook.capture.ptxas_wrapper.install import begin_tile

        begin_tile()
    except Exception as error:
        print(f"tritonhook: cuda.tile not captured in process {os.getpid()}: {error}", file=sys.stderr)


def _watch() -> None:
    try:
        from tritonhook.memwatch import begin_run

        config = json.loads(os.environ[WATCH])
        begin_run(config["folder"], config["period_ms"])
    except Exception as error:
        print(f"tritonhook: memory not watched in process {os.getpid()}: {error}", file=sys.stderr)


def _run_users_sitecustomize() -> None:
    rest = [entry for entry in sys.path if Path(entry or ".").resolve() != FOLDER.resolve()]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
