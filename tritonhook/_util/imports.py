"""Imports: names that a package offers and loads when they are first used, so that importing the package stays cheap; a
callback after a module's first import, without importing it or changing its import; and functions that users name as
MODULE:FUNCTION."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from tritonhook.errors import UsageError


def check_numpy(asked: str = "emulation") -> None:
    """Raise UsageError where nothing can be emulated. asked: what the user asked for, such as an option."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"{asked} needs numpy: pip install 'tritonhook[emulate]'")


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562). homes: each name, and the module of the package that has it."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    return load


class AfterImport:
    """Calls back once, after the program's own `import name`, or at once if that was earlier.

    It is a finder in sys.meta_path, and stays there until the import: programs (torch, for one) also ask for a module's
    spec without importing it.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callback = callback
        self.asking = False

    def begin(self) -> None:
        """Wait for the import; call back now if the module is imported already."""
        if self.name in sys.modules:
            self.callback()
        else:
            sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Wait no longer."""
        if self in (sys.meta_path or ()):  # None while Python ends
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module's spec by the other finders, and wrap its loader: it calls back after it has run the module."""
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
                if self in (sys.meta_path or ()):  # None when Python ends
                    self.end()
                    self.callback()

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010  (a loader type may declare it a method)
        return spec


def load_function(target: str) -> Callable[..., Any]:
    """Import MODULE and return its FUNCTION; modules are looked for on sys.path. Raises UsageError."""
    module_name, colon, function_name = target.partition(":")
    if not (module_name and colon and function_name):
        raise UsageError(f"{target!r}: write MODULE:FUNCTION")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{target}: cannot import {error.name!r}; run in the folder that holds it, or install it"
        ) from None
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None:
        raise UsageError(f"{target}: {module_name} has no {function_name!r}")
    if not callable(function):
        raise UsageError(f"{target} is a {type(function).__name__}, not a function")
    return function


def call_function(target: str, **options: Any) -> Any:
    """Call MODULE:FUNCTION; its module may also lie in the current folder. Raises UsageError."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load_function(target)(**options)
