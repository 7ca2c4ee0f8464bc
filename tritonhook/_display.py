"""Display of values: a repr of at most 200 characters, and Markdown in Jupyter notebooks.

This module must not import `tritonhook.report`; `tritonhook/__init__.py` sets the function that makes the Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar

_MOST = 200  # characters of a repr
_MOST_OF_A_VALUE = 60


class Brief:
    """Base class for values with a short repr. A dataclass that inherits it needs `repr=False`.

    _shown: the attributes in the repr; if empty, the fields of the dataclass.
    """

    __slots__ = ()
    _shown: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        from dataclasses import fields, is_dataclass

        names = self._shown or tuple(f.name for f in fields(self) if f.repr) if is_dataclass(self) else self._shown
        parts: list[str] = []
        left = _MOST - len(type(self).__name__) - len("(, ...)")
        for name in names:
            part = f"{name.rpartition('.')[2]}={_short(_value(self, name))}"
            left -= len(part) + len(", ")
            if left < 0:
                parts.append("...")
                break
            parts.append(part)
        return f"{type(self).__name__}({', '.join(parts)})"


class Notebook(Brief):
    """Base class for values that notebooks show as Markdown.

    view: returns the Markdown of a value; None: the notebook shows its repr.
    """

    __slots__ = ()
    view: ClassVar[Callable[[Any], str | None]]

    def _repr_markdown_(self) -> str | None:
        return Notebook.view(self)


def _count(items: Collection[Any]) -> str:
    return f"<{len(items):,} item{'' if len(items) == 1 else 's'}>"


def _value(given: object, name: str) -> Any:
    """Read an attribute, or a dotted path of attributes such as "diff.verdict"; None if a value on the path is None."""
    for part in name.split("."):
        given = None if given is None else getattr(given, part)
    return given


def _short(value: Any) -> str:
    """Shorten an attribute's value to 60 characters. For bytes and for collections of more than 3 items, show the size
    only."""
    from enum import Enum
    from pathlib import PurePath

    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, PurePath):  # keep its end, which is more specific
        text = str(value)
        return repr(text if len(text) < _MOST_OF_A_VALUE else f"...{text[-_MOST_OF_A_VALUE + 5 :]}")
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value):,} bytes>"
    if isinstance(value, str):
        return repr(value) if len(value) <= _MOST_OF_A_VALUE - 2 else f"{value[: _MOST_OF_A_VALUE - 5]!r}..."
    if isinstance(value, Collection) and len(value) > 3:
        return _count(value)
    text = repr(value)
    if len(text) <= _MOST_OF_A_VALUE:
        return text
    return _count(value) if isinstance(value, Collection) else f"<{type(value).__name__}>"
