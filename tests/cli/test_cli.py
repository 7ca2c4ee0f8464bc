"""The command line as a whole: its verbs, its streams and its exit codes."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import EXP, TARGET, failing
from wrapped_ptxas import make_ptxas

from tritonhook import __version__
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureWriter
from tritonhook.cli import VERBS, main
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import Tool, available_ptxas

# --- ptxas, status, table


def test_ptxas_list_matches_the_library(capsys: pytest.CaptureFixture) -> None:
    assert main(["ptxas", "list", "--json"]) == 0
    listed = {item["version"] for item in json.loads(capsys.readouterr().out)["ptxas"]}
    assert listed == {tool.version for tool in available_ptxas()}


def test_a_version_in_several_places_is_listed_once(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    tools = [Tool(Path(f"/{source}/ptxas"), "13.0.88", source) for source in ("added", "CUDA toolkit", "PATH")]
    for verb in ("ptxas", "status"):
        monkeypatch.setattr(f"tritonhook.cli.{verb}.available_ptxas", lambda: tools)
    assert main(["ptxas", "list"]) == 0
    first, *_ = said = capsys.readouterr().out.splitlines()
    other_places = next(n for n, line in enumerate(said) if "Further copies" in line)
    assert first == "1 version of ptxas installed"
    taken = [line.split() for line in said[:other_places] if line.startswith("13.")]
    assert taken == [["13.0.88", "added", "/added/ptxas"]]
    assert [line.split()[-1] for line in said[other_places + 2 :]] == ["toolkit/ptxas", "/PATH/ptxas"]
    assert main(["status"]) == 0
    assert "13.0.88 (added, CUDA toolkit, PATH)" in capsys.readouterr().out


@pytest.mark.parametrize("version", ["12.8", "banana", "12.8.93; rm -rf /"])
def test_ptxas_add_wants_a_full_version(version: str, capsys: pytest.CaptureFixture) -> None:
    assert "is not a full version" in failing(capsys, "ptxas", "add", version)


def test_status_shows_every_slot(capsys: pytest.CaptureFixture) -> None:
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["hooks"].values()) == {"free"}
    assert "compilation.listener" in document["hooks"]


# --- the parser


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert len(capsys.readouterr().out) > 100


def test_without_a_verb_the_verbs_are_listed() -> None:
    done = subprocess.run([sys.executable, "-m", "tritonhook"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert all(f"\n  {verb} " in done.stderr for verb in VERBS)


# --- where the output goes, and what goes wrong


def shell(line: str, *words: object, pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess:
    """A line of shell, in which CLI is the command and $1, $2 ... are `words`."""
    program = f'CLI() {{ {shlex.quote(sys.executable)} -m tritonhook "$@"; }}\n{line}'
    command = ["bash", "-c", program, "bash", *map(str, words)]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}  # failures that wait in a buffer count
    return subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=pass_fds, env=env)


REPORTS = ['rename "$1" --prefix x_', "ptxas list --json", "--help"]
REPORTS[1:1] = [pytest.param(r, marks=pytest.mark.nightly) for r in ('diff "$1" "$1" --json', "ptxas list", "status")]


@pytest.mark.parametrize("report", ['diff "$1" "$1"', *REPORTS[1:]])
def test_a_reader_that_leaves_is_trouble_and_not_a_difference(report: str, plain: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `| true`, without the race
    try:
        done = shell(f"CLI {report} >&{writer}", plain, pass_fds=(writer,))
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.parametrize("report", REPORTS)
def test_a_full_device_is_trouble(report: str, plain: Path) -> None:
    done = shell(f"CLI {report} > /dev/full", plain)
    assert done.returncode == 2
    assert done.stderr.endswith(": standard output: No space left on device\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("report", REPORTS[:-1])
def test_a_closed_output_is_trouble(report: str, plain: Path) -> None:
    done = shell(f"CLI {report} >&-", plain)
    assert done.returncode == 2
    assert done.stderr.endswith(": standard output: closed; give a file or a pipe\n")
    assert done.stderr.count("\n") == 1


def test_a_closed_output_does_not_matter_where_nothing_is_printed(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ptx"
    assert shell('CLI rename "$1" --prefix x_ -o "$2" >&-', plain, out).returncode == 0
    assert Ptx(out.read_text()).entries == ("x_work",)
    assert shell("CLI show nowhere 2>&-").returncode == 2
    assert shell("CLI show nowhere 2>/dev/full").returncode == 2


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device", "some/file"), "some/file: No space left on device"),
        (ValueError("two\nlines"), "internal error: ValueError: two lines; please report it"),
        (AssertionError(), "internal error: AssertionError: ; please report it"),
    ],
)
def test_no_error_is_a_difference(
    error: Exception, line: str, plain: Path, monkeypatch, capsys: pytest.CaptureFixture
) -> None:
    def fail(*words: object) -> None:
        raise error

    monkeypatch.setattr("tritonhook.cli.diff.load_file", fail)
    monkeypatch.delenv("TRITONHOOK_DEBUG", raising=False)
    message = failing(capsys, "diff", str(plain), str(plain))
    assert message.startswith(f"tritonhook diff: {line}")
    assert "\n" not in message
    monkeypatch.setenv("TRITONHOOK_DEBUG", "1")
    assert "Traceback" in failing(capsys, "diff", str(plain), str(plain))


# --- brackets are no markup


def stored(folder: Path) -> str:
    """A capture folder with one kernel; every word that a user can choose has brackets."""
    record = folder / "kernels" / "odd-0123456789abcdef"
    record.mkdir(parents=True)
    (folder / "index").mkdir()
    capture = {
        "format": 1,
        "kernel": "odd[/k]",
        "hash": "[bold]hash",
        "arch": "[red]arch",
        "files": {},
        "ptxas": {"path": "/[bold]/ptxas", "version": "12.8.93", "arguments": ["[dim]"]},
        "options": {"[bold]option": "[/red]"},
        "metadata": {},
        "cache_hit": False,
        "rewritten_from": "old[/k]",
        "note": ":smile: [/note]",
    }
    (record / "capture.json").write_text(json.dumps(capture))
    return str(record)


def test_brackets_in_captures_stay(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "m[" / "x]"  # "m[/x]" as a path
    record = stored(folder)
    assert main(["show", str(folder)]) == 0
    listed = capsys.readouterr().out.replace("\n", "")
    for word in ("m[/x]", "odd[/k]", "[red]arch", "old[/k]"):
        assert word in listed
    assert main(["show", record]) == 0
    shown = capsys.readouterr().out
    for word in ("odd[/k]", "[bold]hash", "[red]arch", "/[bold]/ptxas", "[dim]", "[bold]option", "[/red]"):
        assert word in shown
    assert ":smile: [/note]" in shown
    assert str(folder) in shown.replace("\n", "")


# --- the wrapper


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ptxas in the environment, and a terminal that says nothing."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return make_ptxas(tmp_path / "bin")


def install(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, answer: str | None, *words: str) -> str:
    stdin = io.StringIO(answer or "")
    monkeypatch.setattr(stdin, "isatty", lambda: answer is not None)
    monkeypatch.setattr(sys, "stdin", stdin)
    main(["ptxas", "install", *words])
    captured = capsys.readouterr()
    return str(captured.out + captured.err)


@pytest.mark.parametrize("answer", [None, "\n", "no\n"], ids=["no terminal", "enter", "no"])
def test_install_asks_and_no_answer_is_no(toolkit: Path, answer: str | None, capsys, monkeypatch) -> None:
    before = toolkit.read_bytes()
    said = install(capsys, monkeypatch, answer, str(toolkit))
    assert "nothing was changed; --yes installs without a question" in said
    assert toolkit.read_bytes() == before and not toolkit.with_name("ptxas.real").exists()


@pytest.mark.parametrize("words", [("--yes",), ()], ids=["--yes", "asked"])
def test_install_says_where_ptx_goes_and_how_to_undo_it(toolkit: Path, words: tuple[str], capsys, monkeypatch) -> None:
    said = install(capsys, monkeypatch, None if words else "y\n", *words, str(toolkit))
    assert f"tritonhook ptxas uninstall {toolkit}" in "".join(said.split("\n")).replace("  ", "")
    assert words or "$PTX_DUMP_DIR, else to ptx_dumps/" in said
    assert toolkit.with_name("ptxas.real").exists()
    assert main(["ptxas", "uninstall", str(toolkit)]) == 0 and not toolkit.with_name("ptxas.real").exists()


def test_install_leaves_what_is_outside_of_the_environment(toolkit: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(toolkit.parent / "elsewhere"))
    assert "outside of this environment" in install(capsys, monkeypatch, "y\n", "--yes", str(toolkit))
    assert not toolkit.with_name("ptxas.real").exists()
    install(capsys, monkeypatch, None, "--yes", "--system", str(toolkit))
    assert toolkit.with_name("ptxas.real").exists()


# --- small


def test_the_version_stands_alone(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"tritonhook {__version__}\n"


def test_ab_and_probe_take_the_same_ptxas(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """That of the capture, which need not be the newest."""
    ptx = tmp_path / "work.ptx"
    ptx.write_text(EXP.ptx("work", **TARGET).text)
    out = tmp_path / "captures"
    capture = Capture("work", "ab" * 32, "sm_90a", {}, assembler=Assembler(None, "12.8.93", ("-v",)))
    CaptureWriter(out).add_files(capture, {Stage.PTX: str(ptx)})
    assert main(["diff", "--rename", str(out), "--json"]) in (0, 1)
    by_ab = json.loads(capsys.readouterr().out)["ptxas"]["version"]
    assert main(["lab", "probe", str(out), "--names", "cutlass_*", "--json"]) in (0, 1)
    by_probe = {cell["ptxas"] for cell in json.loads(capsys.readouterr().out)["cells"]}
    assert by_probe == {by_ab} == {"12.8.93"}
