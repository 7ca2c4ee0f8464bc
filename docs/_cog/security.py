"""Take a section of SECURITY.md into the docs, which cannot link to files outside of docs/."""

from __future__ import annotations

from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "SECURITY.md"


def section(title: str) -> str:
    """The text below the heading of that title, up to the next heading."""
    text = _SOURCE.read_text().split(f"## {title}\n", 1)[1]
    return text.split("\n## ", 1)[0].rstrip() + "\n\n"
