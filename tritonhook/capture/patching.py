"""Patch: one attribute of a class, module or object that is replaced for a while, and then restored. Hooks: patches
that stay while sessions ask for them."""

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

    wrap is called with the owner's attribute: a function, a property, None. For a static or class method it gets the
    function, and its result becomes a method of the same kind. Raises KeyError if a class does not define the attribute
    itself, and AttributeError if another owner does not have it.
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
        """Restore the original, unless another tool has replaced ours. That tool may still call ours, which then
        finds `alive` False."""
        self.alive = False
        there = self.owner.__dict__.get(self.name) if isinstance(self.owner, type) else getattr(self.owner, self.name)
        if there is self.replacement:
            setattr(self.owner, self.name, self.original)


def always(value: Any) -> Callable[..., Any]:
    """Return a function that gives this value for all arguments."""
    return lambda *_, **__: value


@contextmanager
def patched(*patches: tuple[Any, str, Callable[[Any], Any]]) -> Iterator[None]:
    """Replace several attributes for the length of a `with` block. patches: (owner, name, wrap), as for Patch;
    undone in reverse order."""
    with ExitStack() as stack:
        for patch in patches:
            stack.callback(Patch(*patch).undo)
        yield


class Hooks:
    """The sessions of this process that get reports from some functions of a library, outermost first. The functions
    are patched while there is a session."""

    def __init__(self) -> None:
        self.sessions: tuple[Observer, ...] = ()  # replaced as a whole, because other threads iterate over it
        self._lock = ForkLock()
        self._patches: list[Patch] = []

    def attach(self, session: Observer) -> None:
        """Report to a session, too."""
        with self._lock:
            if not self._patches:
                self._patches += self._patched()
            self.sessions = (*self.sessions, session)
            self._settle()

    def detach(self, session: Observer) -> None:
        """Report to a session no more; after the last one restore the functions."""
        with self._lock:
            self.sessions = tuple(other for other in self.sessions if other is not session)
            self._settle()
            while self._patches and not self.sessions:
                self._patches.pop().undo()

    def contain(self, doing: str, error: BaseException) -> None:
        """Report an error of our own to all sessions."""
        for session in self.sessions:
            session.contain(doing, error)

    def tell(self, doing: str, report: Callable[[Observer], None]) -> None:
        """Report to each session; one in which that fails gets the error."""
        for session in self.sessions:
            try:
                report(session)
            except Exception as error:
                session.contain(doing, error)

    def _patched(self) -> list[Patch]:
        """Patch the functions."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Update what depends on the sessions."""
