"""An import hook: a callback after a module's first import, without importing it or changing its import."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any


class AfterImport:
    """Calls back once, after the program's own `import name`.

    It is a finder in sys.meta_path, and stays there until the import: programs (torch, for one) also ask for a module's
    spec without importing it.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callback = callback
        self.asking = False

    def begin(self) -> None:
        """Wait for the import."""
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of the other finders, with a loader that calls back after it has run the module."""
        if name != self.name or self.asking:
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
                    self.end()
                    self.callback()

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010  (a loader type may declare it a method)
        return spec
