"""List installed ptxas versions, add one, or replace one by a wrapper.

tritonhook ptxas list
tritonhook ptxas list --available # the versions that `ptxas add` can fetch
tritonhook ptxas add 12.8.93      # from the package index; only the binary is kept, in the user's cache
tritonhook ptxas install          # keep the PTX of every program that calls this environment's ptxas
tritonhook ptxas install --system # keep the PTX of every program that calls the CUDA toolkit's ptxas
tritonhook ptxas uninstall        # put the original ptxas back
tritonhook ptxas status

The wrapper writes PTX to $PTX_DUMP_DIR, by default ptx_dumps/ in the caller's folder, and under `tritonhook run`
captures to its folder. `tritonhook run -- nvcc ...` needs no install.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.text import say
from tritonhook._util.versions import version_key
from tritonhook.capture.ptxas_wrapper.install import InstallTarget, find_target, install, uninstall
from tritonhook.capture.ptxas_wrapper.script import log_file, troubles
from tritonhook.cli._parser import Group, Verb, argument, flag, part
from tritonhook.cli._progress import working
from tritonhook.cli._results import Results, give
from tritonhook.errors import ToolError, UsageError
from tritonhook.ptxas.install import add_ptxas, released_versions
from tritonhook.ptxas.tool import available_ptxas, tools_folder

if TYPE_CHECKING:
    from tritonhook.report.results.tools import Installed


@dataclass(frozen=True, kw_only=True)
class List(Group):
    available: bool = flag(help="list the versions that `ptxas add` can fetch")
    results: Results = part(Results)


def _list(options: List) -> int:
    from tritonhook.report.results.tools import PtxasList

    tools = sorted(available_ptxas(), key=lambda tool: version_key(tool.version))
    give(options.results, PtxasList.of(tools, str(tools_folder()), _released() if options.available else None))
    return 0


@dataclass(frozen=True, kw_only=True)
class Add(Group):
    version: str = argument(help="a full version, e.g. 12.8.93 or 13.5.37")
    results: Results = part(Results)


def _add(options: Add) -> int:
    from tritonhook.report.results.tools import PtxasTool

    with working(f"fetching ptxas {options.version} (about 30 MB)"):
        try:
            tool = add_ptxas(options.version)
        except ToolError as error:
            known = _released() if "No matching distribution" in str(error) else []
            if not known or options.version in known:
                raise
            raise UsageError(f"ptxas {options.version}: no such version. There are: {', '.join(known)}") from None
    give(options.results, PtxasTool(tool.version, tool.source, str(tool.path)))
    return 0


@dataclass(frozen=True, kw_only=True)
class Wrapper(Group):
    path: str | None = argument(nargs="?", help="a ptxas or its folder (default: the CUDA toolkit's)")
    results: Results = part(Results)


@dataclass(frozen=True, kw_only=True)
class Install(Wrapper):
    system: bool = flag(help="replace also a ptxas outside of this environment, which other programs and users call")
    yes: bool = flag(help="install without a question")


def _install(options: Install) -> int:
    target = find_target(options.path)
    if not options.system and not target.path.is_relative_to(Path(sys.prefix).resolve()):
        raise UsageError(
            f"{target.path}: outside of this environment; other programs call it too; --system replaces it anyway. "
            "`tritonhook run -- nvcc ...` needs no install"
        )
    undo = f"`tritonhook ptxas uninstall {target.path}` undoes it"
    plan = f"a wrapper replaces it, and writes PTX to $PTX_DUMP_DIR, else to ptx_dumps/ in the caller's folder; {undo}"
    if not options.yes and not _agreed(f"{target.path}: {plan}"):
        raise UsageError(f"{target.path}: nothing was changed; --yes installs without a question")
    done = install(target)
    give(options.results, _installed(target, done=f"{done}; {undo}"))
    return 0


def _agreed(text: str) -> bool:
    """Ask the user on the terminal. Without a terminal the answer is no."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    say(f"tritonhook: {text}. Install? [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _uninstall(options: Wrapper) -> int:
    target = find_target(options.path)
    done = uninstall(target)
    give(options.results, _installed(target, done=done))
    return 0


def _status(options: Wrapper) -> int:
    target, log = find_target(options.path), log_file()
    lost = tuple(troubles(log))
    give(options.results, _installed(target, done=target.state.value, troubles=lost, log=str(log)))
    return 0


def _installed(target: InstallTarget, **done: Any) -> Installed:
    from tritonhook.report.results.tools import Installed

    return Installed("ptxas wrapper", str(target.path), target.state.name.lower(), **done)


def _released() -> list[str]:
    with working("fetching the list of ptxas versions from the package index"):
        return released_versions()


ACTIONS = (
    Verb("list", "list the ptxas versions that can be used", List, _list),
    Verb("add", "fetch one version's wheel and keep its ptxas", Add, _add),
    Verb("install", "replace a ptxas by the wrapper; the original stays beside it as ptxas.real", Install, _install),
    Verb("uninstall", "put the original ptxas back", Wrapper, _uninstall),
    Verb("status", "show whether the wrapper is installed, and what it could not keep", Wrapper, _status),
)
