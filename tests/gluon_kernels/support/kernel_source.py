"""Run the kernels' own source files with other modules in place of triton."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

SOURCE = Path(__file__).parents[3] / "gluon_kernels"

Edit = Callable[[str, str], str]


def unchanged(file: str, source: str) -> str:
    return source


def fake_module(name: str, members: dict) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(members)
    return module


def decorator(function=None, **_):
    """Stands for gluon.jit and its like: leaves the function as it is."""
    return function if function is not None else lambda function: function


class Constexpr:
    """Stands for gl.constexpr: the value itself."""

    def __new__(cls, value):
        return value


def load(files: tuple[str, ...], fakes: dict[str, ModuleType], edit: Edit = unchanged) -> dict[str, ModuleType]:
    """Execute files of gluon_kernels, each after `edit(file, source)`, in a package "host"; return modules by file.

    `files`: such as "hopper/kernel.py", each after those that it imports. `fakes`: other modules that they import, by
    name; those of gluon_kernels as "host.device.layouts".
    """
    loaded = {}
    packages = {"host": fake_module("host", {"__path__": []})}
    for file in files:
        *folder, _ = file.split("/")
        if folder:
            packages[f"host.{folder[0]}"] = fake_module(f"host.{folder[0]}", {"__path__": []})
    with patch.dict(sys.modules, {"host.device": fake_module("host.device", {"__path__": []})} | packages | fakes):
        for file in files:
            name = "host." + file.removesuffix(".py").replace("/", ".")
            module = sys.modules[name] = fake_module(name, {"__package__": name.rpartition(".")[0]})
            exec(compile(edit(file, (SOURCE / file).read_text()), file, "exec"), module.__dict__)
            loaded[file] = module
    return loaded
