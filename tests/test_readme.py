"""The README: its links lead somewhere, its commands parse, its Python is Python, its table is the demo's."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from tritonhook.cli import parser
from tritonhook.microkernel import CONDITIONS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
COMMANDS = sorted(set(re.findall(r"`(tritonhook [^`]+)`", TEXT)))


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    for link in links:
        if not link.startswith("http"):
            assert (ROOT / link).exists(), link


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command: str) -> None:
    words = shlex.split(re.sub(r"\[([^]]*?)( \\\|[^]]*)?\]", r"\1", command))[1:]
    arguments = parser().parse_args([w for w in words if w != "..."])
    assert arguments.verb == words[0]


def test_python_blocks_are_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    for block in blocks:
        ast.parse(block)


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_the_table_has_every_condition_with_its_published_ratios() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("| ")]
    cells = {re.sub(r"[`*]|\(added\)", "", row[0]).strip(): row for row in rows}
    for item in CONDITIONS:
        row = cells[item.title]
        expected = ("-", "-") if item.published is None else tuple(f"{ratio:.2f}" for ratio in item.published)
        assert (row[1], row[4]) == expected, item.title
