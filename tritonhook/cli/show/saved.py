"""A saved result, for `show`: what a verb wrote with --save or --json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.cli._inputs import read_bytes
from tritonhook.cli._results import Results, give
from tritonhook.errors import UsageError

if TYPE_CHECKING:
    from tritonhook.report.result import Result


def is_saved(path: Path) -> bool:
    """Return whether a file is JSON by its first letter: neither PTX nor an image begins with it."""
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] in (b"{", b"[")


def give_saved(path: Path, results: Results) -> None:
    """Show a saved result."""
    from tritonhook.report.pages import page_of
    from tritonhook.report.result import fitting

    try:
        result = _read(path)
        fitting(lambda: page_of(result))  # raises before anything is printed or written if the document is damaged
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    give(results, result, path.name)


def _read(path: Path) -> Result:
    from tritonhook._util.schema import MOST_JSON, read_json
    from tritonhook.report.result import read_result

    try:
        document = read_json(read_bytes(path, MOST_JSON), Any)
    except ValueError as error:
        why = f"no JSON, or only a part of it ({error})"
        raise UsageError(f"{why}; give what a verb wrote with --save or --json") from None
    if not isinstance(document, dict):
        raise UsageError("JSON, but no result; give what a verb wrote with --save or --json")
    return read_result(document)
