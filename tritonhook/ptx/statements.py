"""Split a PTX module into statements: opcode, operands, function and position of each, without comments and strings.

What an instruction means is not known here. Positions are positions in the module's text, so that a caller can
replace a token in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.ptx.module import OPAQUE, Ptx

_HEAD = re.compile(
    r"\s*(?:[A-Za-z_$%][\w$]*\s*:(?!:)\s*)*(?P<guard>@\s*!?\s*[\w$%]+\s+)?(?P<opcode>[a-z_.][\w.:]*)", re.ASCII
)
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([A-Za-z_$%][\w$]*)", re.ASCII)
_OPENERS = {"[": "]", "{": "}", "(": ")"}
# Directives that end without a semicolon, with their operands and nothing more: another statement may follow on the
# same line.
_UNENDED = re.compile(
    r"(?<![\w$.])\.(?:version\s+[\d.]+|target\s+\w+(?:\s*,\s*\w+)*|address_size\s+\d+"
    r"|file\s+\d+(?:\s*,\s*\d+\s*,\s*\d+)?"
    r"|loc\s+\d+\s+\d+\s+\d+(?:\s*,\s*function_name\s+[\w$%]+(?:\s*\+\s*\d+)?"
    r"\s*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?)",
    re.ASCII,
)
_LABELS = re.compile(r"\s*(?:[A-Za-z_$%][\w$]*\s*:(?!:)\s*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: an instruction, or a directive such as `.reg`, whose opcode starts with a dot. A statement that
    cannot be read is listed too, with the opcode "" and no operands.

    operands: split at top-level commas, white space stripped. position: where the opcode starts in the module's text.
    function: the entry or function that it belongs to, "" at module level.
    scopes: numbers of the open blocks, outermost first; registers declared in an inner block hide outer ones.
    """

    opcode: str
    operands: tuple[str, ...]
    position: int
    function: str
    scopes: tuple[int, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode and its qualifiers: "cp.async.bulk" gives ("cp", "async", "bulk"); "::" stays within one."""
        return tuple(self.opcode.split("."))


def bare(ptx: Ptx) -> str:
    """The module's text with comments, strings and `.loc`-like directives replaced by blanks; positions stay."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return _UNENDED.sub(blank, OPAQUE.sub(blank, ptx.text))


def line_of(ptx: Ptx, position: int) -> int:
    """The number of the line, from 1."""
    return ptx.text.count("\n", 0, position) + 1


def headers(ptx: Ptx) -> dict[str, str]:
    """The text before the body of each entry and function: parameters and directives such as `.reqntid`."""
    found: dict[str, str] = {}
    for chunk, _, opens, depth in _chunks(bare(ptx)):
        if opens and depth == 0 and (match := _FUNCTION.search(chunk)):
            found[match[1]] = chunk
    return found


def bodies(ptx: Ptx) -> dict[str, int]:
    """Where the body of each entry and function begins: the position behind its `{`. A declaration has none."""
    found: dict[str, int] = {}
    for chunk, start, opens, depth in _chunks(bare(ptx)):
        if opens and depth == 0 and (match := _FUNCTION.search(chunk)):
            found[match[1]] = start + len(chunk) + 1
    return found


def statements(ptx: Ptx) -> Iterator[Statement]:
    """Yield every statement in order. Initialisers of variables belong to their `.global` or `.shared` statement."""
    function, blocks = "", 0
    scopes: list[int] = []
    for chunk, start, opens, depth in _chunks(bare(ptx)):
        if opens is None:  # a block ends
            scopes = scopes[:-1]
            if not scopes:
                function = ""
            continue
        if opens:
            blocks += 1
            if depth == 0:
                match = _FUNCTION.search(chunk)
                function = match[1] if match else ""
            scopes = [*scopes, blocks]
            continue
        if (match := _HEAD.match(chunk)) is not None:
            rest = chunk[match.end() :]
            place = start + match.start("opcode")
            yield Statement(match["opcode"], tuple(split_operands(rest)), place, function, tuple(scopes))
        elif not _LABELS.fullmatch(chunk):
            place = start + len(chunk) - len(chunk.lstrip())
            yield Statement("", (), place, function, tuple(scopes))


def recursive_entries(ptx: Ptx) -> tuple[str, ...]:
    """Entries that can reach a cycle of direct calls, or an `alloca`: the text gives no bound of their stack.
    Indirect calls are not followed."""
    if not re.search(r"\b(?:call|alloca)\b", ptx.text):
        return ()
    reached = reached_functions(ptx)
    unbounded = {item.function for item in statements(ptx) if item.parts[0] == "alloca"}
    unbounded |= {name for name, others in reached.items() if name in others}
    return tuple(entry for entry in ptx.entries if {entry, *reached[entry]} & unbounded)


def reached_functions(ptx: Ptx) -> dict[str, set[str]]:
    """The functions that each entry, and each function with calls, reaches by direct calls."""
    calls: dict[str, set[str]] = {}
    for item in statements(ptx):
        if item.parts[0] == "call" and item.function:
            names = (name for operand in item.operands for name in re.findall(r"[\w$]+", operand))
            calls.setdefault(item.function, set()).update(name for name in names if name in ptx.functions)
    return {name: _reachable(name, calls) for name in {*calls, *ptx.entries}}


def stackless_entries(ptx: Ptx) -> frozenset[str]:
    """The entries that ask for no stack: they have no variables in local memory, and call nothing."""
    if not re.search(r"\.local\b|\b(?:call|alloca)\b", ptx.text):
        return frozenset(ptx.entries)
    asking = {
        item.function
        for item in statements(ptx)
        if item.opcode in (".local", "") or item.parts[0] in ("call", "alloca")
    }
    return frozenset() if "" in asking else frozenset(ptx.entries) - asking


def _reachable(start: str, calls: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(calls.get(start, ()))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += calls.get(name, ())
    return found


def split_operands(text: str) -> list[str]:
    """Split operands at commas outside brackets."""
    found, depth, last = [], 0, 0
    for index, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[last:index].strip())
            last = index + 1
    tail = text[last:].strip()
    return [*found, tail] if tail else found


def _chunks(text: str) -> Iterator[tuple[str, int, bool | None, int]]:
    """Cut bare text into pieces that end with `;` (False), with `{` that opens a block (True) or with `}` that closes
    one (None). Yields each piece, where it starts, that mark, and how many blocks are open around it. Braces inside a
    statement belong to it."""
    start, depth, inside = 0, 0, 0
    for match in re.finditer(r"[;{}]", text):
        mark, at = match[0], match.start()
        if inside:
            inside += {"{": 1, "}": -1, ";": 0}[mark]
            continue
        if mark == ";":
            yield text[start:at], start, False, depth
        elif mark == "{":
            if not _opens_block(text[start:at]):
                inside = 1
                continue
            yield text[start:at], start, True, depth
            depth += 1
        else:
            yield text[start:at], start, None, depth
            depth -= 1
        start = at + 1


def _opens_block(before: str) -> bool:
    """Whether a `{` after this text opens a block: after nothing, a label, or the head of a function. Any other `{`
    begins a vector operand, an initialiser, or the DWARF bytes of a `.section`."""
    head = before.strip()
    return head == "" or head.endswith(":") or (_FUNCTION.search(head) is not None and ";" not in head)
