"""On a GPU: renamed kernels are loaded, launched, and compute the same. Executed where there is one."""

import math

import pytest

import tritonhook

torch = pytest.importorskip("torch", reason="needs torch")
triton = pytest.importorskip("triton", reason="needs triton")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="requires an NVIDIA GPU"),
]

if torch.cuda.is_available():
    import triton.language as tl

    @triton.jit
    def softmax_rows(x, y, columns, B: tl.constexpr):
        row = tl.program_id(0)
        top = tl.full((B,), float("-inf"), tl.float32)
        total = tl.zeros((B,), tl.float32)
        for start in range(0, columns, B):
            at = start + tl.arange(0, B)
            value = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf"))
            new = tl.maximum(top, value)
            total = total * tl.where(top == new, 1.0, tl.exp(top - new)) + tl.where(
                value == float("-inf"), 0.0, tl.exp(value - new)
            )
            top = new
        peak = tl.max(top, 0)
        norm = tl.sum(total * tl.where(top == float("-inf"), 0.0, tl.exp(top - peak)), 0)
        for start in range(0, columns, B):
            at = start + tl.arange(0, B)
            value = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
            tl.store(y + row * columns + at, tl.exp(value - peak) / norm, mask=at < columns)


def launched_names(call) -> set[str]:
    """Names of the kernels the GPU ran, as the driver reports them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return {event.key for event in profile.key_averages()}


def test_the_right_kernel_runs_whatever_was_enabled_before(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    torch.manual_seed(0)
    x = torch.randn(64, 1000, device="cuda") * 10
    expected = torch.softmax(x.double(), 1)

    def run() -> None:
        y = torch.full_like(x, math.nan)
        softmax_rows[(64,)](x, y, 1000, B=256)
        torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-6)

    steps = [
        ({}, "softmax_rows"),
        ({"rename": "cutlass_"}, "cutlass_softmax_rows"),
        ({"rename": {"softmax_rows": "cutlass_other"}}, "cutlass_other"),
        ({"strip": True}, "softmax_rows"),
        ({"rename": "cutlass_"}, "cutlass_softmax_rows"),
        ({}, "softmax_rows"),
    ]
    for settings, name in steps:
        with tritonhook.session(tmp_path / "out", **settings):
            run()  # the first launch compiles or loads
            assert name in launched_names(run)
    assert "softmax_rows" in launched_names(run)


def test_torch_compile_goes_on_under_a_rename(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    x = torch.randn(128, 512, device="cuda")

    def model(t):
        return torch.nn.functional.gelu(t @ t.T).softmax(-1) * 2 + 1

    with tritonhook.session(tmp_path / "out", rename="cutlass_"):
        torch.testing.assert_close(torch.compile(model)(x), model(x), rtol=1e-3, atol=1e-4)


def test_a_captured_cubin_assembles_again_to_the_same_code(tmp_path, monkeypatch) -> None:
    from pathlib import Path

    from tritonhook.ptxas.tool import Tool
    from tritonhook.ptxas.toolchain import assemble

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    x = torch.randn(8, 100, device="cuda")
    with tritonhook.session(tmp_path / "out") as session:
        softmax_rows[(8,)](x, torch.empty_like(x), 100, B=64)
    (capture,) = session.captures
    tool = Tool(Path(capture.assembler.path), capture.assembler.version, "Triton")
    again = assemble(tool, capture.ptx, capture.assembler.arguments)
    assert again.cubin.data == capture.cubin
