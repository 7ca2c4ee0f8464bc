"""Kernels that ptxas or a pass of Triton rejects are kept, listed and shown."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
import triton.language as tl
from triton.runtime.errors import PTXASError
from triton_kernels import compile_kernel

import tritonhook
from tritonhook.capture.triton.muting import muted_threads
from tritonhook.capture.triton.rejected import Rejecting, rejecting
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
    assert failed["error"].startswith("line ") and "'mvo'" in failed["error"]
    assert main(["show", f"{out}/{failed['id']}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    number = failed["error"].split()[1].rstrip(":")
    assert shown["lines"][number].startswith("> ") and "mvo" in shown["lines"][number]
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


def test_each_session_hears_of_an_error_of_a_stage_and_the_compile_of_the_error(monkeypatch, tmp_path: Path) -> None:
    told: list[object] = []
    fails: list[Exception] = []

    class Session:
        def keep_rejected(self, *given: object) -> None:
            told.append(given)
            if fails:
                raise fails[0]

        def contain(self, doing: str, error: Exception) -> None:
            told.append(error)

    ours = Rejecting()
    assert (ours.sessions, ours._patch) == ((), None)
    ours.sessions = (Session(), Session())  # type: ignore[assignment]
    wrong = ValueError("wrong")

    def add_stages(backend: str, stages: dict[str, Any], *given: object, **named: object) -> str:
        stages["ptx"] = lambda source, metadata: f"{backend} {given} {named} {source}"
        stages["cubin"] = lambda source, metadata: (_ for _ in ()).throw(wrong)
        return "added"

    stages: dict[str, Any] = {}
    assert ours._add_stages(add_stages)("backend", stages, 1, a=2) == "added"
    folder = tmp_path / "hash"
    (folder / "tmp.folder").mkdir(parents=True)
    (folder / "k.ttir").touch()
    (folder / "k.source").touch()
    manager = SimpleNamespace(cache_dir=str(folder))
    monkeypatch.setattr("triton.runtime.cache.get_cache_manager", {"h": manager, "none": object()}.get)
    files = {"ttir": f"{folder}/k.ttir", "source": f"{folder}/k.source"}
    assert stages["ptx"]("llir", {"hash": "h"}) == "backend (1,) {'a': 2} llir" and told == []
    for source, hash, found in (("the ptx", "h", files), (b"no text", "none", {})):
        with pytest.raises(ValueError) as caught:
            stages["cubin"](source, {"hash": hash})
        text = source if isinstance(source, str) else ""
        assert caught.value is wrong and told == [("cubin", text, {"hash": hash}, found, wrong)] * 2
        told.clear()
    fails.append(OSError("no room"))
    with pytest.raises(ValueError):
        stages["cubin"]("the ptx", {"hash": "h"})
    assert told[1::2] == fails * 2
    told.clear()
    with muted_threads.mute(), pytest.raises(ValueError):  # a rewrite that is tried, with its own report
        stages["cubin"]("the ptx", {"hash": "h"})
    assert told == []
