"""`tritonhook show` of saved results; --html, --markdown, --save on the verbs: what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import triton_kernels
from documents import GOLDEN, KINDS, golden, in_terminal, summary_of
from html_tree import Element, parse
from repository import SUPPORT

import tritonhook
from tritonhook.cli import main

CUBINS = [str(GOLDEN / f"sm_90a.exp.{side}.cubin") for side in ("plain", "cutlass")]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page(path: str | Path) -> Element:
    return parse(Path(path).read_text())


def listings(tree: Element) -> list[str]:
    return [each["id"] for each in json.loads(tree.one("script", id="data").text)["listings"]]


@pytest.mark.parametrize("kind", KINDS)
def test_report_makes_a_page_of_every_saved_result(kind: str, here: Path, capsys: pytest.CaptureFixture) -> None:
    Path(f"{kind}.json").write_text(json.dumps(golden(kind)))
    assert main(["show", f"{kind}.json", "--html", f"{kind}.html"]) == 0
    captured = capsys.readouterr()
    assert captured.out == in_terminal(summary_of(golden(kind))) and captured.err == f"wrote {kind}.html\n"
    assert page(f"{kind}.html").one("footer").text.count(f"{kind}.json") == 1


def test_report_never_overwrites_without_force(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("r.json").write_text(json.dumps(golden("table")))
    Path("r.html").write_text("mine")
    assert main(["show", "r.json", "--html", "r.html"]) == 2
    assert "r.html: exists; pass --force" in capsys.readouterr().err
    assert Path("r.html").read_text() == "mine"
    assert main(["show", "r.json", "--html", "r.html", "--force"]) == 0
    assert Path("r.html").read_text() != "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[1]", "JSON, but no result"),
        ('{"format": 1}', "not a result that tritonhook can show"),
        ('{"format": 1, "kind": "diff"}', "damaged, or of another version: verdict is missing"),
        ('{"format": 7, "kind": "diff"}', "its format is 7"),
        ('{"kind": "diff", "ptx": ".version 8.7', "no JSON, or only a part of it"),
        ('{"format": 1, "kind": "dreams"}', "'dreams', for which this version has no report"),
    ],
)
def test_a_file_without_a_result_is_refused(text: str, words: str, here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("r.json").write_text(text)
    assert main(["show", "r.json"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tritonhook show: r.json: ") and words in error and error.count("\n") == 1
    assert not Path("r.html").exists()


def test_a_page_that_could_not_be_written_is_refused_before_the_work(
    here: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    assert main(["diff", "absent.ptx", "absent.ptx", "--html", "d.html"]) == 2
    assert "d.html: cannot write" in capsys.readouterr().err


def test_markdown_is_printed_and_nothing_written(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("r.json").write_text(json.dumps(golden("ab")))
    assert main(["show", "r.json", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### 🔴 A/B timing: Slower by")
    assert [path.name for path in here.iterdir()] == ["r.json"]


# --- verbs ---------------------------------------------------------------------------------------


def test_diff_saves_what_report_shows(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", *CUBINS, "--html", "d.html", "--save", "d.json"]) == 1
    captured = capsys.readouterr()
    assert (
        captured.out.startswith("Only scheduling differs\nDiff: cutlasz_k → cutlass_k\n")
        and captured.err == "wrote d.json\nwrote d.html\n"
    )
    assert main(["show", "d.json", "--html", "again.html"]) == 0
    assert capsys.readouterr().out == captured.out
    first, second = page("d.html"), page("again.html")
    assert first.one("script", id="data").text == second.one("script", id="data").text
    assert listings(first) == ["sass"]
    assert len(Path("d.html").read_bytes()) < 2_000_000
    printed = json.loads(Path("d.json").read_text())
    assert main(["diff", *CUBINS, "--json"]) == 1
    without_code = json.loads(capsys.readouterr().out)
    assert "code" not in without_code and without_code == {k: v for k, v in printed.items() if k != "code"}


def test_a_file_that_exists_is_refused_before_any_work(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("d.html").write_text("mine")
    assert main(["diff", "no.ptx", "no.ptx", "--html", "d.html"]) == 2
    assert "d.html: exists; pass --force" in capsys.readouterr().err
    assert main(["diff", *CUBINS, "--html", "nowhere/d.html"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_diff_in_markdown_keeps_its_exit_code(capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", *CUBINS, "--markdown"]) == 1
    assert capsys.readouterr().out.startswith("### 🟣 Diff: only scheduling differs")
    assert main(["diff", CUBINS[0], CUBINS[0], "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### 🟢 Diff: same code")


def test_a_saved_comparison_has_its_page_from_ab(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("ab.json").write_text(json.dumps(golden("ab")))
    assert main(["ab", "--from", "ab.json", "--html", "ab.html", "--markdown"]) == 1
    assert "Slower by" in capsys.readouterr().out
    assert page("ab.html").one("h1").text.startswith("Slower by")


def test_captures_of_a_session_have_pages(here: Path, triton_cache: Path, capsys: pytest.CaptureFixture) -> None:
    with tritonhook.session("captures") as session:
        triton_kernels.compile_kernel()
        triton_kernels.compile_kernel(triton_kernels.fused_kernel)
    assert main(["show", "captures", "--html", "captures.html"]) == 0
    rows = page("captures.html").one("table", "crowded").rows()
    assert sorted(row[1] for row in rows) == ["add_kernel", "fused_kernel"]
    one = f"captures/kernels/{session.records[0]}"
    assert main(["show", one, "--html", "one.html"]) == 0
    tree = page("one.html")
    assert tree.one("h1").text == "add_kernel"
    assert listings(tree) == ["sass", "ttir", "ttgir", "llir", "ptx"]
    assert main(["show", "captures", "--markdown"]) == 0
    assert "| add\\_kernel | 1" in capsys.readouterr().out
    assert "Capture: add\\_kernel" in (session.captures[0]._repr_markdown_() or "")


def test_run_writes_a_page_of_its_captures(here: Path, triton_cache: Path, capsys: pytest.CaptureFixture) -> None:
    Path("script.py").write_text(
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r}); import triton_kernels as kernels; kernels.compile_kernel()"
    )
    assert main(["run", "--out", "c", "--html", "r.html", "script.py"]) == 0
    (row,) = page("r.html").one("table", "crowded").rows()
    assert row[1] == "add_kernel"
    assert "wrote r.html" in capsys.readouterr().err
