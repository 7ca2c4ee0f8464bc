"""The launcher of the mma.sync attention, without a GPU; on a GPU, whether the kernel is right."""

import sys

import pytest

from gluon_kernels.mma.config import BASE_NAME, MmaConfig, default_config
from tests.gluon_kernels.support.fake_torch import FakeTensor, FakeTorch, first_call_of


@pytest.fixture
def launch(monkeypatch):
    """attention(...) without a GPU: its result, and the grid and arguments of the kernel by name."""
    pytest.importorskip("triton", reason="needs triton")
    from gluon_kernels.mma import launch as launcher

    launches = []
    names = launcher.attention_kernel.arg_names

    class Kernel:
        arg_names = launcher.attention_kernel.arg_names

        def __getitem__(self, grid):
            def start(*args, **kwargs):
                launches.append((grid, dict(zip(names, args, strict=False)) | kwargs))
                return "compiled"

            return start

    monkeypatch.setattr(launcher, "attention_kernel", Kernel())
    monkeypatch.setitem(sys.modules, "torch", FakeTorch((9, 0)))

    def run(q, k, v, **options):
        launches.clear()
        result = first_call_of(launcher)(q, k, v, **options)
        ((grid, arguments),) = launches
        assert arguments.keys() == {*names, *launcher.compile_options(MmaConfig())}
        return result, grid, arguments

    return run


@pytest.mark.parametrize(("trigger", "name"), [("pragma", BASE_NAME), ("name", f"cutlass_{BASE_NAME}")])
def test_where_the_other_scheduler_is_faster_it_is_asked_for(launch, monkeypatch, trigger, name):
    from gluon_kernels.mma import launch as launcher

    monkeypatch.setattr(launcher, "best_trigger", lambda arch: trigger)
    q = FakeTensor((1, 1, 1024, 64))
    assert default_config(90, "fp16", 64, "top-left", 1024).trigger == "name"
    arguments = launch(q, q, q, causal="top-left")[2]
    assert (arguments["NAME"], arguments["PRAGMA"]) == (name, trigger == "pragma")
    assert not launch(q, q, q)[2]["PRAGMA"]
    arguments = launch(q, q, q, causal="top-left", name="mine")[2]
    assert (arguments["NAME"], arguments["PRAGMA"]) == ("mine", False)


@pytest.mark.parametrize(
    ("dtype", "keys", "section"),
    [("float16", 20_000, 8), ("float16", 2**20, 4), ("float8_e4m3fn", 20_000, 16), ("float16", 100, 32)],
)
def test_heads_run_together_whose_k_and_v_fit_the_cache(launch, dtype, keys, section):
    """24 MiB hold K and V of 2, less than one, 4 or all heads; 4 heads of Q share each."""
    q, k = (FakeTensor((2, heads, length, 128), f"torch.{dtype}") for heads, length in ((16, 64), (4, keys)))
    arguments = launch(q, k, k)[2]
    assert (arguments["section"], type(arguments["section"])) == (section, int)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"causal": True}, ValueError, "causal True: must be None, 'top-left' or 'bottom-right'"),
        ({"scale": float("inf")}, ValueError, "scale inf: must be positive"),
        ({"config": MmaConfig("bf16", 64)}, ValueError, "config.dtype is 'bf16': these arguments need 'fp16'"),
        ({"config": MmaConfig("fp16", 128)}, ValueError, "config.head_dim is 128: these arguments need 64"),
        (
            {"config": MmaConfig("fp16", 64, "top-left")},
            ValueError,
            "config.causal is 'top-left': these arguments",
        ),
        ({"name": "two words"}, ValueError, "mma attention on sm_90: name 'two words': Triton takes letters"),
    ],
)
def test_a_launch_refuses_what_the_kernel_cannot_do(launch, options, error, message):
    q = FakeTensor((1, 1, 100, 64))
    with pytest.raises(error, match=message):
        launch(q, q, q, **options)


def test_a_launch_names_the_dtypes_that_the_kernel_takes(launch):
    with pytest.raises(TypeError, match="q is torch.float8_e5m2: the kernel takes torch.float16, torch.b"):
        launch(*[FakeTensor(dtype="torch.float8_e5m2")] * 3)


# --- on a GPU


@pytest.fixture
def torch_and_arch():
    torch = pytest.importorskip("torch", reason="needs torch")
    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU that torch can use")
    major, minor = torch.cuda.get_device_capability()
    arch = 10 * major + minor
    reason = MmaConfig(stages=1).why_not(arch)
    if reason is not None:
        pytest.skip(reason)
    return torch, arch


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8e4nv"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_it_is_as_right_as_pytorch(torch_and_arch, dtype, head_dim):
    from gluon_kernels.mma.launch import attention
    from gluon_kernels.verify import check

    _, arch = torch_and_arch
    if MmaConfig(dtype=dtype).why_not(arch):
        pytest.skip(MmaConfig(dtype=dtype).why_not(arch))
    cases = list(check.matrix((dtype,), (head_dim,), quick=True))
    assert [v for v in check.run(attention, iter(cases)) if not v.right] == []


@pytest.mark.gpu
def test_wrong_kernels_are_found(torch_and_arch):
    from tests.gluon_kernels.mutations import EDITS, REFERENCES, run_mutations

    found = list(run_mutations("mma"))
    assert len(found) == len(REFERENCES) + sum(edit.kernel == "mma" for edit in EDITS)
    assert [one.mutation for one in found if one.verdict is None] == []


@pytest.mark.gpu
def test_a_query_without_keys_gets_zero_and_minus_infinity(torch_and_arch):
    from gluon_kernels.mma.launch import attention

    torch, _ = torch_and_arch
    q = torch.randn(1, 2, 200, 64, device="cuda").bfloat16()
    k, v = (torch.randn(1, 2, 70, 64, device="cuda").bfloat16() for _ in range(2))
    o, lse = attention(q, k, v, causal="bottom-right", return_lse=True)
    assert not o[:, :, :130].any() and bool((lse[:, :, :130] == -float("inf")).all())
    assert o[:, :, 130:].any() and bool(lse[:, :, 130:].isfinite().all())


@pytest.mark.gpu
def test_the_tuner_times_no_wrong_candidate(torch_and_arch):
    """Three candidates: one gives zeros, one cannot run. Both are named with a reason, and neither has a time."""
    from gluon_kernels.mma.launch import attention
    from gluon_kernels.tune import best, tune
    from gluon_kernels.verify.bench import Shape, agree, torch_output

    shape = Shape(1, 4, 512, 64)
    inputs = shape.inputs()
    right, wrong, unfit = (MmaConfig(head_dim=d, block_n=n, stages=1) for d, n in ((64, 32), (64, 64), (128, 64)))

    def broken(q, k, v, *, causal, config):
        out = attention(q, k, v, causal=causal, config=config)
        return out.zero_() if config == wrong else out

    expected = torch_output(inputs, shape)
    candidates = (right, wrong, unfit)
    tried = tune(broken, candidates, *inputs, causal=None, rounds=3, verify=lambda out: agree("bf16", out, expected))
    reasons = {one.config: one.reason for one in tried if one.timed is None}
    assert list(reasons) == [wrong, unfit]
    assert "wrong: a row differs" in reasons[wrong]
    assert "config.head_dim is 128" in reasons[unfit]
    assert best(tried) == right
