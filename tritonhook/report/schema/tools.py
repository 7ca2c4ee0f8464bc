"""What is installed and at hand: `status`, `ptxas`, `startup`, `rename`."""

from __future__ import annotations

from typing import Any, Literal

from tritonhook._util.schema import Count, Fields, Version


class Status(Fields):
    """What tritonhook finds.

    tritonhook: its version. triton, cute_dsl: null: not installed. hooks: who holds each of Triton's hooks. ptxas: each
    version with its sources. nvdisasm: null: not found. ptxas_fixed_layout: whether ptxas is run without address-space
    randomisation. environment: variables that are set. project: the settings in pyproject.toml.
    """

    format: Literal[1]
    kind: Literal["status"]
    tritonhook: str
    triton: str | None
    cute_dsl: str | None
    hooks: dict[str, Any]
    ptxas: list[str]
    nvdisasm: str | None
    ptxas_fixed_layout: bool
    environment: dict[str, str]
    project: dict[str, str] = {}


class ToolFields(Fields):
    """A ptxas. source: who brought it."""

    version: Version
    source: str
    path: str


class PtxasList(Fields):
    """The ptxas at hand. folder: where added ones are kept. available: versions that `ptxas add` can fetch; null: not
    asked."""

    format: Literal[1]
    kind: Literal["ptxas list"]
    ptxas: list[ToolFields]
    folder: str
    available: list[str] | None = None


class PtxasTool(ToolFields):
    """A ptxas that was fetched."""

    format: Literal[1]
    kind: Literal["ptxas tool"]


class Installed(Fields):
    """The wrapper of a ptxas, or the .pth file of `startup`.

    what: which of them. state: of a wrapper `plain`, `installed`, `unfinished`, `replaced`, `foreign` or `broken`.
    done: what the verb did. troubles, log: what the wrapper could not keep, and the file that says so.
    """

    format: Literal[1]
    kind: Literal["installed"]
    what: str
    path: str
    state: str
    done: str = ""
    troubles: list[str] = []
    log: str = ""


class Rename(Fields):
    """A PTX file with new names.

    file: as given. names: old and new. tokens: how many were replaced. output: the file that was written. remarks: of
    rewrites. ptx: the text, where no file was written.
    """

    format: Literal[1]
    kind: Literal["rename"]
    file: str
    names: dict[str, str]
    tokens: Count
    output: str | None
    remarks: list[str]
    ptx: str = ""
