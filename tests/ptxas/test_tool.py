"""NVIDIA's programs: running one, its targets and its hash; and finding them, in all the places where they can be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas import tool
from tritonhook.ptxas.tool import (
    Finished,
    Tool,
    available_ptxas,
    check_targets,
    find_nvdisasm,
    find_ptxas,
    find_recorded,
    noted,
    run_tool,
    targets,
    temporary_file,
)
from tritonhook.ptxas.toolchain import Toolchain

MakeTool = Callable[..., Tool]


def test_a_run_gives_both_streams_and_its_end_and_no_wrapper_records_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "kept")
    words = ("sh", "-c", "echo $TRITONHOOK_PTXAS_WRAPPER $OTHER; echo wrong >&2; exit 3")
    assert run_tool(words) == Finished(3, b"off kept\n", b"wrong\n", timed_out=False)
    with pytest.raises(ToolError, match="^/no/such: cannot run: No such file or directory$"):
        run_tool(("/no/such",))
    with pytest.raises(KeyboardInterrupt):
        run_tool(("sh", "-c", "kill -INT $$"))


@pytest.mark.parametrize(("script", "out", "err"), [("echo out", b"out\n", b""), ("echo err >&2", b"", b"err\n")])
def test_a_run_that_is_stopped_gives_what_it_said(script: str, out: bytes, err: bytes) -> None:
    assert run_tool(("sh", "-c", f"{script}; exec sleep 60"), 0.5) == Finished(-9, out, err, timed_out=True)


def test_a_temporary_file_has_a_folder_of_its_own_for_a_while(scratch: Path) -> None:
    with temporary_file("code.bin", b"data") as path:
        assert (path.name, path.read_bytes()) == ("code.bin", b"data")
        assert path.parent.parent == scratch and path.parent.name.startswith("tritonhook-")
    assert not list(scratch.iterdir())


HELP = """
--entry <name>  (-e)
        'sm_1' is none of them
--gpu-name <name>  (-arch)
        Allowed values: 'sm_90a','sm_100f', 'sm_90', 'compute_90', 'sm_100'
--machine <bits>  (-m)
        'sm_2' is none of them
"""


def test_targets_are_those_of_one_option_in_order(make_tool: MakeTool) -> None:
    tool = make_tool(f'[ "$1" = --help ] && cat <<END\n{HELP}\nEND')
    assert targets(tool) == ("sm_90", "sm_90a", "sm_100", "sm_100f")
    with pytest.raises(ToolError, match="nvdisasm: its --help names no targets for --gpu-name"):
        targets(make_tool("", name="nvdisasm"))


def test_a_target_that_no_ptxas_knows_is_told_with_those_of_the_newest(make_tool: MakeTool) -> None:
    made = {"1.10.0": "'sm_90','sm_100a'", "1.9.0": "'sm_80'"}
    old, new = (
        make_tool(f'echo "--gpu-name {names}"', version=version, name=version)
        for version, names in reversed(made.items())
    )
    check_targets(["sm_80", "sm_100a"], [old, new])
    for tools in ([old, new], [new, old]):
        versions = ", ".join(tool.version for tool in tools)
        with pytest.raises(ToolError, match=rf"^sm_70: not a target of ptxas {versions}; give one of sm_90, sm_100a$"):
            check_targets(["sm_80", "sm_70"], tools)


def test_the_ptxas_that_a_file_names_is_one_of_ours(only_these: Path, make_tool: MakeTool, tmp_path: Path) -> None:
    """Of the same bytes, else of the same version; the program at the path only if the file is trusted."""
    ours, newer = make_tool(""), make_tool("", version="9.8.8", name="ptxas-blackwell")
    theirs = tmp_path / "theirs"
    theirs.write_bytes(newer.path.read_bytes())
    theirs.chmod(0o755)
    found = {tool.path: tool for tool in available_ptxas()}
    assert find_recorded(None, None) is None and find_recorded("", None, trust=True) is None
    assert find_recorded(str(theirs), "9.8.7") == found[newer.path]
    assert find_recorded(None, "9.8.7") == find_recorded("/no/such", "9.8.7") == found[ours.path]
    assert find_recorded(str(theirs), "9.8.7", trust=True) == Tool(theirs, "9.8.8", "trusted")
    theirs.write_text("other bytes")
    assert find_recorded(str(theirs), "9.8.8") == found[newer.path]
    for path, version, told, untold in (
        (str(theirs), None, ("ptxas of unknown version", str(theirs), "--trust"), ("ptxas add",)),
        (None, "1.2.3", ("ptxas 1.2.3 (path not known)", "`tritonhook ptxas add 1.2.3`, or use"), ("--trust",)),
        ("/no/such", "newest", ("ptxas newest (/no/such)", "; use another one"), ("ptxas add", "--trust")),
    ):
        with pytest.raises(ToolError) as caught:
            find_recorded(path, version)
        assert all(text in str(caught.value) for text in told)
        assert not any(text in str(caught.value) for text in untold)


@pytest.mark.parametrize("wanted", ["12.8.93", "12.8"])
def test_ptxas_by_version(tools: Toolchain, wanted: str) -> None:
    tool = find_ptxas(wanted)
    assert tool.version == "12.8.93"
    assert tool.path.exists()


@pytest.mark.parametrize(
    "wanted, version",
    [(None, "13.10.1"), ("12", "12.9.86"), ("12.8", "12.8.93"), ("12.8.93", "12.8.93"), ("13", "13.10.1")],
)
def test_newest_that_fits(only_these: Path, monkeypatch: pytest.MonkeyPatch, wanted: str | None, version: str) -> None:
    folders = []
    for number in ("12.8.93", "13.10.1", "13.9.2", "12.9.86", "1.12.8"):
        folder = only_these / number
        folder.mkdir()
        (folder / "ptxas").write_text(f"#!/bin/sh\necho V{number}\n")
        (folder / "ptxas").chmod(0o755)
        folders.append((folder, "CUDA toolkit"))
    monkeypatch.setattr(tool, "_toolkit_folders", lambda: iter(folders))
    assert find_ptxas(wanted).version == version


def test_version_is_no_prefix_of_digits(only_these: Path, make_tool: MakeTool) -> None:
    make_tool("", version="12.80.1")
    with pytest.raises(ToolError, match="ptxas 12.8: not found"):
        find_ptxas("12.8")


def test_ptxas_by_path_and_by_environment(make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = make_tool("")
    assert find_ptxas(str(tool.path)) == Tool(tool.path, "9.8.7", "given")
    assert find_ptxas(tool.path) == Tool(tool.path, "9.8.7", "given")
    monkeypatch.setenv("TRITONHOOK_PTXAS", str(tool.path))
    assert find_ptxas().version == "9.8.7"
    monkeypatch.setenv("TRITONHOOK_NVDISASM", str(tool.path))
    assert find_nvdisasm() == Tool(tool.path, "9.8.7", "$TRITONHOOK_NVDISASM")


@pytest.mark.parametrize("wanted", [12.8, 12, b"/bin/ptxas", ["12.8.93"]])
def test_what_is_neither_version_nor_path_is_a_tool_error(wanted: object) -> None:
    with pytest.raises(ToolError, match="not a ptxas; give a path, or a version as text such as '12.8.93'"):
        find_ptxas(wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "not an executable file"),
        (lambda path: path.write_text("#!/bin/sh\necho V1.2.3\n"), "not an executable file"),
        (lambda path: (path.write_text("#!/bin/sh\necho hello\n"), path.chmod(0o755)), "prints no version"),
        (lambda path: (path.write_bytes(b"\x7fELF\0\0"), path.chmod(0o755)), "cannot run"),
    ],
)
def test_path_that_is_no_ptxas_says_why(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    path = tmp_path / "some-ptxas"
    make(path)
    with pytest.raises(ToolError, match=rf"some-ptxas: {reason}.*give a ptxas.* or a version such as"):
        find_ptxas(str(path))


def test_missing_ptxas_lists_what_was_tried_and_the_remedy(only_these: Path) -> None:
    (only_these / "ptxas").write_text("not a program")
    with pytest.raises(ToolError) as caught:
        find_ptxas("12.1.2")
    message = str(caught.value)
    assert message.startswith("ptxas 12.1.2: not found; get it with `tritonhook ptxas add 12.1.2`. Tried:\n")
    assert f"{only_these / 'ptxas'}: not an executable file" in message
    assert f"{only_these / 'ptxas-blackwell'}: no such file" in message
    with pytest.raises(ToolError, match="`tritonhook ptxas add 12.8.93`"):
        find_ptxas("12.1")
    with pytest.raises(ToolError, match="^ptxas: not found; ") as caught:
        find_ptxas()
    assert str(caught.value).splitlines()[1:] == [
        f"  {only_these / 'ptxas'}: not an executable file",
        f"  {only_these / 'ptxas-blackwell'}: no such file",
    ]


def test_missing_nvdisasm_lists_what_was_tried_and_the_remedy(only_these: Path) -> None:
    with pytest.raises(ToolError, match=r"pip install nvidia-cuda-nvdisasm`. Tried:\n  .*bin/nvdisasm: no such file$"):
        find_nvdisasm()


def test_same_program_by_two_ways_is_one_tool(only_these: Path, make_tool: MakeTool) -> None:
    tool = make_tool("")
    (only_these / "ptxas-blackwell").symlink_to(tool.path)
    assert [found.version for found in available_ptxas()] == ["9.8.7"]


def test_answer_of_a_large_program_is_kept_for_a_month(tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(bytes(1 << 20))
    small.write_bytes(b"#!/bin/sh")
    kept = tmp_path / "cache" / "answers"
    kept.mkdir(parents=True)
    (kept / "old").touch()
    os.utime(kept / "old", (1, 1))
    each = [(large, b""), (large, b"1"), (large, b"2"), (small, b"3"), (small, b"4")]
    assert [noted(path, "a", lambda now=now: now) for path, now in each] == [b"", b"1", b"1", b"3", b"4"]
    assert noted(large, "b", lambda: b"5") == b"5" and len(list(kept.iterdir())) == 2
    large.touch()  # another program now
    assert noted(large, "a", lambda: b"6") == noted(large, "a", lambda: b"7") == b"6"
    assert len(list(kept.iterdir())) == 3
