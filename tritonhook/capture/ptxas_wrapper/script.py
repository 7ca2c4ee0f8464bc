"""Make the shell script that replaces a ptxas and starts _program.py. This module also reads the log of the wrapper's
errors."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from pathlib import Path

from tritonhook._util.files import cache_folder
from tritonhook._util.variables import RUN, WRAPPER
from tritonhook.capture.run_config import RunConfig
from tritonhook.errors import ToolError, UsageError

PROGRAM = Path(__file__).with_name("_program.py")
INSTALLED = "# tritonhook ptxas wrapper 1, installed"
LINKED = "# tritonhook ptxas wrapper 1, for `tritonhook run`"
LOG = "ptxas-wrapper.log"
_MARK_BYTES = 200
_QUESTIONS = "--version|-V|--help|-h|--list-version|-version-ls"


def wrapper_script(real: Path, mark: str, python: str, log: Path) -> str:
    """Return the text of the shell script that is called instead of the ptxas `real`. If Python or tritonhook does not
    exist any more, the script only runs `real`.

    mark: INSTALLED or LINKED. python: the Python that runs _program.py. log: the wrapper's log file. The script is not
    Python, because its `#!` line could not have a path with blanks or over 127 bytes.
    """
    at = os.stat(real)  # noqa: PTH116
    kind = "installed" if mark == INSTALLED else "linked"
    words = [str(real), _version(real), str(at.st_size), str(at.st_mtime_ns), str(log), kind]
    about = " ".join(shlex.quote(word) for word in words[1:])
    lines = ["#!/bin/sh", mark]
    if kind == "installed":
        lines += ["# `tritonhook ptxas uninstall` puts the original back, which is the ptxas.real beside this file."]
    lines += [f"real={shlex.quote(str(real))}"]
    if kind == "installed":  # works also after the toolkit was moved to another folder
        lines += ['[ -x "$real" ] || real=${0%/*}/' + shlex.quote(real.name)]
    lines += [f"python={shlex.quote(python)}", f"wrapper={shlex.quote(str(PROGRAM))}"]
    wanted = f'[ "${WRAPPER}" != off ]'
    if kind == "linked":
        wanted += f' && [ -n "${RUN}$PTX_DUMP_DIR" ]'
    lines += [
        f'case "$*" in {_QUESTIONS}) exec "$real" "$@";; esac',
        f'if {wanted} && [ -x "$python" ] && [ -r "$wrapper" ]; then',
        f'  exec "$python" -I -S "$wrapper" "$real" {about} "$@"',
        "fi",
        'exec "$real" "$@"',
    ]
    return "\n".join(lines) + "\n"


def _version(ptxas: Path) -> str:
    from tritonhook.ptxas.tool import find_ptxas

    try:
        return find_ptxas(ptxas).version
    except ToolError:
        return ""


def mark_of(path: Path) -> str | None:
    """Return the mark in a file that is our wrapper, INSTALLED or LINKED; None for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(_MARK_BYTES)
    except OSError:
        return None
    return next((mark for mark in (INSTALLED, LINKED) if mark.encode() in head), None)


def real_of(path: Path) -> Path:
    """Return the path of the original ptxas of an installed wrapper."""
    return path.with_name(f"{path.name}.real")


def original(ptxas: Path) -> Path:
    """Return the path of the original ptxas if our wrapper is installed at this path, else the same path."""
    return real_of(ptxas) if mark_of(ptxas) == INSTALLED else ptxas


# --- the log -------------------------------------------------------------------------------------


def log_file() -> Path:
    """Return the log file of installed wrappers."""
    return cache_folder() / LOG


def troubles(log: Path, out: Path | None = None, since_ns: int = 0) -> list[str]:
    """List messages about calls of ptxas that wrappers could not keep: one message for each error, with the number of
    calls.

    out: select calls for this capture folder. since_ns: select calls at or after this time, in time.time_ns.
    """
    counts: dict[str, int] = {}
    try:
        lines = log.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, UsageError):
            item = json.loads(line)
            folder = RunConfig.from_environment({RUN: item["run"]}).out if item["run"] else Path(item["dumps"])
            if item["time_ns"] >= since_ns and out in (None, folder):
                counts[item["what"]] = counts.get(item["what"], 0) + 1
    return [f"{number} call{'' if number == 1 else 's'} of ptxas not kept: {what}" for what, number in counts.items()]
