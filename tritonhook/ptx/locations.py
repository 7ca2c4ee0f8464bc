"""Map lines of a PTX text to lines of source code, by the .loc directives.

Code of an inlined library function is attributed to the line that called it. The caller is in `inlined_at` or, in PTX
of Triton's LLVM, in a comment: `.loc 2 170 27 // standard.py:170:27 @[ k.py:10:15 ]`. Comments name files without
folders.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

Place = tuple[str, int]  # file, line

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:[^/\n]*\binlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_CALL = re.compile(r"@\[ (.*?):(\d+):\d+ ")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/[^/]+|.*/triton/(?:experimental/gluon/)?language/")


def source_files(ptx: str) -> tuple[str, ...]:
    """List the source files that a PTX text names in .file directives."""
    return tuple(dict.fromkeys(match[2] for line in ptx.splitlines() if (match := _FILE.match(line))))


def source_places(ptx: str) -> Callable[[int], Place | None]:
    """Return a function that maps a line number of the PTX to its source line, or to None before the first .loc."""
    texts = ptx.splitlines()
    files = {match[1]: match[2] for text in texts if (match := _FILE.match(text))}
    by_name = {path.rpartition("/")[2]: path for path in files.values()}
    calls: dict[tuple[str, ...], list[Place]] = {}  # (file number, line, column) -> the source line and its callers
    numbers: list[int] = []
    places: list[Place] = []
    for number, text in enumerate(texts, 1):
        if (match := _LOC.match(text)) is None:
            continue
        at, caller = match.group(1, 2, 3), match.group(4, 5, 6)
        frames = [(files.get(at[0], at[0]), int(at[1]))]
        if caller[0] is not None:
            frames += calls.get(caller) or [(files.get(caller[0], caller[0]), int(caller[1]))]
        else:
            frames += [(by_name.get(name, name), int(line)) for name, line in _CALL.findall(text)]
        calls[at] = frames
        numbers.append(number)
        places.append(charged(frames))

    def place(line: int) -> Place | None:
        index = bisect_right(numbers, line) - 1
        return places[index] if index >= 0 else None

    return place


def charged(frames: Sequence[Place]) -> Place:
    """Choose the innermost source line outside libraries. frames: the line and its callers, outermost last. The package
    that contains the outermost line is the kernel's own; it does not count as a library."""
    own = _package(frames[-1][0])
    return next(frame for frame in frames if _package(frame[0]) in ("", own))


def _package(path: str) -> str:
    match = _PACKAGE.match(path)
    return match[0] if match else ""
