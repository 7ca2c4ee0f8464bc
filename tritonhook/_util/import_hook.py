"""Calling back after a module's first import, without importing it and without being in anybody's way."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any


class AfterImport:
    """A finder that lets `import name` happen as usual and then calls back, once.

    Programs also ask for a module's spec without importing it (torch does), so that it stays until the import.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callback = callback
        self.asking = False

    def begin(self) -> None:
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
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
