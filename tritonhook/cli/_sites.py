"""HTML pages in a folder: one for the result, and one for each of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tritonhook._util.text import say
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptxas.threads import tool_threads

if TYPE_CHECKING:
    from tritonhook.capture.model import Capture
    from tritonhook.report.result import Result

# A kernel's page: the key of its rows, and a function that makes its result.
KernelPage = tuple[str, Callable[[], "Result"]]
Write = Callable[[Path, str], None]


def is_site(path: str) -> bool:
    """Return whether a path names a folder of pages rather than a single file."""
    return path.endswith("/") or Path(path).is_dir()


def write_site(
    folder: Path, result: Result, source: str, pages: Sequence[KernelPage], write: Write, done: Callable[[int], None]
) -> None:
    """Write the kernels' pages to FOLDER/kernels, and FOLDER/index.html. A kernel that cannot be read gets no page, but
    a line on standard error. write: writes one file. done: called after each page."""
    from tritonhook.ptxas.pool import usable_processors
    from tritonhook.report.pages import page_of
    from tritonhook.report.render.html import render_html

    try:
        (folder / "kernels").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write: {error.strerror}") from None
    links = {}
    with tool_threads(usable_processors()) as pool:
        texts = pool.map(partial(_kernel_page, source=source), pages)
        for (key, _), text in zip(pages, texts, strict=True):
            done(1)
            if text is not None:
                links[key] = f"kernels/{key}.html"
                write(folder / links[key], text)
    write(folder / "index.html", render_html(page_of(result), source, links))


def capture_page(capture: Capture, title: str | None, path: str | None = None) -> Result:
    """Make the result of one captured kernel with its code. title: its name among others."""
    from msgspec import UNSET, structs

    from tritonhook.report.results.capture import CapturedOne

    return structs.replace(CapturedOne.of(capture, path or UNSET, full=True), title=title or UNSET)


def _kernel_page(page: KernelPage, source: str) -> str | None:
    from tritonhook.report.pages import page_of
    from tritonhook.report.render.html import render_html

    try:
        return render_html(page_of(page[1]()), source, home="../index.html")
    except TritonHookError as error:
        say(f"tritonhook: no page of one kernel: {error}")
        return None
