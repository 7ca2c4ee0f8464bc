"""The results file of `check`: counts, worst cases and the code's hash, without a GPU."""

import json

import pytest

from gluon_kernels import cli
from gluon_kernels.verify import check, check_result
from gluon_kernels.verify.check import Case, Verdict

RIGHT = Verdict(Case(64, 64), error=1.0, allowed=8.0, lse_error=1e-4)
WORST = Verdict(Case(64, 65), error=3.0, allowed=4.0, lse_error=2e-4)
WRONG = Verdict(Case(1, 1), error=9.0, allowed=2.0, reason="too far off")
SKIPPED = Verdict(Case(0, 1), skipped="too large")


def test_a_row_has_counts_the_worst_case_and_what_was_wrong():
    row = check_result.row("mma", "bf16", 64, [RIGHT, WORST, WRONG, SKIPPED])
    assert (row["right"], len(row["wrong"]), row["not_run"]) == (2, 1, {"too large": 1})
    assert (row["worst_of_allowed"], row["worst_case"]["seqlen_k"]) == (0.75, 65)
    assert row["worst_lse_error"] == 2e-4
    assert row["wrong"][0]["reason"] == "too far off"


@pytest.mark.parametrize("verdicts", [[RIGHT, SKIPPED], [WRONG]])
def test_the_verb_writes_the_file(verdicts, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, "_arch", lambda: 90)
    monkeypatch.setattr(cli, "_machine", lambda: ("a GPU", {"torch": "2", "triton": "3"}))
    monkeypatch.setattr(cli, "launcher", lambda kernel: type("Module", (), {"attention": None}))
    monkeypatch.setattr(check, "run", lambda *_, **__: iter(verdicts))
    path = tmp_path / "check.json"
    wrong = sum(v.reason is not None for v in verdicts)
    assert cli.main(["check", "--kernel", "mma", "--head-dims", "64", "128", "--json", str(path)]) == min(wrong, 1)
    found = json.loads(path.read_text())
    assert found["summary"] == {"right": 2 - 2 * wrong, "wrong": 2 * wrong, "not_run": 2 - 2 * wrong}
    assert [row["head_dim"] for row in found["rows"]] == [64, 128]
    assert found["sources"] == check_result.source_hash() and found["gpu"] == "a GPU"


def test_a_file_that_cannot_be_written_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_why_not", lambda: None)
    monkeypatch.setattr(cli, "launcher", lambda kernel: pytest.fail("checked before the file was tried"))
    assert cli.main(["check", "--kernel", "mma", "--json", str(tmp_path / "no" / "check.json")]) == 2
    assert "the folder" in capsys.readouterr().err and not (tmp_path / "no").exists()
