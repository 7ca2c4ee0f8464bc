"""Normal form of PTX and kernel names, equal from build to build: text without parts that cannot reach the machine
code, names without parts that compilers change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

_DEBUG_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{[^{}]*\}")
# Whole lines, and sections whose last brace is in no comment. The line break in front, a literal, is found at once.
_POSITIONS = re.compile(
    r'\n[ \t]*\.(?:(?:loc\s[^\n;"/]*|file\s+\d+\s+"[^"\n]*"(?:\s*,\s*\d+){0,2}[ \t]*)(?://[^\n]*)?'
    r"|section\s+\.debug_\w+\s*\{(?:[^{}/]*|[^{}]*\n[ \t]*)\}[ \t]*)(?=\n|\Z)",
)
_FOR_DEBUGGERS = re.compile(r"\n[ \t]*\.target\s[^\n]*\bdebug\b")
_COMMENT_OR_STRING = re.compile(r'"[^"]*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOISE = re.compile(
    r'\.version\s+[\d.]+|\.loc\s[^\n;]*|\.file\s+\d+\s+"[^"]*"(?:\s*,\s*\d+){0,2}|\$L__(?:tmp|func_begin|func_end)\d+:'
)


def normal_form(text: str) -> str:
    """Convert PTX to normal form."""
    code = _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)
    return " ".join(_NOISE.sub(" ", _DEBUG_SECTION.sub(" ", code)).split())


def without_positions(text: str) -> str:
    """Remove source positions and debug sections, so that the text names no file of the machine that made it. ptxas
    makes the same machine code from it. A module for debuggers stays unchanged, and so does a module where such lines
    look like code."""
    if _FOR_DEBUGGERS.search(text):
        return text
    shorter = _POSITIONS.sub("", text)
    # Without block comments these lines cannot be anything else. Two normal forms cost seven times as much.
    return shorter if "/*" not in text or normal_form(shorter) == normal_form(text) else text


def normal_sha256(text: str, kernel: str) -> str:
    """Hash the normal form with a neutral kernel name. An opcode can be spelled like the name: a dot follows the
    opcode, so it stays."""
    own = re.escape(kernel)
    # Begins with a literal, which is found 30 times as fast.
    name = re.compile(rf"{own}(?=_param_\d|(?![\w$.]))(?<![\w$.%]{own})", re.ASCII)
    return hashlib.sha256(name.sub("{kernel}", normal_form(text)).encode()).hexdigest()


_HASH = re.compile(r"_[0-9a-f]{8}", re.ASCII)
# Up to the file's name. The standard name of an anonymous namespace is 12_GLOBAL__N_1.
_HASHED = re.compile(
    r"(?:(?P<anonymous>(?<!\d)\d+_GLOBAL__N_)|__nv_static_\d+_)_[0-9a-f]{8}_(?P<length>\d{1,4})_", re.ASCII
)
_STANDARD = "12_GLOBAL__N_1"
_NUMBERED = re.compile(r"(?:triton_(?=\w*_fused)|kernel_cutlass_)\w+", re.ASCII)  # before its _<number>


def lasting_name(name: str) -> str:
    """Shorten a kernel's name to the part that stays the same from build to build."""
    stem, _, number = name.rpartition("_")
    is_numbered = number.isascii() and number.isdigit() and _NUMBERED.fullmatch(stem)
    return stem if is_numbered else without_hashes(name)


def source_file(name: str) -> str | None:
    """Find the file in the name of a function with internal linkage, e.g. "anon_cu"; None for other names."""
    return next((file for _, _, _, file in _hashed(name)), None)


def without_hashes(text: str) -> str:
    """Remove nvcc's hashes from a name or from PTX."""
    parts, at = [], 0
    for start, end, instead, _ in _hashed(text):
        parts += [text[at:start], instead]
        at = end
    return "".join([*parts, text[at:]])


def _hashed(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Find what nvcc adds: where it begins and ends, the same without hashes, and the file in it."""
    if "_GLOBAL__N_" not in text and "__nv_static_" not in text:  # long texts of other compilers
        return
    for match in _HASHED.finditer(text):
        file_end = match.end() + int(match["length"])
        if second := _HASH.match(text, file_end):
            is_static = match["anonymous"] is None
            yield match.start(), second.end() + is_static, "" if is_static else _STANDARD, text[match.end() : file_end]
