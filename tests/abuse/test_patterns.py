"""Every regular expression of the package ends on long texts that are made for it: runs of the characters it asks for,
and of pairs of them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from typing import Any

from damage import NoEnd, no_hang
from repository import ROOT

import tritonhook

from .conftest import LARGE

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

LENGTH = 1 << 17 if LARGE else 1 << 10
USUAL = " -='\"\\\n\t,._0aA"
FLAGS = ("ASCII", "DOTALL", "IGNORECASE", "MULTILINE", "VERBOSE")
AT_A_PLACE, ANYWHERE = {"match", "fullmatch"}, {"search", "finditer", "findall", "sub", "split"}
# Searched for in texts in which each of their repetitions is short:
BOUNDED = {
    "tritonhook.emulate.sass.site._OPERAND": "the operands of one instruction of nvdisasm's",
    "tritonhook.snapshot.schema._ITEM": "a table that _LINE has matched",
    "tritonhook.snapshot.schema._LINE": "a whole line",
    "tritonhook.ptx.linkage_names._VALUE": "a whole token",
    r"\s*([,{}\[\]+])\s*": "text without two blanks in a row",
}


def patterns() -> Iterator[tuple[re.Pattern[Any], bool]]:
    """Those that modules keep, and those that are written in calls; and whether they are searched for in a text."""
    uses: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tritonhook").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(function := node.func, ast.Attribute):
                continue
            owner = ast.unparse(function.value)
            uses[owner.rpartition(".")[2]].add(function.attr)
            text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            wanted = owner == "re" and function.attr in AT_A_PLACE | ANYWHERE
            if wanted and isinstance(text, (str, bytes)) and text not in BOUNDED:
                flags = sum(getattr(re, name) for name in FLAGS if f"re.{name}" in ast.unparse(node))
                yield re.compile(text, flags), function.attr in ANYWHERE
    for module in pkgutil.walk_packages(tritonhook.__path__, "tritonhook."):
        if not module.name.endswith(("__main__", "_program")):
            try:
                values = vars(importlib.import_module(module.name))
            except ImportError:  # of a front end that is not here
                continue
            for name, value in values.items():
                if isinstance(value, re.Pattern) and f"{module.name}.{name}" not in BOUNDED:
                    yield value, bool(uses[name] & ANYWHERE)


def asked_for(parsed: Any) -> Iterator[str]:
    """One character of each kind that a parsed pattern asks for."""
    for operation, value in parsed:
        if str(operation) in ("LITERAL", "NOT_LITERAL"):
            yield chr(value)
        elif str(operation) == "RANGE":
            yield chr(value[0])
        elif str(operation) == "CATEGORY":
            yield {"DIGIT": "1", "SPACE": " ", "WORD": "a"}.get(str(value).rpartition("_")[2], "-")
        elif str(operation) == "ANY":
            yield "~"
        else:
            parts = value if isinstance(value, (tuple, list)) else ()
            nested = [p for part in parts for p in (part if isinstance(part, list) else [part])]
            for part in [value] if str(operation) == "IN" else nested:
                if isinstance(part, (parser.SubPattern, list)):
                    yield from asked_for(part)


def test_every_pattern_ends() -> None:
    slow = []
    found = {(pattern.pattern, pattern.flags, searched): pattern for pattern, searched in patterns()}
    assert len(found) > 100
    for (text, flags, searched), pattern in found.items():
        characters = list(dict.fromkeys([*asked_for(parser.parse(text, flags)), *USUAL]))
        pairs = ["".join(pair) for pair in permutations(characters[:8], 2)] if LARGE else []
        try:
            with no_hang():
                for run in (*characters[:16], *pairs):
                    long = run * (LENGTH // len(run)) + "\x01"
                    given: Any = long if isinstance(text, str) else long.encode()
                    for _ in pattern.finditer(given) if searched else (pattern.match(given),):
                        pass
        except NoEnd:
            slow.append((text, run))
    assert not slow
