"""The sessions that capture from the CuTe DSL. A program without the DSL loads no more of this package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.import_hook import AfterImport
from tritonhook._util.locks import ForkLock
from tritonhook.capture.cute import state
from tritonhook.capture.cute.state import FRONT_END as FRONT_END
from tritonhook.capture.cute.state import Attached, contained

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

_waiting: AfterImport | None = None
_lock = ForkLock()


def is_installed() -> bool:
    """Whether this Python has a CuTe DSL; found without importing it."""
    if "cutlass" in sys.modules:
        return state.dsl_version() is not None
    return any((Path(entry or ".") / "nvidia_cutlass_dsl").is_dir() for entry in sys.path)


def attach(session: Observer) -> None:
    """Capture for this session, from now on, or from the program's import of cutlass on."""
    global _waiting
    with _lock:
        state.attached = (*state.attached, Attached(session))
        if "cutlass" in sys.modules:
            _install()
        elif _waiting is None:
            _waiting = AfterImport("cutlass", _install)
            _waiting.begin()


def _install() -> None:
    def install() -> None:
        from tritonhook.capture.cute import hooks

        global _waiting
        with _lock:
            _waiting = None
            hooks.install()

    contained("the CuTe DSL could not be hooked", install)


def detach(session: Observer) -> None:
    """End what `attach` began; with the last session the DSL gets its methods back."""
    global _waiting
    with _lock:
        leaving = [attachment for attachment in state.attached if attachment.session is session]
        state.attached = tuple(attachment for attachment in state.attached if attachment.session is not session)
        if hooks := sys.modules.get("tritonhook.capture.cute.hooks"):
            hooks.left()
        if not state.attached and _waiting is not None:
            _waiting.end()
            _waiting = None
    for attachment in leaving:
        if attachment.without_ptx:
            count = len(attachment.without_ptx)
            kernels = "1 CuTe kernel" if count == 1 else f"{count} CuTe kernels"
            session.note(f"{kernels} ran from a cache or an exported object that kept no PTX: only the cubin is kept")


def holders() -> dict[str, str]:
    """For `status`: the DSL's methods that tritonhook has patched in this process."""
    return {f"cute {patch.owner.__name__}.{patch.name}": "tritonhook" for patch in state.patches}
