"""`tritonhook rename`, and how verbs read and write files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from at_hand import ptxas_at_hand
from command_line import failing
from hangs import HANG_S

from tests.memory.test_prediction import TILE_2D
from tests.ptx.test_cta_loads import LOAD, module
from tritonhook.cli import main
from tritonhook.ptx.cta_loads import ClusterToCta
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Assembled, Toolchain


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


def test_rename_counts_what_it_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    # Given a parameter whose name is not derived from the entry's: it stays
    path = tmp_path / "p.ptx"
    body = ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\nret;\n}\n"
    path.write_text(".version 8.0\n.target sm_90a\n.address_size 64\n" + body)
    for words, tokens in ((["--prefix", "cutlass_"], 1), (["--strip"], 0)):
        assert main(["rename", str(path), *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tokens"] == tokens


def test_a_rewrite_with_and_without_a_rename(plain: Path, capsys: pytest.CaptureFixture) -> None:
    directive = '.pragma "mma_throughput";'
    assert main(["rename", str(plain), "--rewrite", "mma-throughput"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count(directive) == 1
    assert Ptx(captured.out).entries == ("work",)
    assert captured.err == 'work: .pragma "mma_throughput" added\n'
    assert main(["rename", str(plain), "--prefix", "cutlass_", "--rewrite", "mma-throughput", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["names"] == {"work": "cutlass_work"}
    assert document["remarks"] == ['cutlass_work: .pragma "mma_throughput" added']
    assert Ptx(document["ptx"]).entries == ("cutlass_work",)


def test_a_rewrite_of_one_entry(two_entries: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["rename", str(two_entries), "--rewrite", "mma-throughput", "--entry", "second", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["remarks"] == ['second: .pragma "mma_throughput" added']


def test_a_rewrite_that_cannot_be_is_one_error_and_nothing_is_written(
    two_entries: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out, done = tmp_path / "out.ptx", tmp_path / "done.ptx"
    assert main(["rename", str(two_entries), "--rewrite", "mma-throughput", "-o", str(done)]) == 0
    capsys.readouterr()
    words = ("--rewrite", "mma-throughput", "-o", str(out))
    assert "changes nothing" in (said := failing(capsys, "rename", str(done), *words))
    assert "is there already" in said
    old = tmp_path / "old.ptx"
    old.write_text(".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n")
    assert 'oldest target is sm_75; give the entry a name with "cutlass"' in failing(capsys, "rename", str(old), *words)
    declared = tmp_path / "declared.ptx"
    declared.write_text(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k();\n")
    assert "is only declared here" in failing(capsys, "rename", str(declared), *words, "--entry", "k")
    assert "always changes the whole module" in failing(
        capsys, "rename", str(two_entries), "--rewrite", "tma-cta", "--entry", "first", "-o", str(out)
    )
    assert not out.exists()


def test_loads_become_those_of_the_cta_where_that_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    kernel, out = tmp_path / "k.ptx", tmp_path / "fixed.ptx"
    unproved = LOAD.replace("[%r2]", "[%r9]")
    kernel.write_text(module(f"{LOAD}\n    {unproved}").text)
    words = ["rename", str(kernel), "--rewrite", "tma-cta"]
    assert main([*words, "-o", str(out), "--json"]) == 0
    changed, stays = json.loads(capsys.readouterr().out)["remarks"]
    line = next(n for n, text in enumerate(kernel.read_text().splitlines(), 1) if "[%r9]" in text)
    assert ": 1 TMA load to " in changed and f"line {line}: " in stays and "is not proved" in stays
    assert out.read_text() == ClusterToCta().apply(Ptx(kernel.read_text())).text != kernel.read_text()
    kernel.write_text(module("").text)
    assert "changes nothing" in failing(capsys, *words)


def test_a_tma_load_to_the_cta_needs_no_driver_call(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    kernel, out = tmp_path / "k.ptx", tmp_path / "fixed.ptx"
    kernel.write_text(module().text)
    assert main(["rename", str(kernel), "--rewrite", "tma-cta", "-o", str(out)]) == 0
    capsys.readouterr()
    tool = ptxas_at_hand("12.9.86").version
    assert main(["diff", str(kernel), str(out), "--no-control", "--ptxas", tool, "--json"]) == 1
    resources = {it["field"]: (it["a"], it["b"]) for it in json.loads(capsys.readouterr().out)["resources"]}
    assert resources["syscalls"] == ([TILE_2D], []) and resources["stack"] == (8, 0)
    assert resources["registers"][0] > resources["registers"][1]


def test_rename_strip_and_entry(two_entries: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["rename", str(two_entries), "--prefix", "cutlass_", "--entry", "second"]) == 0
    text = capsys.readouterr().out
    assert Ptx(text).entries == ("first", "cutlass_second")
    two_entries.write_text(text)
    assert main(["rename", str(two_entries), "--strip"]) == 0
    assert Ptx(capsys.readouterr().out).entries == ("first", "second")
    assert main(["rename", "--strip", str(two_entries)]) == 0  # the flag does not swallow what follows it
    assert Ptx(capsys.readouterr().out).entries == ("first", "second")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to change; give --prefix"),
        (["--prefix", "9x"], "'9x' cannot start or be a PTX name"),
        (["--prefix", "a-b"], "cannot start or be a PTX name"),
        (["--to", "nonsense=x"], "no entry 'nonsense'; it has: first, second"),
        (["--to", "first=second"], "already has a symbol of that name"),
        (["--to", "first"], "write OLD=NEW"),
        (["--to", "first=x", "--prefix", "y"], "do not combine"),
        (["--prefix", "cutlass_", "--strip"], "cannot strip 'cutlass' and add"),
        (["--prefix", ""], "--prefix '': give at least one letter"),
        (["--to", "first=x", "--strip"], "do not combine"),
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
    held = os.open(pipe, os.O_WRONLY)  # waits for the reader
    try:
        assert main(["rename", str(plain), "--prefix", "x_", "-o", str(pipe), "--force"]) == 0
        os.close(held)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert Ptx(reader.communicate(timeout=HANG_S)[0]).entries == ("x_work",)
    finally:
        reader.kill()


# Seeds of failures: lines that end with CR or CRLF, and directives that share a line with `.entry` or with a use.
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
ENTRY = ".visible .entry k(.param .u64 k_param_0)\n{\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [k_param_0];\nret;\n}\n"
SEEDS = {
    "CR": (HEADER + ENTRY).replace("\n", "\r"),
    "CRLF": (HEADER + ENTRY).replace("\n", "\r\n"),
    "one line": (HEADER + ENTRY).replace("\n", " "),
    "an entry behind .address_size": HEADER.rstrip() + " " + ENTRY,
    "an entry behind .target": ".version 8.7\n.target sm_90a " + ENTRY,
    "a use behind .loc": HEADER + ENTRY.replace("ld.param", ".loc 1 1 1 ld.param") + '.file 1 "a.cu"\n',
    "a use behind .file": HEADER + '.file 1 "a.cu" ' + ENTRY,
}


@pytest.mark.parametrize("text", SEEDS.values(), ids=SEEDS)
def test_ptxas_takes_what_was_renamed_whatever_the_lines(tools: Toolchain, tmp_path: Path, text: str) -> None:
    before, after = tmp_path / "before.ptx", tmp_path / "after.ptx"
    before.write_bytes(text.encode())
    assert main(["rename", str(before), "--to", "k=new", "-o", str(after)]) == 0
    renamed = after.read_bytes().decode()
    assert renamed == text.replace(" k(", " new(").replace("k_param_0", "new_param_0")
    assert isinstance(tools.assemble(Ptx(renamed), ()), Assembled)
