"""NVIDIA's programs: running one, its targets and its hash; and finding them, in all the places where they can be."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas import tool
from tritonhook.ptxas.tool import (
    Finished,
    Tool,
    available_ptxas,
    binary_sha256,
    check_targets,
    find_nvdisasm,
    find_ptxas,
    find_recorded,
    fixed_length,
    is_same_file,
    run_tool,
    target_key,
    targets,
    temporary_file,
)
from tritonhook.ptxas.toolchain import Toolchain, find_toolchain

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


def test_a_temporary_file_that_cannot_be_written_is_named(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "cannot write a temporary file: No such file or directory; set TMPDIR"
    with pytest.raises(ToolError, match=rf"^{scratch}/tritonhook-\w+/no/code.bin: {said}"):
        temporary_file("no/code.bin", b"").__enter__()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch / "gone"))
    with pytest.raises(ToolError, match=f"^code.bin: {said}"):
        temporary_file("code.bin", b"").__enter__()


def test_a_path_gets_slashes_up_to_a_length(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_text("text")
    assert len(fixed_length(path)) == 256 and Path(fixed_length(path)).read_text() == "text"
    long = Path("/" + "x" * 250, "kernel.ptx")
    assert fixed_length(long) == str(long)


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
        with pytest.raises(ToolError, match=rf"^sm_70: no target of ptxas {versions}: sm_90, sm_100a$"):
            check_targets(["sm_80", "sm_70"], tools)


def test_what_is_no_target_has_no_key() -> None:
    assert target_key("sm_100a") == (100, "a") and target_key("sm_90") == (90, "")
    for arch in ("sm_", "sm_90ab", "SM_90", "xsm_90"):
        with pytest.raises(ToolError, match=f"^{arch!r} is not a target"):
            target_key(arch)


def test_programs_are_the_same_if_their_bytes_are(tmp_path: Path) -> None:
    one, other, longer, gone = (tmp_path / name for name in ("one", "other", "longer", "gone"))
    one.write_bytes(b"ab")
    other.write_bytes(b"ba")
    longer.write_bytes(b"abc")
    assert is_same_file(one, one) and not is_same_file(one, other) and not is_same_file(one, longer)
    other.write_bytes(b"ab")
    assert is_same_file(one, other)
    for pair in ((one, gone), (gone, one)):
        with pytest.raises(ToolError, match=f"^{gone}: No such file or directory; see"):
            is_same_file(*pair)
    with pytest.raises(ToolError, match=f"^{gone}: No such file or directory; see"):
        binary_sha256(gone)


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
        (None, "1.2.3", ("ptxas 1.2.3 (path not known)", "`tritonhook ptxas add 1.2.3`, or take"), ("--trust",)),
        ("/no/such", "newest", ("ptxas newest (/no/such)", "; take another one"), ("ptxas add", "--trust")),
    ):
        with pytest.raises(ToolError) as caught:
            find_recorded(path, version)
        assert all(text in str(caught.value) for text in told)
        assert not any(text in str(caught.value) for text in untold)


def test_every_place_is_looked_into_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels, in each folder of sys.path; Triton; the toolkit of the environment, and in its usual place; PATH."""
    wheels, triton = tmp_path / "wheels", tmp_path / "triton"
    for folder in ("nvidia/cuda_nvcc/bin", "nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin"):
        (wheels / folder).mkdir(parents=True)
    monkeypatch.chdir(wheels)
    monkeypatch.setattr(sys, "path", ["", "/no/such", str(wheels)])
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: SimpleNamespace(submodule_search_locations=[triton, name])
    )
    monkeypatch.setenv("CUDA_HOME", "/home")
    monkeypatch.setenv("CUDA_PATH", "/path")
    monkeypatch.setattr(tool.shutil, "which", lambda program: f"/bin/{program}")
    wheel = [Path("nvidia", name, "bin/ptxas") for name in ("cu13", "cuda_nvdisasm", "cuda_nvcc")]
    expected = [
        *((path, "wheel") for path in (*wheel, *(wheels / path for path in wheel))),
        *((Path(folder, "backends/nvidia/bin/ptxas"), "Triton") for folder in (triton, "triton")),
        (Path("/home/bin/ptxas"), "$CUDA_HOME"),
        (Path("/path/bin/ptxas"), "$CUDA_PATH"),
        (Path("/usr/local/cuda/bin/ptxas"), "CUDA toolkit"),
        (Path("/bin/ptxas"), "PATH"),
    ]
    assert list(tool._candidates("ptxas")) == expected
    for spec in (None, SimpleNamespace(submodule_search_locations=None)):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        assert not list(tool._triton_folders())
    monkeypatch.setattr(tool.shutil, "which", lambda program: None)
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setenv("CUDA_PATH", "")
    assert list(tool._candidates("ptxas"))[-1] == (Path("/usr/local/cuda/bin/ptxas"), "CUDA toolkit")
    assert tool.tools_folder() == Path(os.environ["TRITONHOOK_CACHE"], "tools")


def test_an_added_ptxas_is_used_as_long_as_it_has_its_size_and_time_or_hash(tmp_path: Path) -> None:
    folder = tool.tools_folder() / "ptxas-1.2.3"
    folder.mkdir(parents=True)
    binary = folder / "ptxas"
    binary.write_text("#!/bin/sh\necho V1.2.3\n")
    os.utime(binary, ns=(7, 7))
    sha256 = binary_sha256(binary)
    for size, mtime_ns, digest, reason in (
        (22, 7, "not read", None),
        (22, 8, sha256, None),
        (None, None, sha256, None),
        (23, 7, sha256, "it has 22 bytes, and had 23 when it was added"),
        (22, 8, "another", "its hash is not the one it had when it was added"),
    ):
        note = {"size": size, "mtime_ns": mtime_ns, "sha256": digest}
        (folder / "tool.json").write_text(json.dumps({name: it for name, it in note.items() if it is not None}))
        tried: list[str] = []
        assert list(tool.added_binaries(tried)) == ([] if reason else [(binary, "added")])
        assert tried == (
            [f"{binary}: not used: {reason}; `tritonhook ptxas add 1.2.3` fetches it again"] if reason else []
        )
        assert tool.is_intact(folder) == (digest == sha256)
    (folder / "tool.json").unlink()
    assert not tool.is_intact(folder)


def test_what_is_no_tool_is_noted_and_the_next_place_is_looked_into(
    only_these: Path, make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind a program that was seen before."""
    first, second = make_tool("", version="1.2.3", name="one"), make_tool("", version="1.2.4", name="two")
    places = [(only_these / "gone", "a"), (first.path, "b"), (first.path, "c"), (second.path, "d")]
    tried: list[str] = []
    found = list(tool._usable(places, tried))
    assert found == [Tool(first.path, "1.2.3", "b"), Tool(second.path, "1.2.4", "d")]
    assert tried == [f"{only_these / 'gone'}: no such file"]
    (tool.tools_folder() / "ptxas-9").mkdir(parents=True)
    assert list(available_ptxas(tried)) == [] and "ptxas-9/ptxas: not used: " in tried[1]


def test_of_an_added_ptxas_that_is_gone_the_reason_is_told(tmp_path: Path) -> None:
    for name, note in (("ptxas-1.2.3", '{"sha256": ""}'), ("ptxas-1.2.4", '{"size": 1}'), ("other", "")):
        folder = tool.tools_folder() / name
        folder.mkdir(parents=True)
        (folder / "tool.json").write_text(note)
    tried: list[str] = []
    assert not list(tool.added_binaries(tried))
    first, second = tried
    place = tool.tools_folder() / "ptxas-1.2.3/ptxas"
    remedy = "; `tritonhook ptxas add 1.2.3` fetches it again"
    assert first == f"{place}: not used: No such file or directory{remedy}"
    assert "ptxas-1.2.4/ptxas: not used: its tool.json cannot be read (KeyError: 'sha256')" in second


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


def test_toolchain_by_path(make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = make_tool("")
    monkeypatch.setenv("TRITONHOOK_NVDISASM", str(tool.path))
    assert find_toolchain(tool.path).ptxas.path == tool.path


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


def test_missing_version_lists_the_other_versions(only_these: Path, make_tool: MakeTool) -> None:
    make_tool("", version="12.8.93")
    with pytest.raises(ToolError, match=r"bin/ptxas: .*12\.8\.93"):
        find_ptxas("12.1.2")


def test_missing_nvdisasm_lists_what_was_tried_and_the_remedy(only_these: Path) -> None:
    with pytest.raises(ToolError, match=r"pip install nvidia-cuda-nvdisasm`. Tried:\n  .*bin/nvdisasm: no such file$"):
        find_nvdisasm()


def test_where_no_place_is_known_nothing_was_tried(monkeypatch: pytest.MonkeyPatch, only_these: Path) -> None:
    monkeypatch.setattr(tool, "_toolkit_folders", lambda: iter(()))
    for find in (find_nvdisasm, find_ptxas):
        with pytest.raises(ToolError, match=r"Tried:\n  nothing$"):
            find()


def test_same_program_by_two_ways_is_one_tool(only_these: Path, make_tool: MakeTool) -> None:
    tool = make_tool("")
    (only_these / "ptxas-blackwell").symlink_to(tool.path)
    assert [found.version for found in available_ptxas()] == ["9.8.7"]
