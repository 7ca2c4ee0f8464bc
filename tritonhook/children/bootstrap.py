"""Start-up code of each Python process under `tritonhook run` or `tritonhook mem watch`.

The private sitecustomize, or the .pth file, calls `begin`. A session begins when the process imports triton or cutlass.
Until then only a few small modules are loaded, so keep the imports here few. The user's own sitecustomize runs too.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.imports import AfterImport
from tritonhook._util.text import say
from tritonhook._util.variables import DRY_RUN, EMULATE, RUN, WATCH
from tritonhook.capture.inductor import inductor
from tritonhook.children import SITE

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tritonhook.capture.session import Session

_begun = _watch_begun = False
_waiting: list[AfterImport] = []
_ours = {SITE.resolve()}  # folders with a sitecustomize of tritonhook
sessions: list[Session] = []  # sessions begun by `begin` in this process
dry_runs: list[ExitStack] = []  # replacements that `begin` made for a dry run; closing a stack undoes them


def begin(then_users: bool = True) -> None:
    """Begin to capture when triton or cutlass is imported, and to watch memory when triton is imported. If the module
    is imported already, begin at once.

    then_users: also run the user's own sitecustomize, which ours replaces. With a .pth file, Python itself runs the
    user's sitecustomize.
    """
    global _begun, _watch_begun
    if RUN in os.environ and not _begun:
        _begun = True
        if DRY_RUN in os.environ:
            atexit.register(_end_dry_runs)  # before Python clears the modules that were changed
            _when_imported("torch", functools.partial(_begin_dry_run, "begin_torch"))
        _when_imported("triton", _capture)
        _when_imported("cutlass", lambda: _capture("cute"))
        _when_imported("cuda.tile", _capture_tile)
        inductor.await_modules()  # before the import of triton, because these modules of torch import triton
    if WATCH in os.environ and not _watch_begun:
        _watch_begun = True
        _when_imported("triton", _watch)
    if then_users:
        _run_users_sitecustomize()


def end() -> None:
    """Undo `begin`: end the sessions and dry runs, and stop waiting for imports. `begin` can be called again."""
    global _begun
    for waiting in _waiting:
        waiting.end()
    for session in sessions:
        atexit.unregister(session.uninstall)
        session.uninstall()
    atexit.unregister(_end_dry_runs)
    _end_dry_runs()
    _waiting.clear()
    sessions.clear()
    _begun = False


def _end_dry_runs() -> None:
    while dry_runs:
        dry_runs.pop().close()


def _when_imported(name: str, callback: Callable[[], None]) -> None:
    _waiting.append(AfterImport(name, callback))
    _waiting[-1].begin()


def _capture(front_end: str = "triton") -> None:
    """Begin a session. Its errors are printed in one line and not raised, so that the program goes on."""
    if DRY_RUN in os.environ:
        _begin_dry_run(f"begin_{front_end}")
        if EMULATE in os.environ:
            from tritonhook.capture.dry_run.gpu import Emulation
            from tritonhook.children import dry_launches

            emulation = Emulation.from_environment(os.environ)
            dry_runs.append(getattr(dry_launches, f"begin_{front_end}")(emulation))
    try:
        from tritonhook.capture.front_ends import begin_run
        from tritonhook.capture.run_config import RunConfig

        sessions.append(begin_run(RunConfig.from_environment(os.environ), front_end))
    except Exception as error:
        say(f"tritonhook: not enabled in process {os.getpid()}: {error}")


def _begin_dry_run(begin: str) -> None:
    """Replace Triton's driver, torch's description of the GPU, or the CuTe DSL's launches. begin: function in
    dry_run/process.py.

    Errors are raised and end the program, because it must not launch kernels on a GPU.
    """
    from tritonhook.capture.dry_run import process
    from tritonhook.capture.dry_run.gpu import DryRun

    if (dry := DryRun.from_environment(os.environ)) is not None:
        dry_runs.append(getattr(process, begin)(dry))


def _capture_tile() -> None:
    """Make cuda.tile's compiler call the ptxas wrapper, which captures its kernels. Errors are printed, not raised."""
    try:
        from tritonhook.capture.ptxas_wrapper.cuda_tile import begin_tile

        begin_tile()
    except Exception as error:
        say(f"tritonhook: cuda.tile not captured in process {os.getpid()}: {error}")


def _watch() -> None:
    """Begin to watch GPU memory. Errors are printed, not raised."""
    try:
        import json

        from tritonhook.memwatch import begin_run

        config = json.loads(os.environ[WATCH])
        begin_run(config["folder"], config["period_ms"])
    except Exception as error:
        say(f"tritonhook: memory not watched in process {os.getpid()}: {error}")


def _run_users_sitecustomize() -> None:
    running = getattr(sys.modules.get("sitecustomize"), "__file__", None)  # possibly of another tritonhook
    if running is not None:
        _ours.add(Path(running).resolve().parent)
    rest = [entry for entry in sys.path if Path(entry).resolve() not in _ours]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
