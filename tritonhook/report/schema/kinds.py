"""The schema of each kind of document, by what is in its field `kind`."""

from __future__ import annotations

from collections.abc import Mapping

from tritonhook._util.schema import Fields
from tritonhook.report.schema import (
    captures,
    code,
    file,
    known,
    snapshot,
    tools,
)

SCHEMAS: Mapping[str, type[Fields]] = {
    "bisect": snapshot.Bisect,
    "capture": captures.CapturedOne,
    "captures": captures.Captures,
    "demo": code.Demo,
    "diff": code.Diff,
    "file": file.File,
    "installed": tools.Installed,
    "kernel changes": snapshot.KernelChanges,
    "known miscompilations": known.Known,
    "lock": snapshot.LockContent,
    "module diff": code.ModuleDiff,
    "names": code.Names,
    "ptxas list": tools.PtxasList,
    "ptxas tool": tools.PtxasTool,
    "rename": tools.Rename,
    "status": tools.Status,
    "table": code.PublishedTable,
}
