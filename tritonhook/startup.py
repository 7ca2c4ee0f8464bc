"""Enabling tritonhook in processes that never heard of it: an environment for them, and what it starts.

`environment` puts a private folder with a `sitecustomize` first on PYTHONPATH and the settings into
TRITONHOOK_RUN. The sitecustomize calls `begin`, which waits for `import triton` and then begins a session; a
process that never imports triton pays for a few small modules. The user's own sitecustomize still runs.
Where PYTHONPATH does not get through, a .pth file calls `begin` (pth.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.inductor_capture import inductor

if TYPE_CHECKING:
    from tritonhook.ptx_capture import Settings

VARIABLE = "TRITONHOOK_RUN"
FOLDER = Path(__file__).parent / "_startup"


def environment(settings: Settings, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child that shall capture, with its children."""
    from dataclasses import asdict  # here, as every child process imports this module

    from tritonhook.errors import UsageError
    from tritonhook.rename import Rename

    renames = [asdict(step) for step in settings.rewrites.steps if isinstance(step, Rename)]
    if len(settings.rewrites.steps) > 1 or len(renames) < len(settings.rewrites.steps):
        raise UsageError("only a rename can be handed to child processes")
    config = {"out": str(settings.out), "only": settings.only, "rename": renames[0] if renames else None}
    path = [str(FOLDER), *(p for p in base.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(FOLDER))]
    return {**base, VARIABLE: json.dumps(config), "PYTHONPATH": os.pathsep.join(path)}


_begun = False


def begin(then_users: bool = True) -> None:
    """Called by the private sitecustomize: capture as soon as triton is there, then run the user's own.
    Also called by the .pth file, where the user's own runs by itself."""
    global _begun
    if VARIABLE in os.environ and not _begun:
        _begun = True
        sys.meta_path.insert(0, _AfterTriton(_enable))
        sys.meta_path.insert(0, _AfterTriton(_enable_tile, "cuda.tile"))
        inductor.await_modules()  # now: torch imports triton from within them
    if then_users:
        _run_users_sitecustomize()


def _enable() -> None:
    """Never breaks the program: what goes wrong is said in a line."""
    try:
        from tritonhook.ptx_capture import begin_run
        from tritonhook.rename import Rename

        config = json.loads(os.environ[VARIABLE])
        rename = None if config["rename"] is None else Rename(**config["rename"])
        begin_run(config["out"], rename, config["only"])
    except Exception as error:
        print(f"tritonhook: not enabled in process {os.getpid()}: {error}", file=sys.stderr)


def _enable_tile() -> None:
    """As _enable, for cuda.tile, whose kernels are captured where tileiras calls ptxas."""
    try:
        from tritonhook.ptxas_shim import begin_tile

        begin_tile()
    except Exception as error:
        print(f"tritonhook: cuda.tile not captured in process {os.getpid()}: {error}", file=sys.stderr)


class _AfterTriton:
    """A finder that lets `import triton` (or another module) happen as usual and then calls back, once.

    Programs also ask for triton's spec without importing it (torch does), so that it stays until the import.
    """

    def __init__(self, callback: Callable[[], None], module: str = "triton") -> None:
        self.module = module
        self.callback = callback
        self.asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.module or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.callback()

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010  (a loader type may declare it a method)
        return spec


def _run_users_sitecustomize() -> None:
    rest = [entry for entry in sys.path if Path(entry or ".").resolve() != FOLDER.resolve()]
    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
