"""The normal form of PTX: its text without what cannot reach the machine code: positions in the source, comments, debug
sections, blanks, and `.version`, which only says what may stand in the text."""

from __future__ import annotations

import hashlib
import re

_DEBUG_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{[^{}]*\}")
_COMMENT_OR_STRING = re.compile(r'"[^"]*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOISE = re.compile(
    r'\.version\s+[\d.]+|\.loc\s[^\n;]*|\.file\s+\d+\s+"[^"]*"(?:\s*,\s*\d+){0,2}|\$L__(?:tmp|func_begin|func_end)\d+:'
)


def normal_form(text: str) -> str:
    """The text in normal form."""
    code = _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)
    return " ".join(_NOISE.sub(" ", _DEBUG_SECTION.sub(" ", code)).split())


def normal_sha256(text: str, kernel: str) -> str:
    """The hash of the normal form, in which the kernel has no name of its own. An opcode that is spelled as the name is
    no name: a dot follows it."""
    own = re.escape(kernel)
    # Begins with a literal, which is found 30 times as fast.
    name = re.compile(rf"{own}(?=_param_\d|(?![\w$.]))(?<![\w$.%]{own})", re.ASCII)
    return hashlib.sha256(name.sub("{kernel}", normal_form(text)).encode()).hexdigest()
