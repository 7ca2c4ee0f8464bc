"""Normal forms that stay equal from build to build: PTX without the parts that cannot affect the machine code, and
kernel names without the parts that compilers change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

_DEBUG_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{[^{}]*\}")
# Lines with source positions, and debug sections. A match is a whole line, or a section whose closing brace is not in a
# comment. The pattern starts with a literal line break, which makes the search fast.
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
    """Convert PTX to its normal form: without comments, `.version`, source positions, debug sections and extra
    blanks."""
    code = _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)
    return " ".join(_NOISE.sub(" ", _DEBUG_SECTION.sub(" ", code)).split())


def without_positions(text: str) -> str:
    """Remove source positions and debug sections, so that the text contains no file name of the machine that compiled
    it. ptxas makes the same machine code from it. A module that was compiled for debuggers stays unchanged. So does a
    module with block comments if the removal would change its normal form."""
    if _FOR_DEBUGGERS.search(text):
        return text
    shorter = _POSITIONS.sub("", text)
    # Without block comments, each match is a source position or debug section, so that the normal form stays. Comparing
    # normal forms takes seven times as long.
    return shorter if "/*" not in text or normal_form(shorter) == normal_form(text) else text


def normal_sha256(text: str, kernel: str) -> str:
    """Hash the normal form of PTX, with the kernel's name replaced by "{kernel}". An opcode that is spelled like the
    kernel is not replaced, since a dot follows it."""
    own = re.escape(kernel)
    # The pattern begins with a literal, which makes the search 30 times as fast.
    name = re.compile(rf"{own}(?=_param_\d|(?![\w$.]))(?<![\w$.%]{own})", re.ASCII)
    return hashlib.sha256(name.sub("{kernel}", normal_form(text)).encode()).hexdigest()


_HASH = re.compile(r"_[0-9a-f]{8}", re.ASCII)
# How nvcc's name of an anonymous namespace or of a static function begins; the file name follows. The C++ ABI names an
# anonymous namespace 12_GLOBAL__N_1.
_HASHED = re.compile(
    r"(?:(?P<anonymous>(?<!\d)\d+_GLOBAL__N_)|__nv_static_\d+_)_[0-9a-f]{8}_(?P<length>\d{1,4})_", re.ASCII
)
_STANDARD = "12_GLOBAL__N_1"
# Kernel names that Inductor and the CuTe DSL make, without the number at their end.
_NUMBERED = re.compile(r"(?:triton_(?=\w*_fused)|kernel_cutlass_)\w+", re.ASCII)


def lasting_name(name: str) -> str:
    """Shorten a kernel's name to the part that stays the same from build to build."""
    stem, _, number = name.rpartition("_")
    is_numbered = number.isascii() and number.isdigit() and _NUMBERED.fullmatch(stem)
    return stem if is_numbered else without_hashes(name)


def source_file(name: str) -> str | None:
    """Extract the source file from nvcc's name of a function with internal linkage, e.g. "anon_cu"; None for other
    names."""
    return next((file for _, _, _, file in _hashed(name)), None)


def without_hashes(text: str) -> str:
    """Remove nvcc's hashes from a name or from PTX."""
    parts, at = [], 0
    for start, end, instead, _ in _hashed(text):
        parts += [text[at:start], instead]
        at = end
    return "".join([*parts, text[at:]])


def _hashed(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield each hashed part that nvcc puts into a name: start, end, its replacement without hashes, and the file."""
    if "_GLOBAL__N_" not in text and "__nv_static_" not in text:  # fast path for long texts of other compilers
        return
    for match in _HASHED.finditer(text):
        file_end = match.end() + int(match["length"])
        if second := _HASH.match(text, file_end):
            is_static = match["anonymous"] is None
            yield match.start(), second.end() + is_static, "" if is_static else _STANDARD, text[match.end() : file_end]
