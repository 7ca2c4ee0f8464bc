"""The command line: what each verb prints, writes and returns. `main` is called as the script calls it."""

import io
import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tritonhook.cli import VERBS, main
from tritonhook.lab.kernels.published import Condition, condition
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import Assembled, assemble
from tritonhook.ptxas.discovery import available_ptxas, find_ptxas
from tritonhook.ptxas.tool import Tool

_ARITHMETIC = "".join(
    f" ex2.approx.ftz.f32 %f{i}, %f{i}; fma.rn.f32 %f{i}, %f{i}, %f{i + 1}, %f{i + 2};\n" for i in range(8)
)
# A loop that ptxas schedules otherwise under the cutlass name, on every target.
EXP = Condition(
    "exp",
    "exp loop",
    " ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%rd1]; ld.global.v4.f32 {%f4,%f5,%f6,%f7}, [%rd1+16];\n"
    " ld.global.v2.f32 {%f8,%f9}, [%rd1+32];\n"
    f"L:\n{_ARITHMETIC} add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r1; @%p2 bra L;\n"
    + "".join(f" st.global.f32 [%rd1+{4 * i}], %f{i};\n" for i in range(8)),
)
TARGET = {"target": "sm_90a", "version": "8.0"}  # every ptxas from 12.0 on reads this


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.ptx"
    path.write_text(EXP.ptx("work", **TARGET).text)
    return path


@pytest.fixture
def two_entries(tmp_path: Path) -> Path:
    a = EXP.ptx("first", **TARGET).text
    b = condition("none").ptx("second", **TARGET).text
    path = tmp_path / "two.ptx"
    path.write_text(a + b[b.index(".visible") :])
    return path


def failing(capsys: pytest.CaptureFixture, *words: str) -> str:
    """Run a command that must fail; its one error message."""
    assert main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.strip()


# --- rename


def test_rename_prints_the_ptx(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["rename", str(plain), "--prefix", "cutlass_"]) == 0
    captured = capsys.readouterr()
    assert Ptx(captured.out).entries == ("cutlass_work",)
    assert captured.out.replace("cutlass_work", "work") == plain.read_text()
    assert "work -> cutlass_work" in captured.err


def test_rename_writes_a_file_once(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out.ptx"
    assert main(["rename", str(plain), "--prefix", "x_", "-o", str(out)]) == 0
    assert Ptx(out.read_text()).entries == ("x_work",)
    assert f"wrote {out}" in capsys.readouterr().err
    before = out.read_text()
    assert "exists; pass --force" in failing(capsys, "rename", str(plain), "--prefix", "y_", "-o", str(out))
    assert out.read_text() == before
    assert main(["rename", str(plain), "--prefix", "y_", "-o", str(out), "--force"]) == 0
    assert Ptx(out.read_text()).entries == ("y_work",)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_rename_json_counts_tokens(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["rename", str(plain), "--to", "work=other", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["names"] == {"work": "other"}
    assert document["tokens"] == document["ptx"].count("other") == plain.read_text().count("work")


def test_rename_counts_what_it_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    # Given a parameter whose name is not derived from the entry's: it stays
    path = tmp_path / "p.ptx"
    body = ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\nret;\n}\n"
    path.write_text(".version 8.0\n.target sm_90a\n.address_size 64\n" + body)
    for words, tokens in ((["--prefix", "cutlass_"], 1), (["--strip"], 0)):
        assert main(["rename", str(path), *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tokens"] == tokens


def test_rename_strip_and_entry(two_entries: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["rename", str(two_entries), "--prefix", "cutlass_", "--entry", "second"]) == 0
    text = capsys.readouterr().out
    assert Ptx(text).entries == ("first", "cutlass_second")
    two_entries.write_text(text)
    assert main(["rename", str(two_entries), "--strip"]) == 0
    assert Ptx(capsys.readouterr().out).entries == ("first", "second")
    assert main(["rename", "--strip", str(two_entries)]) == 0  # the flag does not swallow what follows it
    assert Ptx(capsys.readouterr().out).entries == ("first", "second")
    assert main(["rename", str(two_entries), "--strip-word", "second"]) == 0
    assert Ptx(capsys.readouterr().out).entries == ("first", "cutlass")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say how: --prefix"),
        (["--prefix", "9x"], "'9x' cannot start or be a PTX name"),
        (["--prefix", "a-b"], "cannot start or be a PTX name"),
        (["--to", "nonsense=x"], "no entry 'nonsense'; it has: first, second"),
        (["--to", "first=second"], "already has a symbol of that name"),
        (["--to", "first"], "write OLD=NEW"),
        (["--to", "first=x", "--prefix", "y"], "do not mix"),
        (["--prefix", "cutlass_", "--strip"], "cannot strip 'cutlass' and add"),
        (["--prefix", ""], "--prefix '': give at least one letter"),
        (["--strip-word", ""], "--strip-word '': give at least one letter"),
        (["--to", "first=x", "--strip-word", "y"], "do not mix"),
        (["--prefix", "x", "--entry", "third"], "no entry 'third'; the module has: first, second"),
    ],
)
def test_rename_refuses(two_entries: Path, capsys: pytest.CaptureFixture, words: list[str], message: str) -> None:
    assert message in failing(capsys, "rename", str(two_entries), *words)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"int main() {}", "no .version directive"),
        (b"", "no .version directive"),
        (b"\x7fELF\x02\x01\x01", "an ELF image, not PTX"),
        (b"\xff\xfe.version", "byte 0 is not UTF-8"),
        (b".version 8.0\n.address_size 64\n", "no .target directive"),
    ],
)
def test_what_is_not_ptx(tmp_path: Path, capsys: pytest.CaptureFixture, content: bytes, message: str) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    error = failing(capsys, "rename", str(path), "--prefix", "x")
    assert message in error
    assert str(path) in error


def test_files_that_cannot_be_read_or_written(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "No such file" in failing(capsys, "rename", str(tmp_path / "none.ptx"), "--prefix", "x")
    assert "a folder" in failing(capsys, "rename", str(tmp_path), "--prefix", "x")
    target = tmp_path / "missing" / "out.ptx"
    assert "cannot write" in failing(capsys, "rename", str(plain), "--prefix", "x", "-o", str(target))


def test_a_full_disk_leaves_nothing(plain: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    class Full(io.FileIO):
        def write(self, data) -> int:
            raise OSError(28, "No space left on device")

    out = tmp_path / "out.ptx"
    monkeypatch.setattr("tritonhook._util.files.open", Full, raising=False)
    assert "No space left" in failing(capsys, "rename", str(plain), "--prefix", "x", "-o", str(out))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain.ptx"]


def test_a_link_is_followed_and_stays(plain: Path, tmp_path: Path) -> None:
    target, link, dangling = tmp_path / "target.ptx", tmp_path / "link.ptx", tmp_path / "dangling.ptx"
    target.write_text("old")
    link.symlink_to(target.name)
    dangling.symlink_to("later.ptx")
    assert main(["rename", str(plain), "--prefix", "x_", "-o", str(link), "--force"]) == 0
    assert (link.is_symlink(), Ptx(target.read_text()).entries) == (True, ("x_work",))
    assert main(["rename", str(plain), "--prefix", "y_", "-o", str(dangling)]) == 0
    assert (dangling.is_symlink(), Ptx((tmp_path / "later.ptx").read_text()).entries) == (True, ("y_work",))


def test_a_pipe_is_written_to(plain: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    try:
        assert main(["rename", str(plain), "--prefix", "x_", "-o", str(pipe), "--force"]) == 0
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert Ptx(reader.communicate(timeout=20)[0]).entries == ("x_work",)
    finally:
        reader.kill()


def test_a_folder_is_no_output_file(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert "a folder; name a file" in failing(
        capsys, "rename", str(plain), "--prefix", "x", "-o", str(tmp_path), "--force"
    )


# --- diff and ab


def test_diff_of_names_that_change_code(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    named = tmp_path / "named.ptx"
    main(["rename", str(plain), "--prefix", "cutlass_", "-o", str(named)])
    capsys.readouterr()
    assert main(["diff", str(plain), str(named), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == 1
    assert document["verdict"] in ("only scheduling differs", "different code")
    assert document["a"]["kernel"] == "cutlasz_work"  # the control, as long as b's name
    assert document["b"]["kernel"] == "cutlass_work"
    version = find_ptxas().version
    assert (document["a"]["ptxas"], document["b"]["ptxas"]) == (version, version)
    assert document["scheduler"]["other_scheduler"] == {"a": False, "b": True}
    roles = [section["role"] for section in document["sections"]]
    assert ".text.{kernel}" in roles
    assert all(isinstance(s["a_bytes"], int) and isinstance(s["b_bytes"], int) for s in document["sections"])
    assert {r["field"] for r in document["resources"]} >= {"registers", "stack", "shared", "barriers", "spill_stores"}
    assert document["sass"]["instructions"]["a"] > 20
    assert len(document["sass"]["loops"]) == 1


def test_diff_says_the_verdict_first(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(plain), str(plain)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Same code"


def test_no_control_compares_the_names_as_they_are(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "other.ptx"
    main(["rename", str(plain), "--to", "work=a_much_longer_name", "-o", str(other)])
    capsys.readouterr()
    assert main(["diff", str(plain), str(other), "--no-control", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["a"]["kernel"] == "work"
    assert any("differ in length" in note for note in document["notes"])


def test_diff_refuses_what_it_cannot_tell(
    plain: Path, two_entries: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    other = tmp_path / "sm80.ptx"
    other.write_text(condition("fma").ptx("work", target="sm_80", version="8.0").text)
    assert "for one architecture" in failing(capsys, "diff", str(plain), str(other))
    assert "2 entries (first, second); name one with --entry" in failing(capsys, "diff", str(two_entries), str(plain))
    assert "ptxas 1.2.3: not found" in failing(capsys, "diff", str(plain), str(plain), "--ptxas", "1.2.3")
    unknown = tmp_path / "unknown.ptx"
    unknown.write_text(plain.read_text().replace("sm_90a", "sm_999"))
    assert "sm_999" in failing(capsys, "ab", str(unknown))
    error = failing(capsys, "diff", str(plain), str(plain), "--options=--no-such-option")
    assert "no-such-option" in error
    assert "repeat with:" in error


def test_diff_of_an_entry_among_several(two_entries: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(two_entries), str(two_entries), "--entry", "first", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["a"]["kernel"] == "first"


def test_a_newer_ptx_version_says_what_to_do(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    newer = tmp_path / "newer.ptx"
    newer.write_text(plain.read_text().replace(".version 8.0", ".version 99.0"))
    assert "use a newer one, e.g. `tritonhook ptxas add" in failing(capsys, "ab", str(newer))


def test_ab_defaults_to_the_cutlass_prefix(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["ab", str(plain), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    names = [document[side]["kernel"] for side in ("original", "renamed", "control")]
    assert names == ["work", "cutlass_work", "cutlasz_work"]
    assert document["control_is_neutral"] is True
    assert document["diff"]["scheduler"]["other_scheduler"] == {"a": False, "b": True}


def test_ab_of_a_name_that_does_nothing(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["ab", str(plain), "--prefix", "harmless_"]) == 0
    assert "the name changes nothing in the code" in capsys.readouterr().out


def test_ab_needs_something_to_rename(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert "leaves 'work' as it is" in failing(capsys, "ab", str(plain), "--strip")


def test_ab_to_of_a_name_that_is_not_there(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert f"{plain}: no entry 'nope'; it has: work" in failing(capsys, "ab", str(plain), "--to", "nope=x")


@pytest.mark.parametrize(("crashing", "code"), [("cutlass_work", 1), ("cutlasz_work", 2)])
def test_ab_of_a_crash(
    crashing: str, code: int, plain: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture
) -> None:
    # Under the new name it is a finding; under the control there is nothing to hold the name against.
    real = find_ptxas().path
    fake = tmp_path / "ptxas"
    fake.write_text(
        "#!/bin/sh\n"
        f'for word; do [ -f "$word" ] && grep -q {crashing} "$word" && kill -SEGV $$; done\n'
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    fake.chmod(0o755)
    assert main(["ab", str(plain), "--ptxas", str(fake)]) == code
    shown = capsys.readouterr().out
    assert f"{crashing}: " in shown and "repeat the crash with: " in shown


@pytest.mark.parametrize("words", [["--options", "-O1"], ["--options=-O1"], ["--options", "-O1 -v"]])
def test_options_may_look_like_options(words: list[str], plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["diff", str(plain), str(plain), *words, "--json"]) == 0
    assert any(": -O1" in note for note in json.loads(capsys.readouterr().out)["notes"])


# --- ptxas, status, table


def test_ptxas_list_matches_the_library(capsys: pytest.CaptureFixture) -> None:
    assert main(["ptxas", "list", "--json"]) == 0
    listed = {item["version"] for item in json.loads(capsys.readouterr().out)["ptxas"]}
    assert listed == {tool.version for tool in available_ptxas()}


@pytest.mark.parametrize("version", ["12.8", "banana", "12.8.93; rm -rf /"])
def test_ptxas_add_wants_a_full_version(version: str, capsys: pytest.CaptureFixture) -> None:
    assert "is not a full version" in failing(capsys, "ptxas", "add", version)


def test_status_shows_every_slot(capsys: pytest.CaptureFixture) -> None:
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["slots"].values()) == {"free"}
    assert "compilation.listener" in document["slots"]


# --- the parser


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert len(capsys.readouterr().out) > 100


def test_no_verb_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-m", "tritonhook"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "VERB" in done.stderr


def test_an_entry_that_no_side_has_is_an_error(plain: Path, capsys: pytest.CaptureFixture) -> None:
    assert "--entry typo: no such kernel; there is: work" in failing(
        capsys, "diff", str(plain), str(plain), "--entry", "typo"
    )
    assert "--entry typo: no such kernel" in failing(capsys, "ab", str(plain), "--entry", "typo")


def test_a_binary_side_is_called_neither_ptx_nor_cubin(tmp_path, capsys):
    (tmp_path / "k.bin").write_bytes(b".version 8.7\0\1\2")
    error = failing(capsys, "diff", str(tmp_path / "k.bin"), str(tmp_path / "k.bin"))
    assert "k.bin: a binary file, but no ELF image; give PTX, a cubin, or a capture folder" in error


def test_ptx_beside_a_cubin_is_assembled_by_the_ptxas_that_made_the_cubin(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    # sm_100 images say which ptxas made them; a newer one may be at hand.
    text = condition("fma").ptx("work")
    versions = sorted({tool.version for tool in available_ptxas()}, key=lambda v: [int(x) for x in v.split(".")])
    made = assemble(find_ptxas(versions[0]), text, ("-v",))
    if not isinstance(made, Assembled):
        pytest.skip(f"ptxas {versions[0]} does not read this PTX: {made.summary}")
    (tmp_path / "k.ptx").write_text(text.text)
    (tmp_path / "k.cubin").write_bytes(made.cubin.data)
    assert main(["diff", str(tmp_path / "k.ptx"), str(tmp_path / "k.cubin"), "--options=-v", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["a"]["ptxas"], document["b"]["ptxas"]) == (versions[0], versions[0])
    other = versions[-1]
    main(["diff", str(tmp_path / "k.ptx"), str(tmp_path / "k.cubin"), "--ptxas", other, "--json"])
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any(f"a is made by ptxas {other}, b by ptxas {versions[0]}" in note for note in notes) == (
        other != versions[0]
    )


# --- where the output goes, and what goes wrong


def shell(line: str, *words: object, pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess:
    """A line of shell, in which CLI is the command and $1, $2 ... are `words`."""
    program = f'CLI() {{ {shlex.quote(sys.executable)} -m tritonhook "$@"; }}\n{line}'
    command = ["bash", "-c", program, "bash", *map(str, words)]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}  # failures that wait in a buffer count
    return subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=pass_fds, env=env)


REPORTS = ['diff "$1" "$1"', 'diff "$1" "$1" --json', "ptxas list", "ptxas list --json", "status", "--help"]


@pytest.mark.parametrize("report", REPORTS)
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


def test_a_closed_output_does_not_matter_to_who_prints_nothing(plain: Path, tmp_path: Path) -> None:
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

    monkeypatch.setattr("tritonhook.cli.diff.load_input", fail)
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
        "ptxas": {"path": "/[bold]/ptxas", "version": "[/v]", "arguments": ["[dim]"]},
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
    for word in ("m[/x]", "odd[/k]", "[red]arch", "[/v]", "old[/k]"):
        assert word in listed
    assert main(["show", record]) == 0
    shown = capsys.readouterr().out
    for word in ("odd[/k]", "[bold]hash", "[red]arch", "/[bold]/ptxas", "[dim]", "[bold]option", "[/red]"):
        assert word in shown
    assert ":smile: [/note]" in shown
    assert str(folder) in shown.replace("\n", "")


def test_brackets_in_paths_of_tools_stay(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    tool = Tool(tmp_path / "[bold]" / "ptxas", "12.8.93", "[/cache]")
    for verb in ("ptxas", "status"):
        monkeypatch.setattr(f"tritonhook.cli.{verb}.available_ptxas", lambda: [tool])
    monkeypatch.setenv("TRITONHOOK_OUT", "out[/x]")
    assert main(["ptxas", "list"]) == 0
    listed = capsys.readouterr().out.replace("\n", "")
    assert "/[bold]/ptxas" in listed
    assert "[/cache]" in listed
    assert main(["status"]) == 0
    status = capsys.readouterr().out
    assert "([/cache])" in status
    assert "out[/x]" in status
