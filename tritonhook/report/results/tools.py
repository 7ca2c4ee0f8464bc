"""Results about what is installed (`status`, `ptxas`, `run --install-startup`), and of `rename`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from msgspec import UNSET, UnsetType

from tritonhook._util.schema import Count, Fields, Version
from tritonhook.ptxas.tool import Tool
from tritonhook.report.result import Result, Summary, Table, Tone, count, number


class StatusResult(Result, tag="status"):
    """tritonhook's environment.

    tritonhook: its version. triton, cute_dsl: their versions; null: not installed. hooks: the owner of each of Triton's
    hooks. ptxas: each version with its sources. nvdisasm: its version; null: not found. ptxas_fixed_layout: whether
    ptxas runs without address-space randomisation. startup: state of the .pth file of `run --install-startup`:
    `installed`, `not installed` or `of another tritonhook`. environment: variables that are set. project: the settings
    in pyproject.toml.
    """

    verbs: ClassVar = "status"

    tritonhook: str
    triton: str | None
    cute_dsl: str | None
    hooks: dict[str, str]
    ptxas: tuple[str, ...]
    nvdisasm: str | None
    ptxas_fixed_layout: bool
    startup: str
    environment: dict[str, str]
    project: dict[str, str] | UnsetType = UNSET

    def summary(self) -> Summary:
        triton = f"Triton {self.triton}" if self.triton else "no Triton"
        verdict = f"tritonhook {self.tritonhook}, {triton}, {count(len(self.ptxas), 'version')} of ptxas"
        return Summary("Status", "", verdict, Tone.NEUTRAL, (), (Table("", ("what", "value"), tuple(self._rows()), 2),))

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "tritonhook", self.tritonhook
        yield "Triton", self.triton or "not installed"
        yield "CuTe DSL", self.cute_dsl or "not installed"
        for hook, holder in self.hooks.items():
            yield f"Triton's hook {hook}", holder
        yield "ptxas", number(self.ptxas)
        yield "nvdisasm", number(self.nvdisasm)
        yield "ptxas runs at fixed addresses", number(self.ptxas_fixed_layout)
        yield "startup file (.pth)", self.startup
        for name, value in self.environment.items():
            yield f"variable {name}", value
        for name, value in (self.project or {}).items():
            yield f"pyproject.toml {name}", value


class ToolFields(Fields):
    """A ptxas. source: the package or setting that provides it."""

    version: Version
    source: str
    path: str

    @classmethod
    def of(cls, tool: Tool) -> ToolFields:
        return cls(tool.version, tool.source, str(tool.path))


class PtxasList(Result, tag="ptxas list"):
    """Installed ptxas. folder: where `ptxas add` stores them. available: versions that `ptxas add` can fetch; null: not
    requested."""

    verbs: ClassVar = "ptxas list"

    ptxas: tuple[ToolFields, ...]
    folder: str
    available: tuple[str, ...] | UnsetType | None = UNSET

    @classmethod
    def of(cls, tools: Sequence[Tool], folder: str, available: Sequence[str] | None) -> PtxasList:
        return cls(tuple(map(ToolFields.of, tools)), folder, None if available is None else tuple(available))

    def summary(self) -> Summary:
        """Summarise: a row for each version, with the ptxas that `--ptxas VERSION` runs."""
        by_version: dict[str, list[tuple[str, str]]] = {}
        for tool in self.ptxas:
            by_version.setdefault(tool.version, []).append((tool.source, tool.path))
        rows = tuple((version, *places[0]) for version, places in by_version.items())
        found = f"{count(len(rows), 'version')} of ptxas installed"
        verdict = found if rows else "no ptxas found; `tritonhook ptxas add 12.8.93` fetches one"
        columns = ("version", "source", "path")
        tables = [Table("", columns, rows, 3)] if rows else []
        others = tuple((version, *place) for version, places in by_version.items() for place in places[1:])
        if others:
            title = "Further copies of these versions; `--ptxas PATH` runs one"
            tables.append(Table(title, columns, others, 3))
        if self.available:
            tables.append(_available(self.available, by_version))
        return Summary("ptxas", "", verdict, Tone.NEUTRAL if rows else Tone.UNSURE, (), tuple(tables))


def _available(released: Sequence[str], there: Collection[str]) -> Table:
    """Make the table of versions that can be fetched, with a row for each CUDA version."""
    by_cuda: dict[str, list[str]] = {}
    for version in released:
        shown = f"{version} (installed)" if version in there else version
        by_cuda.setdefault(version.rpartition(".")[0], []).append(shown)
    rows = tuple((cuda, ", ".join(versions)) for cuda, versions in by_cuda.items())
    return Table("Versions that `tritonhook ptxas add VERSION` can fetch", ("CUDA", "ptxas"), rows, 2)


class PtxasTool(Result, ToolFields, tag="ptxas tool"):
    """A ptxas that was fetched."""

    verbs: ClassVar = "ptxas add"

    def summary(self) -> Summary:
        return Summary("ptxas", self.path, f"ptxas {self.version} is installed", Tone.NEUTRAL)


class Installed(Result, tag="installed"):
    """The wrapper of a ptxas, or the .pth file of `run --install-startup`.

    what: which of the two. state: of a wrapper `plain`, `installed`, `unfinished`, `replaced`, `foreign` or `broken`.
    done: what the verb did. troubles: how many calls of ptxas the wrapper could not keep, and why. log: the file in
    which it notes them.
    """

    verbs: ClassVar = "ptxas install`, `uninstall`, `status`; `run --install-startup`, `--remove-startup"

    what: str
    path: str
    state: str
    done: str | UnsetType = UNSET
    troubles: tuple[str, ...] | UnsetType = UNSET
    log: str | UnsetType = UNSET

    def summary(self) -> Summary:
        facts = tuple(f"{text} ({self.log})" for text in self.troubles or ())
        return Summary(self.what, self.path, self.done or self.state, Tone.BAD if facts else Tone.NEUTRAL, facts)


class Renamed(Result, tag="rename"):
    """A PTX file with new names.

    file: the input. names: new names by old name. tokens: how many were replaced. output: the file that was written.
    remarks: messages of rewrites. ptx: the text, if no file was written.
    """

    verbs: ClassVar = "rename"

    file: str
    names: dict[str, str]
    tokens: Count
    output: str | None
    remarks: tuple[str, ...]
    ptx: str | UnsetType = UNSET

    def summary(self) -> Summary:
        facts = (f"kernel {old} -> {new}" if old != new else f"kernel {old} stays" for old, new in self.names.items())
        verdict = f"{count(self.tokens, 'token')} replaced"
        return Summary("Rename", self.file, verdict, Tone.NEUTRAL, (*facts, *self.remarks))
