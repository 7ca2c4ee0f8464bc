"""Version numbers of PTX and ptxas: integers separated by dots, e.g. "12.8.93"."""

import re

VERSION = r"[0-9]{1,9}(\.[0-9]{1,9}){0,4}"


def is_version(text: str) -> bool:
    return re.fullmatch(VERSION, text) is not None


def version_key(version: str) -> tuple[int, ...]:
    """Make a sort key for versions: "12.10" comes after "12.9". version: text that `is_version` accepts."""
    return tuple(int(part) for part in version.split("."))
