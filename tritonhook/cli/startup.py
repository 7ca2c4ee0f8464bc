"""Install a .pth file, so that `tritonhook run` also reaches processes that clear PYTHONPATH.

The file does nothing outside of `tritonhook run`.

tritonhook startup install                       # into the environment of this Python
tritonhook startup install --python venv/bin/python
tritonhook startup status
tritonhook startup uninstall
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tritonhook.children.pth_file import PTH, install_pth, pth_state, site_folder, uninstall_pth
from tritonhook.cli._parser import Group, argument, option, part
from tritonhook.cli._streams import Results, give


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    action: str = argument(
        metavar="ACTION",
        choices=("install", "uninstall", "status"),
        help="install or uninstall the .pth file; or status: whether it is there",
    )
    python: str = option(metavar="PATH", default=sys.executable, help="the environment's Python (default: this one)")
    results: Results = part(Results)


def run(options: Options) -> int:
    from tritonhook.report.results.tools import Installed

    folder = site_folder(options.python)
    did = {"install": _install, "uninstall": _uninstall, "status": pth_state}[options.action](folder)
    give(options.results, Installed("startup file", str(folder / PTH), pth_state(folder), did))
    return 0


def _install(folder: Path) -> str:
    install_pth(folder)
    return "installed"


def _uninstall(folder: Path) -> str:
    return "removed" if uninstall_pth(folder) else "was not installed"
