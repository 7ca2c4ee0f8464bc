"""Installing ptxas by version. No network: the wheels are made here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.errors import ToolError
from tritonhook.ptxas import install
from tritonhook.ptxas.install import add_ptxas, package_of, released_versions
from tritonhook.ptxas.tool import Tool, available_ptxas, find_ptxas, inspect_tool

MakeTool = Callable[..., Tool]


@pytest.mark.parametrize(
    "version, requirement",
    [
        ("12.8.93", "nvidia-cuda-nvcc-cu12==12.8.93"),
        ("11.8.89", "nvidia-cuda-nvcc-cu11==11.8.89"),
        ("13.0.88", "nvidia-cuda-nvcc==13.0.88"),
        ("13.5.37", "nvidia-cuda-nvcc==13.5.37"),
    ],
)
def test_package_of(version: str, requirement: str) -> None:
    assert package_of(version) == requirement


@pytest.mark.parametrize("version", ["12.8", "12", "latest", "12.8.93.1", "12.8.93 --index-url=x", "", "12.8.x"])
def test_part_of_a_version_names_no_package(version: str) -> None:
    with pytest.raises(ToolError, match="not a full version"):
        package_of(version)


BINARY = b"#!/bin/sh\necho 'release 12.1, V12.1.66'\n"
MEMBER = "nvidia/cuda_nvcc/bin/ptxas"


def record_line(member: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{member},sha256={digest},{len(data)}"


WHOLE = {MEMBER: BINARY, "x.dist-info/RECORD": f"x/__init__.py,,\n{record_line(MEMBER, BINARY)}\n".encode()}


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bytes]], list[str]]:
    """Serves a wheel of these files in place of pip; returns the list of requirements asked for."""

    def serve(files: dict[str, bytes]) -> list[str]:
        asked: list[str] = []

        def download(requirement: str, folder: Path) -> Path:
            asked.append(requirement)
            path = folder / "some.whl"
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in files.items():
                    archive.writestr(name, data)
            return path

        monkeypatch.setattr(install, "_download", download)
        return asked

    return serve


def kept() -> list[str]:
    folder = Path(os.environ["TRITONHOOK_CACHE"]) / "tools"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


Serve = Callable[[dict[str, bytes]], list[str]]
FILES = ["ptxas-12.1.66", "ptxas-12.1.66/ptxas", "ptxas-12.1.66/tool.json"]


def test_added_ptxas_is_kept_with_its_hash_and_found(wheel: Serve, only_these: Path) -> None:
    asked = wheel({"other/file": b"x" * 1000, **WHOLE})
    tool = add_ptxas("12.1.66")
    assert asked == ["nvidia-cuda-nvcc-cu12==12.1.66"]
    assert (tool.version, tool.source, tool.path.read_bytes()) == ("12.1.66", "added", BINARY)
    assert kept() == FILES
    note = json.loads(tool.path.with_name("tool.json").read_text())
    assert note["sha256"] == hashlib.sha256(BINARY).hexdigest()
    assert note["requirement"] == "nvidia-cuda-nvcc-cu12==12.1.66"
    assert (note["size"], note["mtime_ns"]) == (len(BINARY), tool.path.stat().st_mtime_ns)
    assert find_ptxas("12.1.66") == find_ptxas() == tool


def test_added_ptxas_is_not_fetched_again(wheel: Serve) -> None:
    asked = wheel(WHOLE)
    assert add_ptxas("12.1.66") == add_ptxas("12.1.66")
    assert len(asked) == 1


@pytest.mark.parametrize("damage", ["binary", "note", "no note"])
def test_damaged_ptxas_is_fetched_again(wheel: Serve, damage: str) -> None:
    asked = wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    if damage == "binary":
        path.write_bytes(BINARY + b"# tampered\n")
    elif damage == "note":
        path.with_name("tool.json").write_text("{")
    else:
        path.with_name("tool.json").unlink()
    assert add_ptxas("12.1.66").path.read_bytes() == BINARY
    assert len(asked) == 2
    assert kept() == FILES


@pytest.mark.parametrize(
    "files, message",
    [
        ({**WHOLE, MEMBER: BINARY + b"#"}, "does not have the hash that the wheel's RECORD states; nothing was kept"),
        ({"x.dist-info/RECORD": b""}, "contains no bin/ptxas"),
        ({MEMBER: BINARY}, "contains no bin/ptxas"),
        ({"nvidia/bin/ptxas.txt": BINARY, "x.dist-info/RECORD": b""}, "contains no bin/ptxas"),
        ({**WHOLE, "x.dist-info/RECORD": f"{MEMBER},,\n".encode()}, "RECORD states no hash for ptxas"),
        ({**WHOLE, "x.dist-info/RECORD": f"{MEMBER},md5=x,3\n".encode()}, "RECORD states no hash for ptxas"),
        ({**WHOLE, "x.dist-info/RECORD": b""}, "RECORD states no hash for ptxas"),
    ],
)
def test_wheel_that_does_not_fit_keeps_nothing(wheel: Serve, files: dict[str, bytes], message: str) -> None:
    wheel(files)
    with pytest.raises(ToolError, match=f"nvidia-cuda-nvcc-cu12==12.1.66: .*{message}"):
        add_ptxas("12.1.66")
    assert kept() == []


def test_a_wheel_that_unpacks_to_gigabytes_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, only_these: Path
) -> None:
    def download(requirement: str, folder: Path) -> Path:
        with zipfile.ZipFile(folder / "bomb.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.dist-info/RECORD", WHOLE["x.dist-info/RECORD"])
            with archive.open(MEMBER, "w", force_zip64=True) as member:
                for _ in range(600):
                    member.write(bytes(1 << 20))
        return folder / "bomb.whl"

    monkeypatch.setattr(install, "_download", download)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(ToolError, match="bin/ptxas in its wheel has 629,145,600 bytes; at most"):
        add_ptxas("12.1.66")
    assert kept() == []


def test_wheel_that_does_not_fit_leaves_what_was_there(wheel: Serve) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    path.with_name("tool.json").unlink()
    wheel({**WHOLE, MEMBER: BINARY + b"#"})
    with pytest.raises(ToolError, match="does not have the hash"):
        add_ptxas("12.1.66")
    assert path.read_bytes() == BINARY


TAMPERED = BINARY.replace(b"release", b"RELEASE")  # of the same size


@pytest.mark.parametrize(
    "data, reason",
    [
        (BINARY + b"#", rf"it has {len(BINARY) + 1} bytes, and had {len(BINARY)} when it was added"),
        (TAMPERED, "its hash is not the one it had when it was added"),
    ],
)
def test_stored_ptxas_that_was_changed_is_not_used(wheel: Serve, only_these: Path, data: bytes, reason: str) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    inspect_tool.cache_clear()
    with pytest.raises(ToolError, match=f"ptxas: not used: {reason}; `tritonhook ptxas add 12.1.66` fetches it again"):
        find_ptxas("12.1.66")
    assert list(available_ptxas()) == []
    # and adding it again repairs it
    assert add_ptxas("12.1.66").path.read_bytes() == BINARY
    assert find_ptxas("12.1.66").path == path


def test_changed_ptxas_is_not_even_started_by_add(wheel: Serve, tmp_path: Path) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\necho V12.1.66\n")
    inspect_tool.cache_clear()
    add_ptxas("12.1.66")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("note", ["{", "null", "[]", "{}", '"x"', "5"])
def test_stored_ptxas_with_a_damaged_note_is_not_used(wheel: Serve, only_these: Path, note: str) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    path.with_name("tool.json").write_text(note)
    with pytest.raises(ToolError, match=r"ptxas: not used: its tool\.json cannot be read"):
        find_ptxas("12.1.66")
    assert add_ptxas("12.1.66").path.read_bytes() == BINARY
    assert find_ptxas("12.1.66").path == path


@pytest.mark.parametrize(("binary", "why"), [(BINARY, "it is version 12.1.66"), (b"text", "cannot run: .*")])
def test_binary_that_is_not_the_one_asked_for_is_an_error(wheel: Serve, binary: bytes, why: str) -> None:
    wheel({MEMBER: binary, "x.dist-info/RECORD": record_line(MEMBER, binary).encode()})
    with pytest.raises(ToolError, match=rf"^nvidia-cuda-nvcc-cu12==12.2.1: its ptxas cannot be used \({why}\)"):
        add_ptxas("12.2.1")
    assert kept() == []


def test_wheel_that_is_no_archive_is_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(requirement: str, folder: Path) -> Path:
        (folder / "some.whl").write_bytes(b"hello")
        return folder / "some.whl"

    monkeypatch.setattr(install, "_download", download)
    with pytest.raises(ToolError, match="^nvidia-cuda-nvcc-cu12==12.1.66: the file that pip fetched is not a wheel"):
        add_ptxas("12.1.66")


def test_damaged_member_of_a_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(requirement: str, folder: Path) -> Path:
        with zipfile.ZipFile(folder / "some.whl", "w") as archive:
            for name, data in WHOLE.items():
                archive.writestr(name, data)
        path = folder / "some.whl"
        path.write_bytes(path.read_bytes().replace(BINARY, TAMPERED))
        return path

    monkeypatch.setattr(install, "_download", download)
    with pytest.raises(ToolError, match=rf"nvcc-cu12==12.1.66: {MEMBER} in its wheel cannot be unpacked \(Bad CRC-32"):
        add_ptxas("12.1.66")
    assert kept() == []


def test_the_versions_that_can_be_added_come_newest_first(monkeypatch: pytest.MonkeyPatch, make_tool: MakeTool) -> None:
    """Of all packages, as pip lists them; those of other forms are none that can be fetched."""
    pip = make_tool(
        "[ \"$1 $2 $3 $4 $5 $6 $7\" = '-m pip index versions --disable-pip-version-check --retries 1' ] || exit 9\n"
        "echo 'nvidia (1.2.3)'\ncase $8 in\n"
        "nvidia-cuda-nvcc) echo 'Available versions: 13.10.1, 13.9.2';;\n"
        "*cu12) echo 'Available versions: 12.8.93, 12.9, 12.9.86.1,13.9.2';;\n"
        "*) echo 'ERROR: none' >&2; exit 1;;\nesac",
        name="pip",
    )
    monkeypatch.setattr(install.sys, "executable", str(pip.path))
    assert released_versions() == ["13.10.1", "13.9.2", "12.8.93"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [("echo 'ERROR: no index' >&2; exit 1", "ERROR: no index"), ("echo 'Available versions: '", "it printed none")],
)
def test_where_pip_lists_no_version_its_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, make_tool: MakeTool, body: str, reason: str
) -> None:
    monkeypatch.setattr(install.sys, "executable", str(make_tool(body, name="pip").path))
    with pytest.raises(ToolError, match=f"^pip could not list the versions of ptxas: {reason}$"):
        released_versions()
    monkeypatch.setattr(install.sys, "executable", "/no/such/python")
    with pytest.raises(ToolError, match="of ptxas: cannot run pip: '/no/such/python': No such file or directory$"):
        released_versions()


def test_python_that_cannot_run_pip_is_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.sys, "executable", "/no/such/python")
    with pytest.raises(ToolError, match="cannot run pip: '/no/such/python': No such file"):
        add_ptxas("12.1.66")


def test_folder_that_cannot_be_written_is_a_tool_error(
    wheel: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel(WHOLE)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITONHOOK_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolError, match="cannot keep ptxas there: .*; set TRITONHOOK_CACHE"):
        add_ptxas("12.1.66")
