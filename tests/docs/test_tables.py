"""docs/_cog: the tables of the docs say what the results say, and the command line's reference has every argument."""

from __future__ import annotations

import sys

from repository import ROOT

from tritonhook.cli import VERBS
from tritonhook.report.result import kinds

sys.path.append(str(ROOT / "docs" / "_cog"))

import pages
from results import result


def test_the_reference_of_the_command_line_has_every_verb_and_argument() -> None:
    text = pages.cli_reference()
    for verb in VERBS:
        assert f"\n## tritonhook {verb}\n" in text
    for action in ("predict", "watch", "compare"):
        assert f"\n### tritonhook mem {action}\n" in text
    assert "| `--fail-on slower|faster` |" in text
    assert "%(" not in text


def test_the_reference_of_the_json_documents_has_every_kind_and_field() -> None:
    text = pages.json_documents()
    for kind, schema in kinds().items():
        assert f"`kind` is `{kind}`" in text
        for field in set(schema.__struct_encode_fields__) - {"format", "kind"}:
            assert f"`{field}`" in text, (kind, field)


def test_all_known_bugs_are_on_the_page_of_results() -> None:
    text = pages.measurements()
    for bug in result("miscompiles")["bugs"]:
        assert f"| `{bug['bug']}` |" in text and bug["remedy"].capitalize() in text
