"""The normal form of PTX: its text without what cannot reach the machine code: positions in the source, comments, debug
sections, blanks, and `.version`, which only says what may stand in the text."""

from __future__ import annotations

import hashlib
import re

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
    """The text in normal form."""
    code = _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)
    return " ".join(_NOISE.sub(" ", _DEBUG_SECTION.sub(" ", code)).split())


def without_positions(text: str) -> str:
    """The text without positions in the source and without debug sections: it names no file of the machine that it was
    made on, and ptxas makes the same machine code of it. A module for debuggers stays as it is, and so does one where
    these cannot be told from the code."""
    if _FOR_DEBUGGERS.search(text):
        return text
    shorter = _POSITIONS.sub("", text)
    # Without block comments these lines cannot be anything else. Two normal forms cost seven times as much.
    return shorter if "/*" not in text or normal_form(shorter) == normal_form(text) else text


def normal_sha256(text: str, kernel: str) -> str:
    """The hash of the normal form, in which the kernel has no name of its own. An opcode that is spelled as the name is
    no name: a dot follows it."""
    own = re.escape(kernel)
    # Begins with a literal, which is found 30 times as fast.
    name = re.compile(rf"{own}(?=_param_\d|(?![\w$.]))(?<![\w$.%]{own})", re.ASCII)
    return hashlib.sha256(name.sub("{kernel}", normal_form(text)).encode()).hexdigest()
