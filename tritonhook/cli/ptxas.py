"""List the ptxas versions at hand, or add one.

tritonhook ptxas list
tritonhook ptxas add 12.8.93      # from the package index; only the binary is kept, in the user's cache
"""

from __future__ import annotations

import argparse

from tritonhook.cli._output import add_json, show, show_json
from tritonhook.toolchain import Tool, add_ptxas, available_ptxas, tools_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True)
    listing = actions.add_parser("list", help="the ptxas versions that can be used")
    add_json(listing)
    adding = actions.add_parser("add", help="fetch one version's wheel and keep its ptxas")
    adding.add_argument("version", help="a full version, e.g. 12.8.93 or 13.5.37")
    add_json(adding)


def run(arguments: argparse.Namespace) -> int:
    return _add(arguments) if arguments.action == "add" else _list(arguments)


def _list(arguments: argparse.Namespace) -> int:
    tools = sorted(available_ptxas(), key=lambda tool: [int(part) for part in tool.version.split(".")])
    if arguments.json:
        show_json({"format": 1, "ptxas": [_describe(tool) for tool in tools], "folder": str(tools_folder())})
    else:
        from tritonhook.report.terminal import PlainTable

        table = PlainTable("version", "source", "path")
        for tool in tools:
            table.add_row(tool.version, tool.source, str(tool.path))
        show(table if tools else "no ptxas found; `tritonhook ptxas add 12.8.93` fetches one")
    return 0


def _add(arguments: argparse.Namespace) -> int:
    tool = add_ptxas(arguments.version)
    if arguments.json:
        show_json({"format": 1, **_describe(tool)})
    else:
        print(f"ptxas {tool.version}: {tool.path}")
    return 0


def _describe(tool: Tool) -> dict[str, str]:
    return {"version": tool.version, "source": tool.source, "path": str(tool.path)}
