"""The committed results of benchmarks/gluon_blackwell.py, and the document that shows them."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results():
    return json.loads((ROOT / "benchmarks" / "results" / "gluon_blackwell.json").read_text())


def test_the_table_in_the_docs_is_that_of_the_results(results, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gluon_blackwell

    page = (ROOT / "docs" / "gluon-blackwell.md").read_text()
    assert gluon_blackwell.table(results) in page
    summary = results["summary"]
    assert f"{summary['cells']:,} cells" in page
    assert f"{summary['default_config_without_spills_in_loops']} of the {summary['default_config_cells']}" in page
    for verdict, cells in summary["verdicts"].items():
        assert f"{verdict}: {cells}" in page


def test_every_ptxas_that_knows_the_target_took_every_kernel(results):
    knows = {"sm_100a": set(results["ptxas"]), "sm_103a": {v for v in results["ptxas"] if not v.startswith("12.8")}}
    assert len(knows["sm_100a"]) >= 11
    for arch, titles in results["samples"].items():
        assert len(titles) == 18
        for title, versions in titles.items():
            assert set(versions) == knows[arch], title
            assert not any("crash" in cell for cell in versions.values()), title
