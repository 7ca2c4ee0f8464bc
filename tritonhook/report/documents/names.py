"""The document of one kernel under two names and a control name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonhook.compare.names import Build, NameComparison
from tritonhook.ptxas.assembler import Crash
from tritonhook.ptxas.tool import Tool
from tritonhook.report.documents import FORMAT
from tritonhook.report.documents.code import diff_code
from tritonhook.report.documents.diff import diff_document


def names_document(
    comparison: NameComparison, ptxas: Tool | None = None, arguments: Sequence[str] = (), full: bool = False
) -> dict[str, Any]:
    """The three builds with their crashes, and the diff of the two that have names of equal length.

    ptxas, arguments: what assembled them. full: with the code, for a page.
    """
    version = None if ptxas is None else ptxas.version
    diff = None
    if comparison.diff is not None:
        builds = (comparison.original, comparison.renamed, comparison.control)
        texts = {build.kernel: build.ptx.text for build in builds}
        names = (comparison.original.kernel, comparison.renamed.kernel)
        a_ptx, b_ptx = texts.get(comparison.diff.a_kernel), texts.get(comparison.diff.b_kernel)
        diff = diff_document(comparison.diff, version, version, a_ptx, b_ptx, names)
        if full:
            diff["code"] = diff_code(comparison.diff, a_ptx, b_ptx)
    return {
        "format": FORMAT,
        "kind": "names",
        "ptxas": {
            "version": version,
            "path": None if ptxas is None else str(ptxas.path),
            "arguments": list(arguments),
        },
        "original": _build(comparison.original),
        "renamed": _build(comparison.renamed),
        "control": _build(comparison.control),
        "runs": comparison.runs,
        "codes_seen": dict(zip(("original", "renamed", "control"), comparison.codes, strict=True)),
        "control_is_neutral": comparison.control_is_neutral,
        "control_diff": None if comparison.control_diff is None else comparison.control_diff.summary,
        "diff": diff,
    }


def _build(build: Build) -> dict[str, Any]:
    crash = build.result if isinstance(build.result, Crash) else None
    return {
        "kernel": build.kernel,
        "file_bytes": None if build.cubin is None else len(build.cubin.data),
        "crash": None if crash is None else _crash(crash),
    }


def _crash(crash: Crash) -> dict[str, Any]:
    return {
        "summary": crash.summary,
        "signal": crash.signal,
        "returncode": crash.returncode,
        "timeout": crash.timeout,
        "command": crash.command,
        "stderr": crash.stderr,
        "ptxas": crash.tool.version,
    }
