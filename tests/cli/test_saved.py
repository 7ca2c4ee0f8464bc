"""`tritonhook show` of saved results; --html, --markdown, --save on the verbs: what is written, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import triton_kernels
from documents import GOLDEN, KINDS, diff_with_code, golden, in_terminal, summary_of
from html_tree import Element, parse
from repository import ROOT, SUPPORT

import tritonhook
from tritonhook.cli import main
from tritonhook.cli._programs import Ended

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


def test_a_binary_file_is_called_one(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("r.json").write_bytes(b"\x89\xffPNG")
    assert main(["show", "r.json"]) == 2
    assert "r.json: a binary file without GPU code" in capsys.readouterr().err


def test_a_folder_inside_a_capture_folder_names_the_right_one(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("caps/index").mkdir(parents=True)
    Path("caps/kernels").mkdir()
    assert main(["show", "caps/kernels", "--html", "x.html"]) == 2
    assert "not a capture folder (it has no index/); give caps\n" in capsys.readouterr().err


def test_a_page_that_could_not_be_written_is_refused_before_the_work(
    here: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    assert main(["diff", "absent.ptx", "absent.ptx", "--html", "d.html"]) == 2
    assert "d.html: cannot write" in capsys.readouterr().err


def test_json_and_markdown_are_not_both_printed(here: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diff", "a.ptx", "b.ptx", "--json", "--markdown"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "not allowed with argument --json; see `tritonhook diff --help`" in error and error.count("\n") == 1


def test_missing_paths_and_traces_of_other_results_are_refused(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["show", "nowhere.json"]) == 2
    assert "nowhere.json: no such file" in capsys.readouterr().err
    Path("r.json").write_text(json.dumps(golden("table")))
    assert main(["show", "r.json", "--trace", "t.json"]) == 2
    assert "--trace is for memory timelines" in capsys.readouterr().err
    assert main(["show", ".", "--html", "x.html"]) == 2
    assert "not a capture folder" in capsys.readouterr().err


def test_markdown_is_printed_and_nothing_written(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("r.json").write_text(json.dumps(golden("ab")))
    assert main(["show", "r.json", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### :red_circle: A/B timing: Slower by")
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


def test_a_missing_jinja2_is_reported_before_any_work(
    here: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from tritonhook.report.render import html

    html._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["diff", "no.ptx", "no.ptx", "--html", "d.html"]) == 2
    assert "HTML reports need jinja2" in capsys.readouterr().err
    html._environment.cache_clear()


def test_diff_in_markdown_keeps_its_exit_code(capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", *CUBINS, "--markdown"]) == 1
    assert capsys.readouterr().out.startswith("### :purple_circle: Diff: only scheduling differs")
    assert main(["diff", CUBINS[0], CUBINS[0], "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("### :green_circle: Diff: same code")


def test_a_saved_comparison_has_its_page_from_ab(here: Path, capsys: pytest.CaptureFixture) -> None:
    Path("ab.json").write_text(json.dumps(golden("ab")))
    assert main(["ab", "--from", "ab.json", "--html", "ab.html", "--markdown"]) == 1
    assert "Slower by" in capsys.readouterr().out
    assert page("ab.html").one("h1").text.startswith("Slower by")


COMPARED = ("cutlass_layer_norm_kernel", "layer_norm_kernel", "NVIDIA H100 80GB HBM3", "ptxas 12.8.93")


def test_a_timed_comparison_says_what_was_compared(here: Path, capsys: pytest.CaptureFixture) -> None:
    """Title and subtitle, as text, in Markdown and on the page, name both sides, the GPU and the ptxas."""
    samples = json.loads((ROOT / "benchmarks" / "results" / "name_effect.json").read_text())["samples"]
    Path("r.json").write_text(json.dumps(next(s["comparison"] for s in samples if s["kernel"] == "layer_norm")))
    words = ["show", "r.json"]
    assert main([*words, "--html", "p.html", "--save", "s.json"]) == 0
    title, subtitle = capsys.readouterr().out.splitlines()[:2]
    assert title == "Slower by 7.61%: cutlass_layer_norm_kernel against layer_norm_kernel"
    assert all(part in f"{title} {subtitle}" for part in COMPARED)
    assert main([*words, "--markdown"]) == 0
    head = "".join(capsys.readouterr().out.replace("\\", "").splitlines()[:3])
    assert all(part in head for part in COMPARED)
    tree = page("p.html")
    assert tree.one("h1").text == title and all(part in next(tree.all("title")).text for part in COMPARED)
    assert all(part in tree.one("span", "subject").text for part in COMPARED[2:])
    badges = [(side.one("span", "badge").text, side.one("code").text) for side in tree.all("div", "side")]
    named = ["layer_norm_kernel", "cutlass_layer_norm_kernel", "cutlasz_layer_norm_kernel"]
    assert badges == list(zip(("reference", "candidate", "control"), named, strict=True))
    compared = json.loads(Path("s.json").read_text())["compared"]
    assert [compared[side]["name"] for side, _ in badges] == named
    assert compared["candidate"]["ptxas"] == ["12.8.93"]


def test_each_side_of_a_comparison_has_one_colour(here: Path) -> None:
    """A rule of the style sheet that draws a side takes the colour of that side, and every chart marks its sides."""
    Path("r.json").write_text(json.dumps(golden("ab")))
    assert main(["show", "r.json", "--html", "p.html"]) == 0
    tree = page("p.html")
    rules = re.findall(r"([^{}]*)\{([^{}]*)\}", tree.one("style").text)
    for side, own in (("reference", "a"), ("candidate", "b")):
        drawn = [body for selector, body in rules if f".{side}" in selector and "," not in selector]
        assert len(drawn) >= 4
        colours = {colour for body in drawn for colour in re.findall(r"var\(--([\w-]+)\)", body)}
        assert colours <= {own, f"{own}-bg"}, side
    marked = {name: sum(1 for _ in tree.all("", name)) for name in ("reference", "candidate", "control")}
    assert all(count >= 2 for count in marked.values()), marked


def test_captures_of_a_session_have_pages(here: Path, triton_cache: Path, capsys: pytest.CaptureFixture) -> None:
    with tritonhook.session("captures") as session:
        triton_kernels.compile_kernel()
        triton_kernels.compile_kernel(triton_kernels.fused_kernel)
    assert main(["show", "captures", "--html", "captures.html"]) == 0
    rows = page("captures.html").one("table", id="kernel-table").rows()
    assert sorted(row[1].split("_kernel")[0] for row in rows) == ["add", "fused"]
    assert all(int(row[4]) > 0 for row in rows)  # registers
    one = f"captures/kernels/{session.records[0]}"
    assert main(["show", one, "--html", "one.html"]) == 0
    tree = page("one.html")
    assert tree.one("h1").text == "add_kernel"
    assert listings(tree) == ["sass", "ttir", "ttgir", "llir", "ptx"]
    assert main(["show", "captures", "--markdown"]) == 0
    assert "| add\\_kernel | 1" in capsys.readouterr().out
    assert (session.captures[0]._repr_html_() or "").count("add_kernel") > 1


def test_memory_verbs_write_pages(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    from tritonhook._util.schema import as_schema
    from tritonhook.cli.mem import compare, watch
    from tritonhook.report.results.memory import Memory

    cubin = str(GOLDEN / "sm_120a.tensor_load.cluster.cubin")
    assert main(["mem", "predict", cubin, "--gpu", "RTX 5090", "--html", "p.html"]) == 0
    assert "driver will reserve" in page("p.html").one("h1").text
    Path("script.py").touch()
    seen = (Ended(0, None), as_schema(golden("memory"), Memory).values(), [])
    for module in (watch, compare):
        monkeypatch.setattr(module, "watched", lambda *words: seen)
    assert main(["mem", "watch", "--html", "w.html", "script.py"]) == 0
    assert page("w.html").one("h1").text == "3,728 MiB that no allocator shows"
    assert main(["mem", "compare", "--variants", "a,b", "--html", "c.html", "script.py"]) == 0
    assert "same memory" in page("c.html").one("h1").text
    assert capsys.readouterr().err.count("wrote ") == 3


def test_run_writes_a_page_of_its_captures(here: Path, triton_cache: Path, capsys: pytest.CaptureFixture) -> None:
    Path("script.py").write_text(
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r}); import triton_kernels as kernels; kernels.compile_kernel()"
    )
    assert main(["run", "--out", "c", "--html", "r.html", "script.py"]) == 0
    (row,) = page("r.html").one("table", id="kernel-table").rows()
    assert row[1].startswith("add_kernel") and int(row[4]) > 0
    assert "wrote r.html" in capsys.readouterr().err


def test_a_fix_has_a_page(here: Path, tools: object) -> None:
    assert main(["mem", "fix", str(GOLDEN / "triton.sm_90.ptx"), "--html", "f.html"]) in (0, 1)
    assert "TMA load" in page("f.html").one("h1").text


def test_the_page_of_a_document_is_the_page_of_what_was_saved(here: Path) -> None:
    """A report of a file is made of its values alone: the same document gives the same page, byte for byte."""
    Path("r.json").write_text(json.dumps(diff_with_code()))
    assert main(["show", "r.json", "--html", "1.html"]) == main(["show", "r.json", "--html", "2.html"]) == 0
    assert Path("1.html").read_bytes() == Path("2.html").read_bytes()
