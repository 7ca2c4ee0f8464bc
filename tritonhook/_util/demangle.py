"""Demangle C++ names of kernels with the C++ runtime library. Without that library names stay unchanged.

A mangled name can refer to its own parts, so that a short name can expand to gigabytes. A name that could expand so far
is demangled in a child process with limits on time and memory. If it exceeds them, the name stays unchanged.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen

_MOST = 20_000  # longest mangled name that is demangled, in characters; compilers make no longer ones
_MOST_MADE = 1 << 20  # longest declaration, in characters
_MOST_LOST = 3  # after this number of child processes without an answer, no other is started
_RUN, _PACK = re.compile(r"[0-9A-Z]+_?"), re.compile(r"Dp|sp|s[ZP]")
_CHILD = r"""
import ctypes, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 27, 1 << 27))
demangle = ctypes.CDLL(sys.argv[1]).__cxa_demangle
demangle.restype = ctypes.c_void_p
for name in sys.stdin.buffer:
    signal.setitimer(signal.ITIMER_PROF, 0.1)  # the signal ends this process
    made = demangle(name[:-1], None, None, None)
    text = ctypes.string_at(made) if made else b""
    signal.setitimer(signal.ITIMER_PROF, 0)
    ctypes.CDLL(None).free(ctypes.c_void_p(made))
    sys.stdout.buffer.write((text if len(text) <= int(sys.argv[2]) else b"") + b"\n")
    sys.stdout.buffer.flush()
"""


@functools.lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """Demangle a name: "_Z3rowIfEvPKT_" gives "void row<float>(float const*)"."""
    demangle = _library() if name.startswith("_Z") and len(name) <= _MOST and name.isprintable() else None
    if demangle is None:
        return name
    file, library = demangle
    if _may_be_long(name):
        return _CHILDREN.declaration(file, name) or name
    status = ctypes.c_int()
    made = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not made:
        return name
    try:
        return ctypes.string_at(made).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))


def is_left_mangled(name: str) -> bool:
    """Return True if a name stays mangled because its declaration is too long, or because demangling takes too long."""
    return name.startswith("_Z") and (len(name) > _MOST or _may_be_long(name)) and demangled(name) == name


def _may_be_long(name: str) -> bool:
    """Return True if the declaration may have more than _MOST_MADE characters.

    Each reference repeats earlier text. With n references the longest result is a chain in which each part repeats the
    part before it three times: 3 ** (n / 3) times the text.
    """
    references, packs = _references(name), len(_PACK.findall(name))
    return references > 60 or packs > 3 or len(name) ** (1 + packs) * 3 ** (references / 3) > _MOST_MADE


def _references(name: str) -> int:
    """Count substitutions such as S_, S1_ and T0_, in linear time. Other text of that form is counted, too."""
    return sum(run[-1] == "_" and ("S" in run or "T" in run) for run in _RUN.findall(name))


class _Children:
    """A child process that demangles one name at a time; if it ends, a new one is started for the next name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Popen[bytes] | None = None
        self._owner = self._lost = 0

    def declaration(self, library: str, name: str) -> str:
        """Demangle a name with this library file; "" if the library fails or takes too long."""
        with self._lock:
            if self._child is None or self._owner != os.getpid():  # after a fork the child belongs to the parent
                if self._lost == _MOST_LOST:
                    return ""
                self._child, self._owner = self._started(library), os.getpid()
            assert self._child is not None and self._child.stdin is not None and self._child.stdout is not None
            try:
                self._child.stdin.write(name.encode() + b"\n")
                self._child.stdin.flush()
                line = self._child.stdout.readline()
            except OSError:
                line = b""
            if not line.endswith(b"\n"):
                self._child.kill()
                self._child.communicate()
                self._child, self._lost, line = None, self._lost + 1, b""
            return line.rstrip(b"\n").decode("utf-8", "replace")

    @staticmethod
    def _started(library: str) -> Popen[bytes]:
        import subprocess

        command = [sys.executable, "-I", "-S", "-c", _CHILD, library, str(_MOST_MADE)]
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, close_fds=True)


_CHILDREN = _Children()


def function_name(name: str) -> str:
    """Demangle a name and keep only the function and its template arguments: "_Z3rowIfEvPKT_" gives "row<float>"."""
    whole = demangled(name)
    if whole == name:
        return name
    opening = _parameters_at(whole)
    head = whole if opening is None else whole[:opening]
    depth, start = 0, 0
    for index, character in enumerate(head):  # the return type ends at the last blank outside brackets
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == " " and depth == 0 and not head.startswith(("(anonymous", "{lambda"), start):
            start = index + 1
    return head[start:].strip() or whole


def _parameters_at(declaration: str) -> int | None:
    """Find the position of the "(" that matches the last ")", which opens the list of parameters; None without one."""
    depth = 0
    end = declaration.rfind(")")
    for index in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(declaration[index], 0)
        if depth == 0:
            return index if end >= 0 else None
    return None


@functools.lru_cache(maxsize=1)
def _library() -> tuple[str, Any] | None:
    for file in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            library = ctypes.CDLL(file)
            library.__cxa_demangle.restype = ctypes.c_void_p
            return file, library
        except (OSError, AttributeError):
            continue
    return None
