"""The launcher of the Blackwell attention, without a GPU; on an sm_100 GPU, whether the kernel is right."""

import math
import sys

import pytest

from gluon_kernels.blackwell.config import AttentionConfig
from gluon_kernels.config import CAUSAL
from tests.gluon_kernels.support.fake_torch import FakeTensor, FakeTorch


def test_expanded_tensors_are_refused(launch):
    q = FakeTensor()
    with pytest.raises(ValueError, match="in multiples of 16 bytes, not 0; call k.contiguous"):
        launch(q, FakeTensor(strides=(32768, 0, 64, 1)), q)


@pytest.fixture
def launch(monkeypatch):
    """attention(...) without a GPU: its result, and the grid and arguments of the kernel by name."""
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels.blackwell import launch as launcher

    launches = []
    names = launcher.attention_kernel.arg_names

    class Kernel:
        def __getitem__(self, grid):
            return lambda **arguments: launches.append((grid, arguments))

    monkeypatch.setattr(launcher, "attention_kernel", Kernel())
    monkeypatch.setattr(launcher, "descriptor", lambda x, dtype, box: (x, dtype, box))
    monkeypatch.setattr(launcher, "sm_count", lambda device: {"cuda:0": 100}[device])
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())

    def run(q, k, v, **options):
        launches.clear()
        result = launcher.attention(q, k, v, **options)
        ((grid, arguments),) = launches
        assert arguments.keys() == {*names, *launcher.compile_options(AttentionConfig())}
        return result, grid, arguments

    return run


def test_a_launch_takes_as_many_programs_as_there_are_sms_or_tiles(launch):
    q = FakeTensor((4, 16, 1024, 64), "torch.float8_e5m2")
    o, grid, arguments = launch(q, q, q, causal="top-left", scale=0.5)
    assert grid == (100,)
    assert (arguments["causal_offset"], arguments["scale"], arguments["RAGGED"]) == (0, 0.5, False)
    assert (o.dtype, arguments["o_desc"][1]) == ("torch.bfloat16", "bf16")
    config = AttentionConfig("fp8e5", 64)
    o, _, arguments = launch(q, q, q, config=config)
    assert (o.dtype, arguments["o_desc"][1]) == ("torch.float8_e5m2", "fp8e5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": True}, "causal True: must be None, 'top-left' or 'bottom-right'"),
        ({"causal": "lower"}, "causal 'lower'"),
        ({"scale": 0}, "scale 0.0: must be positive"),
        ({"scale": math.nan}, "scale nan: must be positive"),
        ({"config": AttentionConfig("fp16", 64)}, "seqlen_q 100: not a multiple of 256"),
        ({"config": AttentionConfig("bf16", 64)}, "config.dtype is 'bf16': these arguments need 'fp16'"),
        ({"config": AttentionConfig("fp16", 128)}, "config.head_dim is 128"),
        ({"config": AttentionConfig("fp16", 64, causal=True)}, "config.causal is True: these arguments need False"),
        ({"name": "two words"}, "name 'two words': Triton takes letters"),
    ],
)
def test_a_launch_refuses_what_the_kernel_cannot_do(launch, options, message):
    q = FakeTensor((1, 1, 100, 64))
    with pytest.raises(ValueError, match=message):
        launch(q, q, q, **options)


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("causal", CAUSAL)
@pytest.mark.parametrize("lengths", [(1024, 1024), (1, 1000), (1000, 17), (129, 129)], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_matches_the_reference_on_a_gpu(dtype, head_dim, lengths, causal):
    torch = pytest.importorskip("torch", reason="requires torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 10:
        pytest.skip("requires an sm_100 GPU")
    from gluon_kernels import attention_reference
    from gluon_kernels.attention_blackwell import attention

    torch.manual_seed(0)
    seqlen_q, seqlen_k = lengths
    sizes = ((6, seqlen_q), (2, seqlen_k), (2, seqlen_k))
    q, k, v = (torch.randn(2, *size, head_dim, device="cuda").to(getattr(torch, dtype)) for size in sizes)
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected_o, expected_lse = attention_reference(q, k, v, causal=causal)
    # e5m2 keeps 2 bits of mantissa of each probability, e4m3 keeps 3.
    tolerance = {"float16": 5e-3, "bfloat16": 2e-2, "float8_e5m2": 0.25, "float8_e4m3fn": 0.12}[dtype]
    torch.testing.assert_close(o.float(), expected_o.float(), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse, expected_lse.float(), atol=1e-3, rtol=1e-3)
