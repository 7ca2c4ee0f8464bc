"""C++ names of kernels as people wrote them, by the C++ runtime library. Without that library a name stays as it is."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_MOST = 20_000  # characters; a longer name is no name that a compiler made


@functools.lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """The declaration behind a mangled name: "_Z3rowIfEvPKT_" gives "void row<float>(float const*)"."""
    library = _library() if name.startswith("_Z") and len(name) <= _MOST else None
    if library is None:
        return name
    status = ctypes.c_int()
    made = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not made:
        return name
    try:
        return ctypes.string_at(made).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))


def function_name(name: str) -> str:
    """The function behind a mangled name, with its template arguments: "row<float>" of the name above."""
    whole = demangled(name)
    if whole == name:
        return name
    opening = _parameters_at(whole)
    head = whole if opening is None else whole[:opening]
    depth, start = 0, 0
    for index, character in enumerate(head):  # a return type ends with the last blank outside of brackets
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == " " and depth == 0 and not head.startswith(("(anonymous", "{lambda"), start):
            start = index + 1
    return head[start:].strip() or whole


def _parameters_at(declaration: str) -> int | None:
    """Find the bracket that opens the list of parameters: the last closing bracket belongs to it."""
    depth = 0
    end = declaration.rfind(")")
    for index in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(declaration[index], 0)
        if depth == 0:
            return index if end >= 0 else None
    return None


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    for file in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            library = ctypes.CDLL(file)
            library.__cxa_demangle.restype = ctypes.c_void_p
            return library
        except (OSError, AttributeError):
            continue
    return None
