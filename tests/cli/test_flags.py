"""Output flags that mean the same for every verb, errors that name the verb and the flag, and help by task."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import page_of, summary_of
from repository import GOLDEN

from tritonhook.cli import GROUPS, VERBS, main, parser
from tritonhook.report.render.html import render_html
from tritonhook.report.render.markdown import render_markdown

CUBIN = str(GOLDEN / "sm_90a.exp.plain.cubin")
OUTPUT = {"--json", "--markdown", "--html", "--save", "--force"}
WITHOUT_RESULT = {"help", "completion", "lock"}  # a lock is a file of its own


def leaves(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of all verbs, and of the actions of those that have actions."""
    below = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield of
    for action in below:
        for sub in action.choices.values():
            yield from leaves(sub)


LEAVES = {leaf.prog.partition(" ")[2]: leaf for leaf in leaves(parser())}


@pytest.mark.parametrize("verb", sorted(set(LEAVES) - WITHOUT_RESULT))
def test_every_verb_with_a_result_has_the_same_output_flags(verb: str) -> None:
    actions = {name: action for action in LEAVES[verb]._actions for name in action.option_strings}
    assert set(actions) >= OUTPUT
    assert [actions[name].nargs for name in ("--json", "--markdown", "--force")] == [0, 0, 0]
    assert [actions[name].metavar for name in ("--html", "--save")] == ["FILE|FOLDER/", "FILE"]


QUICK = [
    shlex.join(["diff", str(CUBIN), str(CUBIN)]),
    shlex.join(["mem", "predict", str(CUBIN), "--gpu", "H100"]),
    shlex.join(["show", str(GOLDEN / "documents" / "ab.json")]),
    shlex.join(["rename", str(GOLDEN / "triton.sm_90.ptx"), "--prefix", "x_"]),
    "ptxas list",
    "status",
    "run --out captures script.py",
    "mem watch script.py",
]


@pytest.mark.parametrize("line", QUICK, ids=lambda line: " ".join(shlex.split(line)[:2]))
def test_the_flags_of_a_result(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Standard output is the document, or its Markdown, and nothing else; both files are of that document."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tritonhook.cli._programs.why_no_gpu", lambda: None)
    Path("script.py").write_text("print('from the script')")
    verb, *rest = shlex.split(line)
    action, rest = (rest[:1], rest[1:]) if verb in ("mem", "ptxas") else ([], rest)
    call = [verb, *action]
    code = 2 if action == ["watch"] else 0  # nothing is watched here
    assert main([*call, "--json", "--save", "s.json", "--html", "p.html", *rest]) == code
    printed, saved = json.loads(capfd.readouterr().out), json.loads(Path("s.json").read_text())
    assert set(printed) <= set(saved) and printed["kind"] == saved["kind"]
    assert Path("p.html").read_text() == render_html(page_of(saved), "ab.json" if verb == "show" else "")
    assert main([*call, "--save", "s.json", *rest]) == 2
    assert f"tritonhook {' '.join(call)}".split()[1] in (error := capfd.readouterr().err)
    assert "s.json: exists; pass --force to replace it" in error
    assert main([*call, "--markdown", "--save", "s.json", "--force", *rest]) == code
    markdown = capfd.readouterr().out
    assert markdown == render_markdown(summary_of(json.loads(Path("s.json").read_text())))


def test_a_script_keeps_standard_output_where_no_flag_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text("print('from the script')")
    assert main(["run", "--out", "captures", "--save", "s.json", "script.py"]) == 0
    captured = capfd.readouterr()
    assert captured.out == "from the script\n" and "0 kernels seen" in captured.err
    assert main(["run", "--out", "captures", "--json", "script.py"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["kind"] == "captures" and "from the script\n" in captured.err


# --- errors


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("diff --ptxs 12 a b", "tritonhook diff: --ptxs: no such option; did you mean --ptxas? See `tritonhook diff"),
        ("diff --ptxs=12 a b", "tritonhook diff: --ptxs: no such option; did you mean --ptxas? See `tritonhook diff"),
        ("diff --ptxs", "tritonhook diff: --ptxs: no such option; did you mean --ptxas? See `tritonhook diff"),
        ("diff a b c d", "tritonhook diff: c d: not expected here; see `tritonhook diff --help`"),
        ("diff a --qqqq b", "tritonhook diff: --qqqq: no such option; see `tritonhook diff --help`"),
        ("dif a b", "tritonhook: dif: no such verb; did you mean diff? See `tritonhook --help`"),
        ("mem predit k", "tritonhook mem: predit: no such action; did you mean predict? See `tritonhook mem --help`"),
        ("mem predict k --gup x", "tritonhook mem predict: --gup: no such option; did you mean --gpu? See"),
        ("ptxas lst", "tritonhook ptxas: lst: no such action; did you mean list? See `tritonhook ptxas --help`"),
        ("run --ouut x script.py --ot 1", "tritonhook run: --ouut: no such option; did you mean --out? See"),
        ("run --rewrite tma-ct s.py --outt", "argument --rewrite: 'tma-ct' is not one of tma-cta, mma-throughput; did"),
        ("--vrsion", "tritonhook: --vrsion: no such option; did you mean --version? See `tritonhook --help`"),
        ("show x.json -o y.html", "tritonhook show: -o: no such option; see `tritonhook show --help`"),
        ("help ruun", "tritonhook: ruun: no such verb; did you mean run? See `tritonhook --help`"),
    ],
)
def test_an_error_names_the_verb_and_the_flag(line: str, error: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    captured = capsys.readouterr()
    assert ended.value.code == 2 and captured.out == ""
    assert error in captured.err and captured.err.count("\n") == 1


# --- help


def shown(capsys: pytest.CaptureFixture, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0
    return str(capsys.readouterr().out)


def test_help_lists_each_verb_once_under_its_task(capsys: pytest.CaptureFixture) -> None:
    lines = shown(capsys, "--help").splitlines()
    titles = [line.rstrip(":") for line in lines if line.rstrip(":") in GROUPS]
    assert titles == ["daily", "more"]
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2] not in " -"]
    assert tuple(listed) == VERBS and len(set(VERBS)) == len(VERBS)


@pytest.mark.parametrize("verb", ["", *LEAVES])
def test_help_fits_its_terminal(verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """No line is wider than the terminal, and none is broken inside a word such as sm_120a or --fail-over."""
    monkeypatch.setenv("COLUMNS", "200")
    words = set(shown(capsys, *verb.split(), "--help").split())
    monkeypatch.setenv("COLUMNS", "60")
    narrow = shown(capsys, *verb.split(), "--help")
    assert all(len(line) <= 60 for line in narrow.splitlines())
    assert set(narrow.split()) - {"\\"} == words
