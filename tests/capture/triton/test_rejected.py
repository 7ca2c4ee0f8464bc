"""Kernels that ptxas or a pass of Triton rejects are kept, listed and shown."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.errors import PTXASError
from triton_kernels import compile_kernel

import tritonhook
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.store.schema import read_rejected
from tritonhook.capture.triton.rejected import rejecting
from tritonhook.cli import main

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


@triton.jit
def no_instruction(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(
        "mvo.b32 $0, $1;", "=r,r", [tl.load(x + at)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out + at, value)


def test_what_ptxas_rejects_is_kept_with_log_and_line(out: Path, capsys: pytest.CaptureFixture) -> None:
    with tritonhook.session(out), pytest.raises(PTXASError, match="mvo"):
        compile_kernel(no_instruction)
    assert rejecting.sessions == ()
    capsys.readouterr()
    assert main(["show", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (failed,) = document["failed"]
    assert (document["kernels"], failed["kernel"], failed["arch"]) == ([], "no_instruction", "sm_90a")
    source, _, error = failed["error"].partition(": ")  # the user's line, then the line of the PTX
    assert source.startswith(f"{Path(__file__).name}:") and error.startswith("line ") and "'mvo'" in error
    assert main(["show", f"{out}/{failed['id']}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    number = error.split()[1].rstrip(":")
    assert shown["lines"][number].startswith("> ") and "mvo" in shown["lines"][number]
    lines, first = inspect.getsourcelines(no_instruction.fn)
    call = next(first + n for n, line in enumerate(lines) if "inline_asm" in line)
    assert shown["source"] in [f"{__file__}:{line}" for line in (call, call + 1)]  # Triton takes an argument's line
    assert shown["arguments"] and shown["options"]["num_warps"] and shown["triton"] == triton.__version__
    assert {path.suffix for path in Path(failed["path"]).iterdir()} >= {".ptx", ".ttgir", ".llir", ".json"}
    assert main(["show", str(out)]) == 0
    assert "1 failed" in capsys.readouterr().out


def test_what_a_pass_rejects_is_kept_with_the_stages_before(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends.nvidia.compiler import CUDABackend

    def no_pass(*_: object) -> None:
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr(CUDABackend, "make_llir", no_pass)
    with tritonhook.session(out), pytest.raises(RuntimeError, match="PassManager"):
        compile_kernel()
    (folder,) = (out / "crashes").iterdir()
    details = json.loads((folder / "crash.json").read_text())
    assert (details["stage"], details["kernel"], details["log"]) == ("llir", "add_kernel", "PassManager::run failed")
    assert (folder / "kernel.ttgir").exists() and not (folder / "kernel.ptx").exists()
    compiled = CUDABackend.__dict__["add_stages"]
    with tritonhook.session(out):
        assert CUDABackend.__dict__["add_stages"] is not compiled
    assert CUDABackend.__dict__["add_stages"] is compiled


@triton.jit
def no_name(x, y, out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), no_such_name)  # noqa: F821


def test_what_the_front_end_rejects_is_kept(out: Path) -> None:
    with tritonhook.session(out), pytest.raises(CompilationError, match="no_such_name"):
        compile_kernel(no_name)
    (path,) = CaptureFolder.open(out).crashes
    crash = read_rejected(path.parent)
    assert (crash.kernel, crash.stage, crash.arch) == ("no_name", "ttir", "sm_90a") and "no_such_name" in crash.error
