"""Helpers for imports: names that a package loads at their first use, so that importing the package stays cheap; a
callback after the program's own import of a module; and functions that users name as MODULE:FUNCTION."""

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
    """Raise UsageError if numpy, which the emulator needs, is not installed. asked: what needs numpy, for the message,
    e.g. "--emulate"."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"{asked} needs numpy: pip install 'tritonhook[emulate]'")


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package (PEP 562). homes: maps each public name to the submodule that defines it."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    return load


class AfterImport:
    """Calls back once, after the program itself imports a module, or at once if it has imported it already.

    This is a finder in sys.meta_path, and stays there until the import. The first request for the module's spec is not
    enough: some programs, e.g. torch, look up a module's spec without importing the module.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self.name = name
        self.callback = callback
        self.asking = False

    def begin(self) -> None:
        """Start to wait for the import; call back now if the module is imported already."""
        if self.name in sys.modules:
            self.callback()
        else:
            sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Stop waiting for the import."""
        if self in (sys.meta_path or ()):  # sys.meta_path is None while Python shuts down
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the module's spec with the other finders, and make its loader call back after it has run the module."""
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
                if self in (sys.meta_path or ()):  # sys.meta_path is None while Python shuts down
                    self.end()
                    self.callback()

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010  (a loader type may declare it a method)
        return spec


def load_function(target: str) -> Callable[..., Any]:
    """Import MODULE from sys.path and return its FUNCTION. target: MODULE:FUNCTION. Raises UsageError."""
    module_name, colon, function_name = target.partition(":")
    if not (module_name and colon and function_name):
        raise UsageError(f"{target!r}: write MODULE:FUNCTION")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{target}: cannot import {error.name!r}; run in the folder that contains the module, or install it"
        ) from None
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None:
        raise UsageError(f"{target}: {module_name} has no {function_name!r}")
    if not callable(function):
        raise UsageError(f"{target} is a {type(function).__name__}, not a function")
    return function


def call_function(target: str, **options: Any) -> Any:
    """Call MODULE:FUNCTION; the module may also be in the current folder. Raises UsageError."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return load_function(target)(**options)
