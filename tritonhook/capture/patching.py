"""Patch: replaces one attribute of a class, module or object until it is restored. Hooks: a set of patches that exist
while a session is active."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tritonhook._util.locks import ForkLock

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer


class Patch:
    """A replacement of `owner.name` by the result of `wrap`, until `undo`.

    wrap is called with the current value of the attribute: a function, a property or None. For a static or class method
    it gets the function inside, and its result becomes a method of the same kind. Raises KeyError if the owner is a
    class that only inherits the attribute or has none; AttributeError if any other owner has no such attribute.
    """

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        self.owner, self.name = owner, name
        self.alive = True
        self.original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        kind = type(self.original) if isinstance(self.original, (staticmethod, classmethod)) else None
        inner = self.original.__func__ if kind is not None else self.original
        outer = wrap(inner)
        if callable(inner) and callable(outer):
            functools.update_wrapper(outer, inner)
        self.replacement = kind(outer) if kind is not None else outer
        setattr(owner, name, self.replacement)

    def undo(self) -> None:
        """Restore the original, unless another tool has since replaced our replacement. That tool may still call our
        replacement, which can check that `alive` is False."""
        self.alive = False
        there = self.owner.__dict__.get(self.name) if isinstance(self.owner, type) else getattr(self.owner, self.name)
        if there is self.replacement:
            setattr(self.owner, self.name, self.original)


def always(value: Any) -> Callable[..., Any]:
    """Return a function that returns this value for all arguments."""
    return lambda *_, **__: value


@contextmanager
def patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Replace several attributes during a `with` block. patches: (owner, name, wrap), the arguments of Patch. They are
    undone in reverse order."""
    with ExitStack() as stack:
        for patch in patches:
            stack.callback(Patch(*patch).undo)
        yield


class Hooks:
    """Active sessions, outermost first, that are notified when the program calls certain functions of a library. These
    functions are patched while there is a session."""

    def __init__(self) -> None:
        self.sessions: tuple[Observer, ...] = ()  # replaced as a whole, because other threads iterate over it
        self._lock = ForkLock()
        self._patches: list[Patch] = []

    def attach(self, session: Observer) -> None:
        """Add a session; for the first one, patch the functions."""
        with self._lock:
            if not self._patches:
                self._patches += self._patched()
            self.sessions = (*self.sessions, session)
            self._settle()

    def detach(self, session: Observer) -> None:
        """Remove a session; after the last one, restore the functions."""
        with self._lock:
            self.sessions = tuple(other for other in self.sessions if other is not session)
            self._settle()
            while self._patches and not self.sessions:
                self._patches.pop().undo()

    def contain(self, doing: str, error: BaseException) -> None:
        """Report an internal error of tritonhook to all sessions. doing: what failed."""
        for session in self.sessions:
            session.contain(doing, error)

    def tell(self, doing: str, report: Callable[[Observer], None]) -> None:
        """Call `report` for each session. If it raises, pass the error to that session's `contain`."""
        for session in self.sessions:
            try:
                report(session)
            except Exception as error:
                session.contain(doing, error)

    def _patched(self) -> list[Patch]:
        """Patch the library's functions; returns the patches."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Update state that depends on the list of sessions."""
