"""What the files of this package share: the attached sessions, the patched methods of the DSL, and the function that is
being compiled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tritonhook.capture.patching import Patch

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

FRONT_END = "cute"
Around = Callable[..., Any]  # called with the original method, then with the arguments of the method
_T = TypeVar("_T")


# --- sessions ------------------------------------------------------------------------------------


@dataclass(eq=False)
class Attached:
    """A session and what it met. met: keys of the DSL's cache entries. without_ptx: records that have no PTX."""

    session: Observer
    met: set[str] = field(default_factory=set)
    without_ptx: set[str] = field(default_factory=set)


attached: tuple[Attached, ...] = ()  # outermost first; replaced as a whole, because other threads iterate over it


def note(text: str) -> None:
    """Give all sessions a remark."""
    for attachment in attached:
        attachment.session.note(text)


def contained(doing: str, function: Callable[[], _T]) -> _T | None:
    """Call a function of ours; if it fails, the sessions report the error, and the program goes on."""
    try:
        return function()
    except Exception as error:
        for attachment in attached:
            attachment.session.contain(doing, error)
        return None


# --- patched methods -----------------------------------------------------------------------------

patches: list[Patch] = []


def patch(owner: type, name: str, around: Around) -> None:
    """Call `around` in place of a method of the DSL, until the last session is detached.

    Another tool may keep our function after that. Then it only calls the original: if it went on and were patched in
    again, it would rename twice, and the second time not know the kernel's own name. Raises KeyError if the class does
    not define the method.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(*arguments: Any, **options: Any) -> Any:
            return around(original, *arguments, **options) if made.alive else original(*arguments, **options)

        return method

    made = Patch(owner, name, wrap)
    patches.append(made)


# --- what is being compiled ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """The Python function that is being compiled. module_hash: its key in the DSL's caches; None for cute.compile,
    which uses none."""

    dsl: Any
    function: Any
    module_hash: str | None


thread = threading.local()  # .functions: those being compiled, innermost last; .own_names: of the module hashed last


def compiled_function() -> CompiledFunction | None:
    """The function that this thread is compiling."""
    functions = getattr(thread, "functions", None)
    return functions[-1] if functions else None


def dsl_version() -> str | None:
    """The version of the imported DSL; None if `cutlass` is not imported, or is the older package without a DSL."""
    module = sys.modules.get("cutlass")
    return str(module.__version__) if module is not None and "cutlass.base_dsl.dsl" in sys.modules else None
