"""docs/_cog: the tables of the docs say what the results say, and the command line's reference has every argument."""

from __future__ import annotations

import sys
from copy import deepcopy

import pytest
from repository import ROOT

from tritonhook.cli import VERBS
from tritonhook.report.result import kinds

sys.path.append(str(ROOT / "docs" / "_cog"))

import gluon_tables
import name_tables
import pages
from results import percent, result


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table without its header."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("ratio", "text"), [(1.079, "+7.9%"), (0.968, "-3.2%"), (0.9999, "0.0%"), (1.0001, "0.0%")])
def test_a_ratio_as_a_change(ratio: float, text: str) -> None:
    assert percent(ratio) == text


def test_a_changed_result_changes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    before = name_tables.name_effect(name_tables.README_ROWS)
    document = deepcopy(result("name_effect"))
    for row in document["samples"]:
        if row.get("ratio"):
            row["ratio"] *= 1.01
    monkeypatch.setattr(name_tables, "result", lambda _: document)
    assert name_tables.name_effect(name_tables.README_ROWS) != before


def test_a_stripped_row_is_turned_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the candidate lacks the trigger; the table says what the trigger does."""
    side = {"k": [{"registers": 1}]}, {"k": [{"registers": 2}]}
    row = {
        "kernel": "targets:one",
        "ptxas": "1.2.3",
        "verdict": "faster",
        "stripped": True,
        "ratio": 0.8,
        "interval": [0.5, 1.0],
        "comparison": {"kernels": dict(zip(("reference", "candidate"), side, strict=True))},
        "code": {"k": "different code: 3 of 10 instructions only in a, 4 of 11 only in b"},
    }
    monkeypatch.setattr(name_tables, "result", lambda _: {"samples": [row]})
    (found,) = cells(name_tables.name_effect())
    assert found == ["one", "1.2.3", "+25.0%", "0.0% to +100.0%", "2 to 1", "4 of 11", "3 of 10"]


def test_the_speeds_are_those_of_the_samples() -> None:
    for name in ("gluon_h100", "gluon_h200"):
        document = result(name)
        rows = cells(gluon_tables.gluon(name))
        assert len(rows) == len(document["samples"])
        labels = [one for one in gluon_tables.GLUON if any(one in sample["tflops"] for sample in document["samples"])]
        for row, sample in zip(rows, document["samples"], strict=True):
            assert row[0] == sample["shape"]
            for text, label in zip(row[1:], labels, strict=True):
                speeds = [sample.get(key, {}).get(label) for key in ("tflops", "tflops_eager")]
                assert text == " / ".join(f"{speed:.0f}" for speed in speeds if speed is not None)


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


def test_all_rows_are_on_the_page_of_results() -> None:
    text = pages.measurements()
    assert name_tables.name_effect() in text
    for sample in result("gluon_h200")["samples"]:
        assert f"| {sample['shape']} |" in text
