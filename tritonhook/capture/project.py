"""Settings of a project: the table [tool.tritonhook] of the nearest pyproject.toml, in this folder or above it.

A command-line option has priority, then an environment variable, then this table. Only commands read the table; the
Python library does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonhook._util.toml import read_settings
from tritonhook._util.versions import is_version
from tritonhook.capture.settings import REWRITES
from tritonhook.errors import UsageError, did_you_mean

_TESTS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("kernel_arch", "kernel_suppress", "kernel_bounds"), (str,)),
    **dict.fromkeys(("kernel_emulate", "kernel_sanitize"), (bool,)),
    **dict.fromkeys(("kernel_limit", "kernel_shrink"), (int, float)),
}
_KEYS = ("out", "only", "ptxas", "rewrites", "policy", "lock", "max_registers", "allow_spills", *_TESTS)
_TEXTS = ("out", "only", "ptxas", "policy", "lock")
USUAL_LOCK = "tritonhook.lock"


@dataclass(frozen=True, slots=True)
class Project:
    """The values of the table [tool.tritonhook]. path: its pyproject.toml; None if no file has the table. out, policy
    and lock are absolute paths. max_registers, allow_spills: limits that snapshot.facts checks for each kernel. tests:
    values of the pytest plugin's options, by their names in pytest's configuration."""

    path: Path | None = None
    out: str | None = None
    only: str | None = None
    ptxas: str | None = None
    rewrites: tuple[str, ...] = ()
    policy: str | None = None
    lock: str | None = None
    max_registers: int | Mapping[str, int] | None = None
    allow_spills: list[str] | None = None
    tests: Mapping[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """The settings present in the file, as text."""
        given = {"out": self.out, "only": self.only, "ptxas": self.ptxas, "policy": self.policy, "lock": self.lock}
        given |= {"rewrites": ", ".join(self.rewrites)} | {name: str(value) for name, value in self.tests.items()}
        return {name: value for name, value in given.items() if value}

    @property
    def variables(self) -> dict[str, str]:
        """The settings that also have an environment variable, by the variable's name."""
        wanted = {"TRITONHOOK_OUT": self.out, "TRITONHOOK_PTXAS": self.ptxas}
        return {name: value for name, value in wanted.items() if value}

    @contextmanager
    def as_environment(self) -> Iterator[None]:
        """Set `variables` for this process and its children, except those that are already set."""
        new = {name: value for name, value in self.variables.items() if name not in os.environ}
        os.environ.update(new)
        try:
            yield
        finally:
            for name in new:
                os.environ.pop(name, None)


def lock_path(start: Path) -> Path:
    """Return the path of the lock file for a folder. The project's settings name it; otherwise it is the relative path
    tritonhook.lock. Raises UsageError if the settings are wrong."""
    return Path(read_project(start).lock or USUAL_LOCK)


def read_project(start: Path) -> Project:
    """Read the settings that apply to a folder. Raises UsageError if the file or a value in it is wrong."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file() and (table := _table(path)) is not None:
            return _project(path, table)
    return Project()


def _table(path: Path) -> Mapping[str, Any] | None:
    tools = read_settings(path, b"tritonhook").get("tool", {})
    if not isinstance(tools, dict):
        raise UsageError(f"{path}: tool is not a table")
    table = tools.get("tritonhook")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: tool.tritonhook is not a table")
    return table


def _project(path: Path, table: Mapping[str, Any]) -> Project:
    where = f"{path}: [tool.tritonhook]"
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{where}: no such setting: {key}{did_you_mean(key, _KEYS)} There are: {', '.join(_KEYS)}")
    texts = {key: table.get(key) for key in _TEXTS}
    for key, value in texts.items():
        if not isinstance(value, (str, type(None))) or value == "":
            raise UsageError(f"{where}: {key} = {value!r}: give it as text")
    rewrites = table.get("rewrites", [])
    if not isinstance(rewrites, list) or not all(name in REWRITES for name in rewrites):
        raise UsageError(f"{where}: rewrites = {rewrites!r}: give a list of {', '.join(REWRITES)}")
    _check_budgets(where, table)
    tests = {key: table[key] for key in _TESTS if key in table}
    for key, value in tests.items():
        if type(value) not in _TESTS[key]:
            raise UsageError(f"{where}: {key} = {value!r}: see --{key.replace('_', '-')} in `pytest --help`")
    if texts["ptxas"] is not None and not is_version(texts["ptxas"]):  # a path could run any program of the repository
        raise UsageError(f"{where}: ptxas = {texts['ptxas']!r}: give a version; for a path, use --ptxas PATH")
    if texts["policy"] is not None and (texts["ptxas"] is not None or rewrites):
        raise UsageError(f"{where}: the policy chooses ptxas and rewrites; remove those two, or remove policy")
    if "kernel_suppress" in tests:
        tests["kernel_suppress"] = str(path.parent / tests["kernel_suppress"])
    for key in ("out", "policy", "lock"):
        if (value := texts[key]) is not None:
            texts[key] = str(path.parent / value)
    budgets = {key: table.get(key) for key in ("max_registers", "allow_spills")}
    return Project(path, **texts, rewrites=tuple(rewrites), **budgets, tests=tests)


def _check_budgets(where: str, table: Mapping[str, Any]) -> None:
    registers, spills = table.get("max_registers", 1), table.get("allow_spills", [])
    limits = registers.values() if isinstance(registers, dict) else [registers]
    if not all(type(limit) is int and limit > 0 for limit in limits):
        raise UsageError(f'{where}: max_registers = {registers!r}: give a number above 0, or {{ "gemm*" = 168 }}')
    if not isinstance(spills, list) or not all(isinstance(glob, str) for glob in spills):
        raise UsageError(f"{where}: allow_spills = {spills!r}: give a list of kernel names or globs")
