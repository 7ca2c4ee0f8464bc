"""Version numbers of PTX and ptxas: dotted integers, "12.8.93"."""


def version_key(version: str) -> tuple[int, ...]:
    """What versions are ordered by: "12.10" comes after "12.9"."""
    return tuple(int(part) for part in version.split("."))
