"""On a GPU: what verify's child process finds in kernels of a few lines of PTX, and `tritonhook verify` on a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_kernels import NEEDS_GPU, cubin, launch

from tritonhook.capture.launches.contents import NORMAL, SPECIAL
from tritonhook.cli import main
from tritonhook.verify.executor import Executor
from tritonhook.verify.model import Build, FailureKind, Order

pytestmark = NEEDS_GPU

BODIES = {
    "right": "add.rn.f32 %f2, %f1, 0f3F800000;",
    "upwards": "add.rp.f32 %f2, %f1, 0f3F800000;",
    "beyond": "add.rn.f32 %f2, %f1, 0f3F800000;\nst.global.f32 [%rd5+128], %f2;",
    "wild": "add.rn.f32 %f2, %f1, 0f3F800000;\nmov.b64 %rd5, 64;",
    "endless": "LOOP:\nld.volatile.global.f32 %f2, [%rd4];\nsetp.neu.f32 %p1, %f2, 0f7FC00000;\n@%p1 bra LOOP;",
}


@pytest.fixture
def ran(tmp_path: Path):
    def run(*names: str):
        builds = []
        for name in names:
            (tmp_path / name).write_bytes(cubin(f"ld.global.f32 %f1, [%rd4];\n{BODIES[name]}", "-O1"))
            builds.append(Build(name, tmp_path / name, "k"))
        with Executor(2) as executor:
            return {
                (one.input, one.build): one
                for one in executor.run(Order(launch(1, 32), tuple(builds), (NORMAL, SPECIAL)))
            }

    return run


def test_another_rounding_is_found(ran) -> None:
    found = ran("right", "upwards")
    assert found[NORMAL, "right"].is_clean and found[NORMAL, "right"].stored == 1
    (difference,) = found[NORMAL, "upwards"].differences
    assert difference.ulps == 1 and difference.differing > 3


def test_a_write_behind_a_buffer_is_told(ran) -> None:
    found = ran("right", "beyond")
    assert [one.offset for one in found[NORMAL, "beyond"].outside] == [128]


def test_a_wild_write_and_an_endless_loop_end_the_child_only(ran) -> None:
    found = ran("right", "wild", "endless", "upwards")
    wild, endless = found[NORMAL, "wild"].failure, found[NORMAL, "endless"].failure
    assert wild is not None and wild.kind is FailureKind.CRASH and "CUDA_ERROR" in wild.text
    assert endless is not None and endless.kind is FailureKind.HANG
    assert found[NORMAL, "upwards"].differences and found[SPECIAL, "right"].failure is None


SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def scale(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 3, mask=at < n)

x = torch.randn(1000, device="cuda")
scale[(8,)](x, torch.empty_like(x), 1000, B=128)
"""


def test_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    Path("script.py").write_text(SCRIPT)
    assert main(["verify", "script.py", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (one["kernel"], one["verdict"]) == ("scale", "SAME") and "recorded" in one["inputs"]
