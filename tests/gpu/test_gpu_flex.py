"""On a GPU: FlashAttention 4 in a compiled program, by FlexAttention's option where torch has it, else as a call that
torch.compile leaves alone; its launch for packed sequences. Executed where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

import tritonhook

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("flash_attn.cute", reason="needs FlashAttention 4: pip install flash-attn-4")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] < 9, reason="requires an H100 or newer"
    ),
]

# Step 0 compiles: it is not among the times.
PROGRAM = """
import json, sys, time
import torch
from pathlib import Path
from torch.nn.attention import flex_attention as flex

torch.manual_seed(0)
q, k, v = (torch.randn(2, 8, 512, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
has_option = "FLASH" in getattr(getattr(flex, "_Backend", None), "__args__", ())

if has_option:
    def attention(q, k, v):
        return flex.flex_attention(q, k, v, kernel_options={"BACKEND": "FLASH"})
else:
    from flash_attn.cute import flash_attn_func

    @torch.compiler.disable
    def attention(q, k, v):
        out = flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

step = torch.compile(lambda q, k, v: attention(q * 1.0, k, v) * 2.0)
captured = lambda: len(list(Path(sys.argv[1]).glob("kernels/*")))
counts, times = [], []
for number in range(5):
    start = time.perf_counter()
    out = step(q, k, v)
    torch.cuda.synchronize()
    counts.append(captured())
    times.append(time.perf_counter() - start)
exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double()) * 2
error = ((out.double() - exact).norm() / exact.norm()).item()
print(json.dumps({"option": has_option, "captured": counts, "error": error, "times": times}))
"""


def test_flash_attention_in_a_compiled_program_is_captured(tmp_path: Path) -> None:
    """Everything is compiled in step 0, so that the later steps can be timed; torch's own kernels are captured too."""
    program, out = tmp_path / "program.py", tmp_path / "captures"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "tritonhook", "run", "--out", str(out), str(program), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["error"] < 1e-2
    assert said["captured"][0] >= 1 and set(said["captured"]) == {said["captured"][0]}
    folder = tritonhook.CaptureFolder.open(out)
    kernels = [folder.capture(record) for record in folder.records]
    flash = [kernel for kernel in kernels if kernel.front_end == "cute"]
    assert flash and all(kernel.ptx and kernel.cubin for kernel in flash)
    assert any("flash" in kernel.kernel.lower() for kernel in flash)


def test_a_launch_for_packed_sequences_stores_the_same_again(tmp_path: Path) -> None:
    """Its descriptor of O begins 2^30 rows before O."""
    from flash_attn.cute.interface import flash_attn_varlen_func

    from tritonhook.capture.launches.record import Descriptor
    from tritonhook.timing.replay import Buffers, LoadedKernel

    # given
    lengths = (384, 100, 41)
    q, k, v = (torch.randn(sum(lengths), 4, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    ends = torch.tensor([0, 384, 484, 525], dtype=torch.int32, device="cuda")
    with tritonhook.session(tmp_path / "out", launches="values") as session:
        most = dict.fromkeys(("max_seqlen_q", "max_seqlen_k"), max(lengths))
        given = flash_attn_varlen_func(q, k, v, cu_seqlens_q=ends, cu_seqlens_k=ends, **most, causal=True)
    out = given[0] if isinstance(given, tuple) else given
    torch.cuda.synchronize()

    # when
    folder = tritonhook.CaptureFolder.open(tmp_path / "out")
    (record,) = folder.records
    (one,) = folder.launches(record)
    far = [item for item in one.launch.parameters if isinstance(item, Descriptor) and item.offset < 0]
    memory = Buffers(one.launch, one.path.parent)
    memory.tensors[far[0].buffer].fill_(0xEE)
    LoadedKernel(folder.capture(record).cubin, str(one.launch.kernel), memory).launch()
    torch.cuda.synchronize()

    # then
    assert len(far) == 1 and not [note for note in session.notes if "not recorded" in note]
    assert torch.equal(memory.views()[far[0].buffer], out.flatten())
