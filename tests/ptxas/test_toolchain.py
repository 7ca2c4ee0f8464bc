"""Finding, installing and running ptxas and nvdisasm. No network: the wheels are made here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from repository import GOLDEN

from tritonhook.cubin.image import Cubin
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas import toolchain
from tritonhook.ptxas.toolchain import (
    Assembled,
    AssembleError,
    Crash,
    Tool,
    Toolchain,
    add_ptxas,
    assemble,
    find_nvdisasm,
    find_ptxas,
    find_toolchain,
    package_of,
    parse_spills,
    run_nvdisasm,
    signal_name,
)

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
KERNEL = Ptx(HEADER + ".visible .entry k()\n{\nret;\n}\n")
BAD = Ptx(HEADER + ".visible .entry k()\n{\nno_such_opcode.b32 %r1;\nret;\n}\n")


@pytest.fixture(autouse=True)
def none_of_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRITONHOOK_PTXAS", "TRITONHOOK_NVDISASM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITONHOOK_TOOLS", str(tmp_path / "tools"))
    toolchain._probe_cached.cache_clear()


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


MakeTool = Callable[..., Tool]


@pytest.fixture
def make_tool(tmp_path: Path) -> MakeTool:
    def make(body: str, version: str = "9.8.7", name: str = "ptxas") -> Tool:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "release 9.8, V{version}" && exit 0\n{body}\n')
        path.chmod(0o755)
        return Tool(path, version, "test")

    return make


def crash_of(tool: Tool, ptx: Ptx = KERNEL, timeout_s: float = 30.0, fixed_layout: bool = True) -> Crash:
    result = assemble(tool, ptx, (), timeout_s, fixed_layout)
    assert isinstance(result, Crash)
    return result


# --- assembling ----------------------------------------------------------------------------------


def test_kernel_is_assembled(tools: Toolchain, scratch: Path) -> None:
    result = tools.assemble(KERNEL)
    assert isinstance(result, Assembled)
    assert (result.cubin.kernels, result.cubin.arch) == (("k",), 90)
    resources = result.cubin.resources["k"]
    assert (resources.spill_stores, resources.spill_loads) == (0, 0)
    assert "Compiling entry function 'k' for 'sm_90a'" in result.log
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    "target, option, arch",
    [
        ("sm_80", (), 80),
        ("sm_120a", (), 120),
        ("sm_80", ("--gpu-name=sm_86",), 86),
        ("sm_80", ("-arch=sm_89",), 89),
        ("sm_80", ("-arch", "sm_90"), 90),
    ],
)
def test_target_is_the_modules_own_unless_named(
    tools: Toolchain, target: str, option: tuple[str, ...], arch: int
) -> None:
    result = tools.assemble(Ptx(KERNEL.text.replace("sm_90a", target)), option)
    assert isinstance(result, Assembled)
    assert result.cubin.arch == arch


def test_spills_get_from_the_log_into_the_cubin(tools: Toolchain) -> None:
    values = "".join(f"ld.volatile.global.u32 %r{i}, [%rd1];\n" for i in range(64))
    uses = "".join(f"st.volatile.global.u32 [%rd1], %r{i};\n" for i in range(64))
    body = f".reg .b32 %r<64>; .reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n{values}{uses}ret;"
    text = f".visible .entry k(.param .u64 p)\n{{\n{body}\n}}\n"
    result = tools.assemble(Ptx(HEADER + text), ("-v", "-maxrregcount=24"))
    assert isinstance(result, Assembled)
    resources = result.cubin.resources["k"]
    assert resources.registers == 24
    assert (resources.spill_stores, resources.spill_loads) == parse_spills(result.log)["k"]
    assert resources.stack is not None and resources.spill_stores is not None and resources.spill_loads is not None
    assert resources.spill_stores > 100 and resources.spill_loads > 100 and resources.stack > 100


def test_rejected_module_is_a_crash_without_a_signal(tools: Toolchain, scratch: Path) -> None:
    crash = crash_of(tools.ptxas, BAD)
    assert (crash.returncode, crash.signal, crash.timeout) == (255, None, False)
    assert (crash.ptx, crash.tool) == (BAD, tools.ptxas)
    assert crash.stderr.startswith("ptxas kernel.ptx, line 6; error   : Not a name of any known instruction")
    for text in (crash.stderr, crash.command, crash.summary):
        assert str(scratch) not in text and "tritonhook-" not in text
    assert crash.summary.startswith("ptxas 12.8.93 rejected the PTX (exit 255): ptxas kernel.ptx, line 6; error")
    assert "\n" not in crash.summary
    assert list(scratch.iterdir()) == []


def test_rejected_module_raises_with_the_command(tools: Toolchain) -> None:
    with pytest.raises(AssembleError) as caught:
        tools.assemble_or_raise(BAD)
    assert caught.value.crash.returncode == 255
    assert f"repeat with: {caught.value.crash.command}" in str(caught.value)
    assert isinstance(caught.value, ToolError)
    assert tools.assemble_or_raise(KERNEL).cubin.kernels == ("k",)


def test_command_repeats_the_run(tools: Toolchain, tmp_path: Path) -> None:
    result = tools.assemble_or_raise(KERNEL, ("-v", "-O1"))
    (tmp_path / "kernel.ptx").write_text(KERNEL.text)
    subprocess.run(result.command, shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert Cubin.from_bytes((tmp_path / "kernel.cubin").read_bytes()).text("k") == result.cubin.text("k")
    assert "-O1" in result.command.split()


@pytest.mark.parametrize("fixed_layout", [True, False])
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGBUS"])
def test_ptxas_that_dies_is_a_crash_with_its_signal(make_tool: MakeTool, name: str, fixed_layout: bool) -> None:
    crash = crash_of(make_tool(f"echo half a message >&2; kill -{name[3:]} $$"), fixed_layout=fixed_layout)
    assert (crash.signal, crash.returncode) == (name, -signal.Signals[name])
    assert crash.summary == f"ptxas 9.8.7 died with {name}"
    assert "half a message" in crash.stderr
    assert not crash.timeout


def test_signal_that_a_shell_reports_is_the_same_crash(make_tool: MakeTool) -> None:
    crash = crash_of(make_tool("exit 139"))
    assert (crash.signal, crash.returncode) == ("SIGSEGV", 139)


def test_ptxas_that_does_not_end_is_stopped(make_tool: MakeTool, scratch: Path) -> None:
    start = time.monotonic()
    crash = crash_of(make_tool("exec sleep 60"), timeout_s=0.5)
    assert time.monotonic() - start < 20
    assert crash.timeout
    assert crash.summary == "ptxas 9.8.7 did not finish in time"
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("body", ["exit 0", "echo error: no license; exit 3"])
def test_ptxas_without_a_cubin_is_a_crash(make_tool: MakeTool, body: str) -> None:
    crash = crash_of(make_tool(body))
    assert crash.signal is None
    assert "no license" in crash.summary or crash.returncode == 0


def test_ptxas_that_writes_no_cubin_but_something_else_is_an_error(make_tool: MakeTool) -> None:
    tool = make_tool('while [ "$1" != -o ]; do shift; done; echo hello > "$2"')
    with pytest.raises(CubinError, match=r"output of ptxas 9\.8\.7: not an ELF image"):
        assemble(tool, KERNEL, ())


def test_program_that_cannot_run_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"missing: not an executable file"):
        assemble(Tool(tmp_path / "missing", "1.2.3", "test"), KERNEL, (), fixed_layout=False)


@pytest.mark.skipif(not toolchain.fixed_layout_prefix(), reason="setarch -R does not work on this system")
def test_program_that_cannot_run_behind_setarch_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="missing"):
        assemble(Tool(tmp_path / "missing", "1.2.3", "test"), KERNEL, ())


def test_temporary_file_that_cannot_be_written_is_a_tool_error(
    monkeypatch: pytest.MonkeyPatch, tools: Toolchain
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ToolError, match="No space left on device; set TMPDIR"):
        tools.assemble(KERNEL)


@pytest.mark.parametrize(
    "log, expected",
    [
        ("", {}),
        (
            "ptxas info    : Function properties for k\n"
            "    8 bytes stack frame, 20 bytes spill stores, 12 bytes spill loads\n",
            {"k": (20, 12)},
        ),
        (
            "ptxas info    : Function properties for a\n"
            "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            "ptxas info    : Used 8 registers\nptxas info    : Function properties for _Z1b$x\n"
            "    1024 bytes stack frame, 1000 bytes spill stores, 2000 bytes spill loads\n",
            {"a": (0, 0), "_Z1b$x": (1000, 2000)},
        ),
        ("ptxas info    : Function properties for k\n", {}),
    ],
)
def test_parse_spills(log: str, expected: dict[str, tuple[int, int]]) -> None:
    assert parse_spills(log) == expected


@pytest.mark.parametrize(
    "returncode, name",
    [
        (0, None),
        (1, None),
        (255, None),
        (127, None),
        (128, None),
        (-11, "SIGSEGV"),
        (139, "SIGSEGV"),
        (-6, "SIGABRT"),
        (137, "SIGKILL"),
        (-200, None),
    ],
)
def test_signal_name(returncode: int, name: str | None) -> None:
    assert signal_name(returncode) == name


# --- disassembling -------------------------------------------------------------------------------


def test_cubins_are_disassembled_side_by_side(tools: Toolchain) -> None:
    names = ("sm_80.exp.plain", "sm_90a.module", "sm_100a.tcgen05.cutlass")
    cubins = [Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes()) for name in names]
    codes = tools.disassemble(*cubins)
    for cubin, code in zip(cubins, codes, strict=True):
        assert set(code) == set(cubin.kernels)
        assert {k: len(s.instructions) for k, s in code.items()} == {k: len(cubin.text(k)) // 16 for k in cubin.kernels}
    assert tools.disassemble() == []


def test_nvdisasm_that_fails_is_a_tool_error(make_tool: MakeTool) -> None:
    for body, reason in (("echo broken >&2; exit 3", r"\(exit 3\): broken"), ("exit 0", r"\(no output\)")):
        with pytest.raises(ToolError, match=rf"nvdisasm 9\.8\.7 could not read the cubin {reason}"):
            run_nvdisasm(make_tool(body, name="nvdisasm"), b"\x7fELF")


def test_nvdisasm_that_prints_something_else_is_a_cubin_error(tools: Toolchain, make_tool: MakeTool) -> None:
    cubin = Cubin.from_bytes((GOLDEN / "sm_80.exp.plain.cubin").read_bytes())
    with pytest.raises(CubinError, match="unknown form"):
        Toolchain(tools.ptxas, make_tool("echo hello")).disassemble(cubin)


# --- finding -------------------------------------------------------------------------------------


@pytest.fixture
def only_these(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has no tools but those in the folder returned."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("_wheel_folders", "_triton_folders"):
        monkeypatch.setattr(toolchain, name, lambda: iter(()))
    monkeypatch.setattr(toolchain, "_toolkit_folders", lambda: iter([(folder, "CUDA toolkit")]))
    monkeypatch.setattr(toolchain.shutil, "which", lambda program: None)
    return folder


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
    monkeypatch.setattr(toolchain, "_toolkit_folders", lambda: iter(folders))
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
    with pytest.raises(ToolError, match="no ptxas; give a path, or a version as text such as '12.8.93'"):
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
    assert [found.version for found in toolchain.available_ptxas()] == ["9.8.7"]


# --- installing ----------------------------------------------------------------------------------


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

        monkeypatch.setattr(toolchain, "_download", download)
        return asked

    return serve


def kept() -> list[str]:
    folder = Path(os.environ["TRITONHOOK_TOOLS"])
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
        ({"x.dist-info/RECORD": b""}, "holds no bin/ptxas"),
        ({MEMBER: BINARY}, "holds no bin/ptxas"),
        ({"nvidia/bin/ptxas.txt": BINARY, "x.dist-info/RECORD": b""}, "holds no bin/ptxas"),
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
    toolchain._probe_cached.cache_clear()
    with pytest.raises(ToolError, match=f"ptxas: not used: {reason}; `tritonhook ptxas add 12.1.66` fetches it again"):
        find_ptxas("12.1.66")
    assert list(toolchain.available_ptxas()) == []
    # and adding it again repairs it
    assert add_ptxas("12.1.66").path.read_bytes() == BINARY
    assert find_ptxas("12.1.66").path == path


def test_changed_ptxas_is_not_even_started_by_add(wheel: Serve, tmp_path: Path) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\necho V12.1.66\n")
    toolchain._probe_cached.cache_clear()
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


def test_stored_ptxas_is_hashed_only_if_its_time_changed(
    wheel: Serve, only_these: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    hashed: list[Path] = []
    sha256 = toolchain._sha256
    monkeypatch.setattr(toolchain, "_sha256", lambda file, *stat: (hashed.append(file), sha256(file, *stat))[1])
    find_ptxas("12.1.66")
    assert hashed == []
    path.touch()
    assert find_ptxas("12.1.66").path == path
    assert hashed == [path]


def test_ptxas_added_before_sizes_were_noted_is_hashed(wheel: Serve, only_these: Path) -> None:
    wheel(WHOLE)
    path = add_ptxas("12.1.66").path
    note = path.with_name("tool.json")
    note.write_text(json.dumps({"format": 1, "sha256": json.loads(note.read_text())["sha256"]}))
    assert find_ptxas("12.1.66").path == path
    path.write_bytes(TAMPERED)
    with pytest.raises(ToolError, match="its hash is not"):
        find_ptxas("12.1.66")


def test_binary_of_another_version_is_an_error(wheel: Serve) -> None:
    wheel(WHOLE)
    with pytest.raises(ToolError):
        add_ptxas("12.2.1")


def test_wheel_that_is_no_archive_is_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(requirement: str, folder: Path) -> Path:
        (folder / "some.whl").write_bytes(b"hello")
        return folder / "some.whl"

    monkeypatch.setattr(toolchain, "_download", download)
    with pytest.raises(ToolError):
        add_ptxas("12.1.66")


def test_pip_that_fails_is_a_tool_error_with_its_reason(monkeypatch: pytest.MonkeyPatch, make_tool: MakeTool) -> None:
    pip = make_tool(
        "echo 'WARNING: x' >&2; echo 'ERROR: No matching distribution found for it' >&2; exit 1", name="pip"
    )
    monkeypatch.setattr(toolchain.sys, "executable", str(pip.path))
    with pytest.raises(ToolError, match=re.escape("nvcc-cu12==12.1.66: pip could not fetch it: ERROR: No matching")):
        add_ptxas("12.1.66")
    assert kept() == []


NO_INDEX = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(refused)': /simple/x/
ERROR: Could not find a version that satisfies the requirement x (from versions: none)
ERROR: No matching distribution found for x
"""
TRACEBACK = """\
ERROR: Exception:
Traceback (most recent call last):
  File "pip/misc.py", line 104, in ensure_dir
    os.makedirs(path)
OSError: [Errno 28] No space left on device
"""


@pytest.mark.parametrize(
    "stderr, reason",
    [
        ("/usr/bin/python: No module named pip\n\n", "/usr/bin/python: No module named pip"),
        (
            NO_INDEX,
            r"ERROR: Could not find [^\n]*\n  ERROR: No matching [^\n]*\n  WARNING: .* broken by 'NewConnection",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n\n[notice] hi\n",
            r"ERROR: Could not install packages due to an OSError: \[Errno 28\] No space left on device$",
        ),
        (TRACEBACK, r"OSError: \[Errno 28\] No space left on device$"),
        ("", "pip exited with 1"),
    ],
)
def test_pips_own_words_are_quoted(
    monkeypatch: pytest.MonkeyPatch, make_tool: MakeTool, stderr: str, reason: str
) -> None:
    pip = make_tool(f"cat >&2 <<'END'\n{stderr.rstrip()}\nEND\nexit 1", name="pip")
    monkeypatch.setattr(toolchain.sys, "executable", str(pip.path))
    with pytest.raises(ToolError, match=rf"^nvidia-cuda-nvcc-cu12==12\.1\.66: pip could not fetch it: {reason}"):
        add_ptxas("12.1.66")
    assert kept() == []


def test_python_that_cannot_run_pip_is_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.sys, "executable", "/no/such/python")
    with pytest.raises(ToolError, match="cannot run pip: '/no/such/python': No such file"):
        add_ptxas("12.1.66")


def test_folder_that_cannot_be_written_is_a_tool_error(
    wheel: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel(WHOLE)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITONHOOK_TOOLS", str(tmp_path / "file"))
    with pytest.raises(ToolError, match="cannot keep ptxas there: .*; set TRITONHOOK_TOOLS"):
        add_ptxas("12.1.66")
