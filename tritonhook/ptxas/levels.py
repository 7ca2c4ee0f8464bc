"""The optimisation level that options of ptxas ask for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = ("-O0", "-O1", "-O2", "-O3", "--opt-level", "-O")  # how an option that chooses the level begins


def level_of(options: Sequence[str] | None) -> str:
    """The level, as "-O3", which is ptxas's default and the answer for options that are not known."""
    level = "-O3"
    given = tuple(options or ())
    for option, following in zip(given, (*given[1:], ""), strict=False):
        if option in ("-O", "--opt-level", "-opt-level"):
            level = f"-O{following}"
        elif option.startswith(("-O", "--opt-level=", "-opt-level=")):
            level = f"-O{option.rpartition('=')[2].removeprefix('-O')}"
    return level
