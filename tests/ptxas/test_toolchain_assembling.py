"""Assembling with a real ptxas, and with scripts that crash, hang or write something else."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.cubin.image import Cubin
from tritonhook.errors import CubinError, ToolError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas import toolchain
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import (
    Assembled,
    AssembleError,
    Crash,
    Toolchain,
    assemble,
    parse_spills,
)

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
KERNEL = Ptx(HEADER + ".visible .entry k()\n{\nret;\n}\n")
BAD = Ptx(HEADER + ".visible .entry k()\n{\nno_such_opcode.b32 %r1;\nret;\n}\n")

MakeTool = Callable[..., Tool]


def crash_of(tool: Tool, ptx: Ptx = KERNEL, timeout_s: float = 30.0, fixed_layout: bool = True) -> Crash:
    result = assemble(tool, ptx, (), timeout_s, fixed_layout)
    assert isinstance(result, Crash)
    return result


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


def test_a_newer_version_of_ptx_is_answered_with_a_ptxas_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The oldest that is here, else one to fetch, if that reads it."""

    def said(ptx_version: str, *here: str) -> str:
        monkeypatch.setattr(toolchain, "available_ptxas", lambda: [Tool(tmp_path, version, "") for version in here])
        ptx = Ptx(KERNEL.text.replace("8.7", ptx_version))
        crash = Crash(
            Tool(tmp_path, "1", ""), ptx, "words", 1, None, "ptxas fatal : Unsupported .version " + ptx_version
        )
        return str(AssembleError(crash))

    assert "; ptxas 12.9.86, which is installed, reads PTX 8.8: use it" in said("8.8", "13.5.37", "12.9.86", "12.8.93")
    assert "no installed ptxas reads PTX 8.8; get 13.5.37 with `tritonhook ptxas add 13.5.37`" in said("8.8", "12.8.93")
    assert "no installed ptxas reads PTX 99.0; get a newer one\n" in said("99.0", "13.5.37")
    other = Crash(Tool(tmp_path, "1.2.3", ""), KERNEL, "words", 7, None, "")
    assert str(AssembleError(other)) == f"{other.summary}\n  repeat with: words"
    assert other.summary == "ptxas 1.2.3 rejected the PTX: exit code 7, without a message"


def test_rejected_module_is_a_crash_without_a_signal(tools: Toolchain, scratch: Path) -> None:
    crash = crash_of(tools.ptxas, BAD)
    assert (crash.returncode, crash.signal, crash.timeout) == (255, None, False)
    assert (crash.ptx, crash.tool) == (BAD, tools.ptxas)
    assert crash.stderr.startswith("ptxas kernel.ptx, line 6; error   : Not a name of any known instruction")
    for text in (crash.stderr, crash.command, crash.summary):
        assert str(scratch) not in text and "tritonhook-" not in text
    assert crash.summary.startswith("ptxas 12.8.93 rejected the PTX: line 6: Not a name of any known instruction")
    assert "\n" not in crash.summary
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "error"),
    [("--nope", "Unknown option '-nope'"), ("--maxrregcount=abc", "Invalid value 'abc' for option 'maxrregcount'")],
)
def test_a_wrong_option_is_not_blamed_on_the_ptx(tools: Toolchain, option: str, error: str) -> None:
    crash = assemble(tools.ptxas, KERNEL, (option,))
    assert isinstance(crash, Crash) and crash.summary == f"ptxas 12.8.93 rejected an option: {error}"


def test_the_length_of_the_arguments_does_not_follow_that_of_the_temporary_folder(
    make_tool: MakeTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "lengths"
    tool = make_tool(f'for word; do echo ${{#word}}; done >> {log}; echo "error in $3 and $5"; exit 1')
    for name in ("a", "a_longer_name", "x" * 20):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        assert crash_of(tool, fixed_layout=False).stderr == "error in kernel.ptx and kernel.cubin\n"
    lengths = log.read_text().split()
    assert len(lengths) > 3 and lengths[: len(lengths) // 3] * 3 == lengths


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
    crash = crash_of(make_tool("exec sleep 600"), timeout_s=0.5)
    assert time.monotonic() - start < 600, "it came to its own end"
    assert crash.timeout and "9.8.7" in crash.summary
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


def test_a_cubin_that_a_full_disk_cut_off_is_said(
    make_tool: MakeTool, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = make_tool('for word in "$@"; do out=$word; done; : > "$out"')  # as ptxas does: nothing written, exit code 0
    with pytest.raises(CubinError):
        assemble(tool, KERNEL, ())
    usage = type(shutil.disk_usage(scratch))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1 << 20, 1 << 20, 0))
    with pytest.raises(ToolError, match="the disk is full, so the output is cut off; set TMPDIR"):
        assemble(tool, KERNEL, ())
    assert list(scratch.iterdir()) == []
