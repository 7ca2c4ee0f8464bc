"""State shared by the modules of this package: the attached sessions, the patched methods of the DSL, and the function
being compiled. Sessions are attached here too, so that a program without the DSL imports no other module of this
package."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tritonhook._util.imports import AfterImport
from tritonhook._util.locks import ForkLock
from tritonhook.capture.patching import Patch

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer


FRONT_END = "cute"
Around = Callable[..., Any]  # called with the original method, then the arguments of the call
_T = TypeVar("_T")


# --- sessions ------------------------------------------------------------------------------------


@dataclass(eq=False)
class Attached:
    """An attached session. met: keys of the DSL's cache entries whose kernels it has captured. without_ptx: its records
    that have no PTX."""

    session: Observer
    met: set[str] = field(default_factory=set)
    without_ptx: set[str] = field(default_factory=set)


attached: tuple[Attached, ...] = ()  # outermost first; replaced as a whole, because other threads iterate over it


def note(text: str) -> None:
    """Add a note to all sessions."""
    for attachment in attached:
        attachment.session.note(text)


def contained(doing: str, function: Callable[[], _T]) -> _T | None:
    """Call a function of tritonhook. If it raises, report the error to all sessions and return None, so that the
    program goes on. doing: what failed."""
    try:
        return function()
    except Exception as error:
        for attachment in attached:
            attachment.session.contain(doing, error)
        return None


# --- patched methods -----------------------------------------------------------------------------

patches: list[Patch] = []


def patch(owner: type, name: str, around: Around) -> None:
    """Replace a method of the DSL by `around`, until the last session is detached.

    Another tool may still call our replacement after that. Then the replacement only calls the original. Otherwise a
    later session, which patches the method again, would rename each kernel twice. Raises KeyError if the class does not
    define the method.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(*arguments: Any, **options: Any) -> Any:
            return around(original, *arguments, **options) if made.alive else original(*arguments, **options)

        return method

    made = Patch(owner, name, wrap)
    patches.append(made)


# --- the function being compiled -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """The Python function that is being compiled. module_hash: its key in the DSL's caches; None for cute.compile,
    which does not use them."""

    dsl: Any
    function: Any
    module_hash: str | None


# functions: functions being compiled, innermost last. own_names: renames in the module whose cache key was made last.
thread = threading.local()


def compiled_function() -> CompiledFunction | None:
    """Return the function that this thread is compiling, else None."""
    functions = getattr(thread, "functions", None)
    return functions[-1] if functions else None


def dsl_version() -> str | None:
    """Return the version of the imported DSL. None if `cutlass` is not imported, or is the old Python package of that
    name, which has no DSL."""
    module = sys.modules.get("cutlass")
    return str(module.__version__) if module is not None and "cutlass.base_dsl.dsl" in sys.modules else None


# --- attaching ------------------------------------------------------------------------------------


_waiting: AfterImport | None = None
_lock = ForkLock()


def is_installed() -> bool:
    """Check whether this Python has a CuTe DSL, without importing it."""
    if "cutlass" in sys.modules:
        return dsl_version() is not None
    return any((Path(entry or ".") / "nvidia_cutlass_dsl").is_dir() for entry in sys.path)


def attach(session: Observer) -> None:
    """Capture CuTe kernels for this session. If the program has imported cutlass, this begins at once, otherwise after
    the import."""
    global attached, _waiting
    with _lock:
        attached = (*attached, Attached(session))
        if _waiting is None:
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
    """Stop capturing for this session. After the last session, restore the DSL's methods."""
    global attached, _waiting
    with _lock:
        leaving = [attachment for attachment in attached if attachment.session is session]
        attached = tuple(attachment for attachment in attached if attachment.session is not session)
        if hooks := sys.modules.get("tritonhook.capture.cute.hooks"):
            hooks.left()
        if not attached and _waiting is not None:
            _waiting.end()
            _waiting = None
    for attachment in leaving:
        if attachment.without_ptx:
            count = len(attachment.without_ptx)
            kernels = "1 CuTe kernel" if count == 1 else f"{count} CuTe kernels"
            session.note(f"{kernels} came from a cache or an exported object without PTX: only the cubin is kept")


def holders() -> dict[str, str]:
    """List the DSL's methods that tritonhook has patched in this process, for `status`."""
    return {f"cute {patch.owner.__name__}.{patch.name}": "tritonhook" for patch in patches}
