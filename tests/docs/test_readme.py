"""README: it stays short, its make targets exist, and CI runs its test command."""

import re

from repository import ROOT

TEXT = (ROOT / "README.md").read_text()


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", TEXT))
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_ci_runs_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert ".ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= 130
    assert len(TEXT.split()) <= 900
    assert len(re.findall(r"^\|[ -]*---", TEXT, re.MULTILINE)) <= 2, "tables"
