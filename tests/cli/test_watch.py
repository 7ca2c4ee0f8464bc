"""`tritonhook run --watch`: it runs again when a source that the run loaded changes, and says what changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tritonhook.cli.run import await_change, times_of

KERNELS = """
import triton, triton.language as tl
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)
"""
SCRIPT = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
import kernels
source = ASTSource(kernels.scale, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {(2,): 128})
compile(source, target=GPUTarget("cuda", 90, 32))
"""


def test_a_file_counts_when_it_is_no_longer_written(tmp_path: Path) -> None:
    source, other = tmp_path / "a.py", tmp_path / "b.py"
    source.write_text("0")
    other.write_text("0")
    edits = iter([lambda: None, source.unlink, lambda: source.write_text("1"), lambda: write(source, 2)] * 2)
    before, naps = times_of([source, other]), []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        next(edits)() if len(naps) <= 4 else None

    assert await_change([source, other], before, sleep) == [source]
    assert len(naps) == 5


def write(path: Path, seconds: int) -> None:
    os.utime(path, ns=(seconds, seconds))


def test_a_run_begins_again_when_a_module_changes(tmp_path: Path, triton_cache: Path) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    module = tmp_path / "kernels.py"
    module.write_text(KERNELS)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "tritonhook", "run", "--watch", "script.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            first = until(process, "waiting for a change of script.py, kernels.py")
            assert "1 kernel seen" in first and "before and after" not in first
            module.write_text(KERNELS.replace("* 2.0", "* 2.0 + 1.0"))
            second = until(process, "waiting for a change")
            assert "kernels.py changed" in second and "1 kernel: 1 changed" in second
            assert "captures@1 → tritonhook-captures@2" in second
            process.send_signal(signal.SIGINT)
            assert "interrupted" in process.stdout.read() and process.wait() == 130
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


def until(process: subprocess.Popen, text: str) -> str:
    said = ""
    while text not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said
