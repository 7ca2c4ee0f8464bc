"""The README: its links lead somewhere, its commands parse, its Python is Python, its table is the demo's."""

import ast
import json
import re
import shlex

import pytest
from repository import ROOT

from tritonhook.cli import parser
from tritonhook.lab.kernels.published import CONDITIONS

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


def test_the_costs_are_those_of_the_committed_results() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "overhead.json").read_text())
    own, peer = results["summary"], results["peers"]["tritonparse"]["summary"]
    table = TEXT[TEXT.index("## What it costs") : TEXT.index("## Finding your way")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    order = [  # as in the README, with the factor from the file's unit to the README's
        ("compile_miss_added_ratio", 100),
        ("disk_hit_added_ms", 1),
        ("disk_hit_on_disk_added_ms", 1),
        ("disk_hit_repeat_added_ms", 1),
        ("launch_added_us", 1),
        ("launch_renamed_added_us", 1),
        ("import_ms", 1),
        ("rename_ms", 1),
        ("diff_s", 1),
        ("diff_own_ms", 1),
    ]
    values = [row for row in rows if row[2] != "tritonhook"]
    assert len(values) == len(order)
    for row, (name, factor) in zip(values, order, strict=True):
        assert float(row[2].split()[0]) == pytest.approx(factor * own[name], rel=0.06), name
        if row[3]:
            assert float(row[3].split()[0]) == pytest.approx(factor * peer[name], rel=0.06), name
        if name in results["goals"]:
            assert own[name] < results["goals"][name], name


def test_the_tables_of_the_ptxas_lab_are_those_of_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import name_trigger

    document = json.loads((ROOT / "benchmarks" / "results" / "name_trigger.json").read_text())
    page = (ROOT / "docs" / "ptxas-lab.md").read_text()
    assert name_trigger.readme_table(document) in TEXT
    assert name_trigger.matrix(document) in page
    summary = document["summary"]
    for name in ("cells", "cells_compared", "cells_changed", "crashes", "code_changed", "capmerc_changed"):
        assert f"{summary[name]:,}" in page, name
    assert summary["cells_unsteady"] == summary["capmerc_changed_alone"] == 0
    assert {level: changed for level, (changed, _) in document["by_level"].items() if changed} == {"-O3": 112}
    changing = {name for name, (changed, _) in document["by_name"].items() if changed}
    assert changing == {name for name in document["by_name"] if "cutlass" in name}
    changed, compared = document["by_name"]["cutlass_*"]
    assert f"({changed:,} of {compared:,} compared cells" in page
    (sentence,) = document["triggers"]
    assert sentence == "minimal trigger: `cutlass`, case-sensitive, anywhere in the name"


def test_the_wrong_answer_of_some_ptxas_is_what_was_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import ptxas_fp8_pairs

    document = json.loads((ROOT / "benchmarks" / "results" / "ptxas_fp8_pairs.json").read_text())
    page = (ROOT / "docs" / "ptxas-lab.md").read_text()
    assert ptxas_fp8_pairs.table(document) in page
    assert document["summary"] == ptxas_fp8_pairs.summary(document["samples"])
    assert f"ptxas {', '.join(document['summary']['wrong_ptxas'][:2])} and 12.9.86 assemble a pair" in page
    for sample in document["samples"]:
        if sample["target"] != "sm_120a":  # there `code` lacks what the uniform registers do
            assert ptxas_fp8_pairs.keeps_garbage(sample["code"]) == sample["wrong"], sample


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        (["LDC R1, c[0x0][0x28]", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R5,R0,R5,R1"], True),
        (["F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R5,R0,R5,RZ"], False),
        (["F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R0,R0,R5,R0.H1", "PRMT R0,R0,0x5410,R0"], False),
        (["F2FP.X_MERGE_C R4,R0,R5,RZ", "F2FP.X_MERGE_C R5,R0,R5,R4"], False),
        (["F2FP.X_MERGE_C R4,R0,R5,RZ", "F2FP.X_MERGE_C R5,R0,R5,R3"], True),
    ],
)
def test_a_conversion_that_keeps_garbage_is_told_from_others(
    monkeypatch: pytest.MonkeyPatch, code: list[str], wrong: bool
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import ptxas_fp8_pairs

    assert ptxas_fp8_pairs.keeps_garbage(code) is wrong


def test_the_name_effect_is_that_of_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import name_effect

    results = json.loads((ROOT / "benchmarks" / "results" / "name_effect.json").read_text())["samples"]
    table = TEXT[TEXT.index("**On an H100**") : TEXT.index("*Executed*: on an H100")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")][
        1:
    ]
    shown = {(row[2], row[3], row[4], row[1]) for row in rows}
    expected = set()
    for sample in results:
        if sample.get("ratio") is None:
            assert sample["verdict"] == "same code"
            continue
        sides = sample["comparison"]["kernels"]
        if sample.get("stripped"):
            sides = {"reference": sides["candidate"], "candidate": sides["reference"]}
        used = [str(c["registers"]) for side in ("reference", "candidate") for e in sides[side].values() for c in e]
        low, change, high = (f"{(x - 1) * 100:+.1f}%" for x in name_effect.with_the_word(sample))
        version = "12.8.93" if sample["ptxas"] == "Triton's" else sample["ptxas"]
        expected.add((change, f"{low} to {high}", " to ".join(used), version))
    assert shown
    assert shown <= expected, "the README has some of the rows, docs/timing.md all of them"
    assert "\n".join(name_effect.table(results)) in (ROOT / "docs" / "timing.md").read_text()


def test_the_assembled_name_effect_is_that_of_the_committed_results() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "name_effect_assembled.json").read_text())
    page = (ROOT / "docs" / "timing.md").read_text()
    assert all(row["code"].endswith("ptxas took its other scheduler for b") for row in results["samples"])
    assert all(row["control_is_neutral"] and set(row["registers"].values()) == {128} for row in results["samples"])
    assert f"in all {len(results['samples'])} cases" in " ".join(page.split())
    for row in results["samples"]:
        if row["ptxas"] == "12.8.93":
            a, b = re.search(r"(\S+ of \S+) instructions only in a, (\S+ of \S+) only in b", row["code"]).groups()
            title = f"| fp8 D{row['head_dim']}{' causal' if row['causal'] else ''} |"
            (line,) = (line for line in page.splitlines() if line.startswith(title))
            assert line.replace(" instructions", "").startswith(f"{title} {a} | {b} |"), line
            assert all(number in line for number in re.findall(r"\b\d+\b", row["code"].partition("stack")[2]))


def test_the_first_paint_in_the_docs_is_that_of_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import reports

    document = json.loads((ROOT / "benchmarks" / "results" / "reports.json").read_text())
    assert reports.table(document) in (ROOT / "docs" / "reports.md").read_text()
    assert len(document["summary"]) == 5
    for name, page in document["summary"].items():
        assert page["slowest_first_paint_ms"] < document["goals"]["first_paint_ms"] == 1000, name
        if "attention" in name:
            assert page["file_bytes"] < document["goals"]["attention_file_bytes"] == 2_000_000


def test_the_calibration_in_the_docs_is_that_of_the_committed_results() -> None:
    summary = json.loads((ROOT / "benchmarks" / "results" / "ab_calibration.json").read_text())["summary"]
    text = " ".join((ROOT / "docs" / "timing.md").read_text().split())
    assert summary["aa_false_positive_ratio"] == 0
    assert f"{summary['aa_runs']} comparisons of equal code" in text
    assert f"{summary['runs_1pct']} of {summary['runs_1pct']} runs" in text and summary["power_1pct"] == 1
    assert f"{summary['runs_2pct']} of {summary['runs_2pct']}." in text and summary["power_2pct"] == 1
