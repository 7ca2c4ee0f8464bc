"""List the ptxas versions at hand, add one, or put a wrapper over one.

tritonhook ptxas list
tritonhook ptxas list --available # the versions that `ptxas add` can fetch
tritonhook ptxas add 12.8.93      # from the package index; only the binary is kept, in the user's cache
tritonhook ptxas install          # keep the PTX of every program that calls the CUDA toolkit's ptxas
tritonhook ptxas status

The wrapper writes PTX to $PTX_DUMP_DIR, by default ptx_dumps/ in the folder of the call, and under `tritonhook run`
captures to its folder. `tritonhook run -- nvcc ...` needs no install.
"""

from __future__ import annotations

import argparse
from typing import Any

from tritonhook._util.versions import version_key
from tritonhook.capture.ptxas_wrapper.install import InstallTarget, find_target, install, uninstall
from tritonhook.capture.ptxas_wrapper.script import log_file, troubles
from tritonhook.cli._progress import working
from tritonhook.cli._results import add_results, give
from tritonhook.errors import ToolError, UsageError
from tritonhook.ptxas.discovery import available_ptxas
from tritonhook.ptxas.install import add_ptxas, released_versions, tools_folder
from tritonhook.ptxas.tool import Tool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the ptxas versions that can be used")
    listing.add_argument("--available", action="store_true", help="list the versions that `ptxas add` can fetch")
    add_results(listing)
    adding = actions.add_parser("add", help="fetch one version's wheel and keep its ptxas")
    adding.add_argument("version", help="a full version, e.g. 12.8.93 or 13.5.37")
    add_results(adding)
    for action, text in (
        ("install", "replace a ptxas by the wrapper; the original stays beside it as ptxas.real"),
        ("uninstall", "put the original back"),
        ("status", "whether the wrapper is installed, and what it could not keep"),
    ):
        sub = actions.add_parser(action, help=text)
        sub.add_argument("path", nargs="?", help="a ptxas or its folder (default: the CUDA toolkit's)")
        add_results(sub)


def run(arguments: argparse.Namespace) -> int:
    actions = {"add": _add, "list": _list, "install": _install, "uninstall": _install, "status": _status}
    return actions[arguments.action](arguments)


def _install(arguments: argparse.Namespace) -> int:
    target = find_target(arguments.path)
    done = install(target) if arguments.action == "install" else uninstall(target)
    give(arguments, lambda full: _describe_target(target) | {"done": done})
    return 0


def _status(arguments: argparse.Namespace) -> int:
    target, log = find_target(arguments.path), log_file()
    lost = troubles(log)
    found = {"done": target.state.value, "troubles": lost, "log": str(log)}
    give(arguments, lambda full: _describe_target(target) | found)
    return 0


def _describe_target(target: InstallTarget) -> dict[str, Any]:
    state = target.state.name.lower()
    return {"format": 1, "kind": "installed", "what": "ptxas wrapper", "path": str(target.path), "state": state}


def _list(arguments: argparse.Namespace) -> int:
    tools = sorted(available_ptxas(), key=lambda tool: version_key(tool.version))
    document = {"format": 1, "kind": "ptxas list", "ptxas": [_describe(tool) for tool in tools]}
    document |= {"folder": str(tools_folder()), "available": _released() if arguments.available else None}
    give(arguments, lambda full: document)
    return 0


def _add(arguments: argparse.Namespace) -> int:
    with working(f"fetching ptxas {arguments.version} (about 30 MB)"):
        tool = _fetched(arguments.version)
    give(arguments, lambda full: {"format": 1, "kind": "ptxas tool", **_describe(tool)})
    return 0


def _released() -> list[str]:
    with working("asking the package index for its versions of ptxas"):
        return released_versions()


def _fetched(version: str) -> Tool:
    """Fetch a version. Raises UsageError with the versions that there are, if it is none of them."""
    try:
        return add_ptxas(version)
    except ToolError as error:
        known = _released() if "No matching distribution" in str(error) else []
        if not known or version in known:
            raise
    raise UsageError(f"ptxas {version}: no such version. There are: {', '.join(known)}")


def _describe(tool: Tool) -> dict[str, str]:
    return {"version": tool.version, "source": tool.source, "path": str(tool.path)}
