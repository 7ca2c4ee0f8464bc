"""On a GPU: codes of a few lines of PTX that are faster, equal, wrong, endless or wild; the verb on a layer norm."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from repository import ROOT
from tuned import code, kernel_with

from tests.gpu.test_gpu_verify import arch, has_gpu
from tritonhook.capture.launches.record import Buffer, Launch, Pointer, to_document
from tritonhook.capture.policy.file import read_entries
from tritonhook.cli import main
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import find_toolchain
from tritonhook.tuning.candidates import Candidate
from tritonhook.tuning.engine import Settings, tune
from tritonhook.tuning.result import Verdict
from tritonhook.tuning.targets import Launched

torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="requires an NVIDIA GPU")]

PTX = """.version 8.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
.reg .b64 %rd<6>;
.reg .b32 %r<6>;
.reg .f32 %f<6>;
.reg .pred %p<3>;
ld.param.u64 %rd1, [k_param_0];
ld.param.u64 %rd2, [k_param_1];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mad.lo.u32 %r1, %r2, 128, %r1;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
mov.u32 %r3, 0;
LOOP:
ld.volatile.global.f32 %f1, [%rd4];
add.u32 %r3, %r3, {step};
setp.lt.u32 %p1, %r3, 1000;
@%p1 bra LOOP;
add.rn.f32 %f2, %f1, {more};
{wild}
st.global.f32 [%rd5], %f2;
ret;
}}
"""
ONE, TWO = "0f3F800000", "0f40000000"
BLOCKS = 132 * 8


def made(lever: str | None, step: int = 10, more: str = ONE, wild: str = "") -> Candidate:
    ptx = Ptx(PTX.format(step=step, more=more, wild=wild))
    return code(lever, find_toolchain().assemble_or_raise(ptx, (f"--gpu-name=sm_{arch()}",)).cubin.data)


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    size = 4 * 128 * BLOCKS
    parameters = tuple(Pointer(str(number), number, dtype="float32") for number in range(2))
    launch = Launch("k", (BLOCKS, 1, 1), (128, 1, 1), parameters, (Buffer(size, "float32"), Buffer(size, "float32")))
    (tmp_path / "launch.json").write_text(json.dumps(to_document(launch)))
    return Launched("k", "key", tmp_path / "launch.json", "launch", 1)


def test_a_faster_code_wins_and_bad_ones_are_dropped(launched: Launched) -> None:
    faster = (
        made("O1", step=11),
        made("O2"),
        made("name", more=TWO),
        made("strip", wild="mov.b64 %rd5, 64;"),
        made("regalloc=1", step=0),
    )
    copies = tuple(made(f"maxnreg={n}") for n in (64, 96, 128))
    wanted = [kernel_with(*faster, plain=made(None)), kernel_with(*copies, plain=made(None))]
    run = tune([(replace(kernel, launches=(launched,)), choice) for kernel, choice in wanted], Settings(limit_s=3))
    win, none = run.rows
    print(f"start {run.start_s:.1f} s, kernels {win.seconds:.1f} s and {none.seconds:.1f} s")
    reasons = {one.lever.text: one.reason for one in win.failed}
    assert reasons.keys() == {"name", "strip", "regalloc=1"}
    assert "differs in its bits" in reasons["name"] and "no end within 3 s" in reasons["regalloc=1"]
    assert win.verdict is Verdict.WIN and win.winner is not None and win.winner.text == "O1", win.reason
    assert win.certificate is not None and 5 < (win.certificate.gain_percent or 0) < 12
    assert none.verdict is Verdict.LEAVE and none.tried.is_judged and not none.failed


def test_stripping_cutlass_from_a_layer_norm_is_judged_and_goes_to_the_policy(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("triton")
    text = (ROOT / "examples" / "layer_norm.py").read_text().replace("layer_norm[(", "cutlass_layer_norm[(")
    (tmp_path / "norm.py").write_text(text.replace("def layer_norm(", "def cutlass_layer_norm("))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    assert main(["tune", "norm:launch", "--levers", "strip,O2", "--save", "result.json"]) == 0
    (found,) = json.loads((tmp_path / "result.json").read_text())["kernels"]
    print(found["verdict"], found["lever"], found["gain_percent"], found["reason"], found["seconds"])
    assert found["kernel"] == "cutlass_layer_norm" and found["candidates"]
    entries = read_entries(tmp_path / "tritonhook.toml")
    assert [entry.lever.text for entry in entries] == [found["lever"]] * (found["verdict"] == "WIN")
