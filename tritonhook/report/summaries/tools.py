"""Summaries of what is installed and at hand, of what was installed, and of files that were written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tritonhook.report.format import count, number
from tritonhook.report.summary import Summary, Table, Tone

_NOT_INSTALLED = ("triton", "cute_dsl")  # fields of `status` in which null means that
_NAMES = {
    "triton": "Triton",
    "cute_dsl": "CuTe DSL",
    "hooks": "Triton's hook",
    "ptxas_fixed_layout": "ptxas runs at fixed addresses",
    "environment": "variable",
    "project": "pyproject.toml",
}


def status_summary(document: Mapping[str, Any]) -> Summary:
    """Versions, tools, and the holders of Triton's hooks."""
    triton = f"Triton {document['triton']}" if document["triton"] else "no Triton"
    rows = [row for name, value in document.items() if name not in ("format", "kind") for row in _rows(name, value)]
    verdict = f"tritonhook {document['tritonhook']}, {triton}, {count(len(document['ptxas']), 'version')} of ptxas"
    return Summary("Status", "", verdict, Tone.NEUTRAL, (), (Table("", ("what", "value"), tuple(rows), 2),))


def _rows(name: str, value: object) -> list[tuple[str, str]]:
    shown = _NAMES.get(name, name)
    if isinstance(value, Mapping):
        return [(f"{shown} {key}", str(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [(shown, ", ".join(map(str, value)) or "none")]
    if value is None and name in _NOT_INSTALLED:
        return [(shown, "not installed")]
    return [(shown, number(value))]


def ptxas_list_summary(document: Mapping[str, Any]) -> Summary:
    """The ptxas that can be used: a row for each version, with the program that is taken for it."""
    by_version: dict[str, list[tuple[str, str]]] = {}
    for tool in document["ptxas"]:
        by_version.setdefault(str(tool["version"]), []).append((str(tool["source"]), str(tool["path"])))
    rows = tuple((version, *places[0]) for version, places in by_version.items())
    found = count(len(rows), "version")
    verdict = f"{found} of ptxas at hand" if rows else "no ptxas found; `tritonhook ptxas add 12.8.93` fetches one"
    columns = ("version", "source", "path")
    tables = [Table("", columns, rows, 3)] if rows else []
    others = tuple((version, *place) for version, places in by_version.items() for place in places[1:])
    if others:
        title = "The same versions in other places; `--ptxas PATH` takes one of these"
        tables.append(Table(title, columns, others, 3))
    if released := document["available"]:
        tables.append(_available(released, by_version))
    return Summary("ptxas", "", verdict, Tone.NEUTRAL if rows else Tone.UNSURE, (), tuple(tables))


def _available(released: Sequence[str], there: Collection[str]) -> Table:
    """A row for each CUDA version."""
    by_cuda: dict[str, list[str]] = {}
    for version in released:
        shown = f"{version} (at hand)" if version in there else str(version)
        by_cuda.setdefault(version.rpartition(".")[0], []).append(shown)
    rows = tuple((cuda, ", ".join(versions)) for cuda, versions in by_cuda.items())
    return Table("Versions that `tritonhook ptxas add VERSION` can fetch", ("CUDA", "ptxas"), rows, 2)


def ptxas_tool_summary(document: Mapping[str, Any]) -> Summary:
    """A ptxas that was fetched."""
    return Summary("ptxas", str(document["path"]), f"ptxas {document['version']} is at hand", Tone.NEUTRAL)


def installed_summary(document: Mapping[str, Any]) -> Summary:
    """Whether the ptxas wrapper, or the .pth file of `startup`, is installed, and what the verb did."""
    verdict = str(document.get("done") or document["state"])
    lost = document.get("troubles") or ()
    facts = tuple(f"{text} ({document['log']})" for text in lost)
    return Summary(str(document["what"]), str(document["path"]), verdict, Tone.BAD if lost else Tone.NEUTRAL, facts)


def rename_summary(document: Mapping[str, Any]) -> Summary:
    """The new names of a PTX file's kernels, and what rewrites did to them."""
    names = document["names"].items()
    facts = [f"kernel {old} -> {new}" if old != new else f"kernel {old} stays" for old, new in names]
    verdict = f"{count(document['tokens'], 'token')} replaced"
    return Summary("Rename", str(document["file"]), verdict, Tone.NEUTRAL, (*facts, *map(str, document["remarks"])))
