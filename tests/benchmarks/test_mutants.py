"""Which mutants count, on changes that mutmut makes; and which are drawn."""

from __future__ import annotations

from textwrap import indent

import pytest

from benchmarks.mutants import drawn, logic_mutants


def module(before: str, after: str) -> str:
    """A module of mutmut with one mutant; a line that begins with "def" is the function's own."""
    functions = []
    for number, line in (("orig", before), ("1", after)):
        head, body = (line, "pass") if line.startswith("def f") else ("def f(x):", line)
        functions.append(f"{head.replace('def f', f'def xǁBoxǁf__mutmut_{number}')}\n{indent(body, '    ')}\n")
    return "\n".join(functions)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("if x >= 0: return 1", "if x > 0: return 1", True),
        ("if x >= 0: return 1", "if x >= 1: return 1", True),
        ("if x >= 0: return 1", "if x >= 0: return 2", True),
        ("names = set(x[0].kwargs) if x else set()", "names = set(x[1].kwargs) if x else set()", True),
        ("super().__init__(text, x, pc, line)", "super().__init__(text, x, None, line)", True),
        ("return Pin(x, 'a', None, gpu)", "return Pin(x, 'a', gpu)", True),
        ("return x in names", "return x not in names", True),
        ("return x.partition('.')", "return x.rpartition('.')", True),
        ("return f(x, 'a')", "return f('a')", True),
        ("run(x, text=False)", "run(x, )", True),
        ("return [*zip(a, b, strict=True)]", "return [*zip(a, b, strict=False)]", False),
        ("return [*zip(a, b, strict=True)]", "return [*zip(a, b, strict=None)]", False),
        ("return [*zip(a, b, strict=True)]", "return [*zip(a, b, )]", False),
        ("return [*zip(a, b, strict=True)]", "return [*zip(a, None, strict=True)]", True),
        ("raise UsageError('--out: not with --table')", "raise UsageError(None)", False),
        ("complain('after the script', x)", "complain(x)", False),
        ("complain(f'after {x}', x)", "complain(None, x)", False),
        ("complain(f'after {x}', x)", "complain(f'after {x}', None)", True),
        ("return f\"not one of {', '.join(x)}\"", "return f\"not one of {'XX, XX'.join(x)}\"", False),
        ("tool = Tool(x, 'Triton')", "tool = Tool(x, 'TRITON')", False),
        ("found = {'us': x, 'n': 1}", "found = {'XXusXX': x, 'n': 1}", False),
        ("found = {'us': x, 'n': 1}", "found = {'us': x, 'n': 2}", True),
        ("def f(self, k: int, heads: int = 1) -> int:", "def f(self, k: int, heads: int = 2) -> int:", False),
        ("def f(self, *, zero: bool = True):", "def f(self, *, zero: bool = False):", False),
    ],
)
def test_mutants_of_logic_and_numbers_count(before: str, after: str, counts: bool) -> None:
    assert logic_mutants(module(before, after)) == ({"xǁBoxǁf__mutmut_1"} if counts else set())


def test_mutants_that_were_not_tried_are_drawn_and_another_day_draws_others() -> None:
    modules = {
        "tritonhook/ptx/module.py": {f"ptx.module.{n}": None for n in range(90)},
        "tritonhook/rename.py": {"rename.0": 0, "rename.1": None},
    }
    names = drawn(modules, 15, "a")
    assert len(set(names)) == 15 and names == drawn(modules, 15, "a") != drawn(modules, 15, "b")
    assert set(drawn(modules, 1000, "a")) == {*modules["tritonhook/ptx/module.py"], "rename.1"}, "one was tried"
