"""The programs of bug_examples.ptx, by the name of their bug."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEAD = """.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
.reg .b64 %out, %in, %d<9>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<9>;
ld.param.b64 %out, [k_param_0]; ld.param.b64 %in, [k_param_1];
"""
_PROGRAM = re.compile(
    r"// BUG (?P<bug>\S+): (?P<threads>\d+) threads?, %in (?P<given>\w*), %out (?P<expected>\w+)\n(?P<lines>.*?)\n"
    r"// NEAR: %out (?P<near_expected>\w+)\n(?P<near>.*?)\n(?=// BUG|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Example:
    """A small program that ptxas assembles wrongly. lines: they read from %in and write to %out.

    given, expected: the bytes at %in, and those at %out after the launch of one block. near: nearly the same lines,
    which every ptxas assembles rightly, and their result for the same bytes. threads: of the block; all store the same.
    """

    lines: str
    given: bytes
    expected: bytes
    near: str
    near_expected: bytes
    threads: int


def ptx_of(lines: str, target: str, version: str) -> str:
    """Write a module that has the kernel `k(out, in)`."""
    return f"{_HEAD.format(version=version, target=target)}{lines}\nret;\n}}\n"


def _read(match: re.Match[str]) -> Example:
    given, expected, near_expected = (bytes.fromhex(match[name]) for name in ("given", "expected", "near_expected"))
    return Example(match["lines"], given, expected, match["near"], near_expected, int(match["threads"]))


_FILE = Path(__file__).with_suffix(".ptx").read_text()
EXAMPLES = {match["bug"]: _read(match) for match in _PROGRAM.finditer(_FILE)}
