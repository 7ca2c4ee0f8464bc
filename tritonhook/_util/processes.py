"""Other processes of this machine, as /proc shows them."""

from __future__ import annotations

from pathlib import Path


def parent_of(pid: int) -> int | None:
    """The id of a process's parent; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[1])  # the name before it may have spaces and brackets
    except (OSError, ValueError, IndexError):
        return None


def command_line_of(pid: int) -> list[str]:
    """The words that a process was started with; none if it cannot be read."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "replace") for word in data.split(b"\0")[:-1]]
