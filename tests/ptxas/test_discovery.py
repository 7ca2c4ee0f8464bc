"""Finding ptxas and nvdisasm by version, by path, and in all the places where they can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas import tool
from tritonhook.ptxas.tool import Tool, available_ptxas, find_nvdisasm, find_ptxas
from tritonhook.ptxas.toolchain import Toolchain, find_toolchain

MakeTool = Callable[..., Tool]


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
    with pytest.raises(ToolError, match="^ptxas: not found"):
        find_ptxas()


def test_missing_version_lists_the_other_versions(only_these: Path, make_tool: MakeTool) -> None:
    make_tool("", version="12.8.93")
    with pytest.raises(ToolError, match=r"bin/ptxas: .*12\.8\.93"):
        find_ptxas("12.1.2")


def test_missing_nvdisasm_lists_what_was_tried_and_the_remedy(only_these: Path) -> None:
    with pytest.raises(ToolError, match=r"pip install nvidia-cuda-nvdisasm`. Tried:\n.*bin/nvdisasm: no such file"):
        find_nvdisasm()


def test_same_program_by_two_ways_is_one_tool(only_these: Path, make_tool: MakeTool) -> None:
    tool = make_tool("")
    (only_these / "ptxas-blackwell").symlink_to(tool.path)
    assert [found.version for found in available_ptxas()] == ["9.8.7"]
