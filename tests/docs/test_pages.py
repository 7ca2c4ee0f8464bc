"""README, CONTRIBUTING and docs: links lead somewhere, commands parse, Python is Python, variables are described."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
from repository import ROOT

from tritonhook.cli import VERBS, parser

sys.path.append(str(ROOT / "docs" / "_cog"))

import pages

TOP = [
    ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG", "SKILL", "benchmarks/README")
]
PAGES = [*TOP, ROOT / "docs" / "index.md", *sorted((ROOT / "docs").glob("[a-z]*/*.md"))]
MADE = {f"{name}.md" for name in pages.PAGES}  # docs/_cog/pages.py adds them when the site is built


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The ids that headings get, as MkDocs and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http:", "https:")):
            continue
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        if place.name in MADE and place.parent.name == "reference":
            continue
        assert place.exists(), link
        if anchor:
            assert anchor in anchors(place), link


def words_of(command: str) -> list[str]:
    """The words of a shell command, up to a comment, a pipe or a redirection."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    ends = [index for index, word in enumerate(words) if set(word) <= set("|<>&;")]
    return words[: min(ends, default=len(words))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_parse(page: Path) -> None:
    whole = parser()
    for command in re.findall(r"^\$ (?:\w+=\S+ )*(tritonhook .*)$", page.read_text(), re.MULTILINE):
        words = words_of(command)[1:]
        if words[0] in ("ab", "verify", "tune") and "--" in words:  # what follows is for the script
            words = words[: words.index("--")]
        assert whole.parse_args(words).verb == words[0], command


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_verbs_exist(page: Path) -> None:
    for verb in re.findall(r"`tritonhook ([a-z]+)", page.read_text()):
        assert verb in VERBS, verb


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_blocks_are_python(page: Path) -> None:
    for block in code(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tritonhook"):
                module = import_module(node.module or "")
                for name in node.names:
                    assert hasattr(module, name.name), f"{node.module}: {name.name}"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("gluon_kernels", "sm120_attn")):
                place = ROOT.joinpath(*(node.module or "").split("."))
                assert place.is_dir() or place.with_suffix(".py").exists(), node.module


def test_every_environment_variable_is_described() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    described = set(re.findall(r"`((?:TRITONHOOK|SM120_ATTN)_\w+)`", page))
    sources = (
        p.read_text() for room in ("tritonhook", "sm120_attn", "gluon_kernels") for p in (ROOT / room).rglob("*.py")
    )
    used = {name for text in sources for name in re.findall(r"\b(?:TRITONHOOK|SM120_ATTN)_[A-Z0-9_]*[A-Z0-9]\b", text)}
    assert used == described


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_paths_exist(page: Path) -> None:
    """Paths in backticks, but for those with a placeholder in capitals."""
    rooms = "benchmarks|docs|examples|gluon_kernels|sm120_attn|tests|tritonhook"
    for path in re.findall(rf"`((?:{rooms})/[\w./-]*)`", page.read_text()):
        assert (ROOT / path).exists() or re.search(r"/[A-Z]+\.", path), path


def test_pages_that_sources_name_exist() -> None:
    for room in ("tritonhook", "sm120_attn", "gluon_kernels", "benchmarks", "tests", "examples"):
        for path in (ROOT / room).rglob("*.py"):
            for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text()):
                assert (ROOT / name).exists() or Path(name).name in MADE, f"{named(path)}: {name}"
