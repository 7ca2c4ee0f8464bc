"""The mma.sync attention kernel: what it accepts, that it assembles, and, on a GPU, that it is right."""

import re
from dataclasses import replace

import pytest

from gluon_kernels.config_mma import BASE_NAME, NAMES, MmaConfig, candidates, default_config


@pytest.mark.parametrize("arch", [80, 90, 120, 121])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8e4nv"])
@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
def test_default_configs_fit_the_gpu(arch, head_dim, dtype, causal):
    reason = default_config(arch, dtype, head_dim, causal).why_not(arch)
    assert reason is None if (arch, dtype) != (80, "fp8e4nv") else "fp8 from sm_89 on" in reason


@pytest.mark.parametrize(
    ("change", "arch", "reason"),
    [
        ({}, 100, "arch 100: the kernel is for sm_80"),
        ({"dtype": "fp32"}, 90, "dtype 'fp32': not one of"),
        ({"dtype": "fp8e4nv"}, 80, "dtype fp8e4nv: mma.sync takes fp8 from sm_89"),
        ({"causal": True}, 90, "causal True: not None, 'top-left' or 'bottom-right'"),
        ({"head_dim": 96}, 90, "head_dim 96"),
        ({"warps": 2}, 90, "warps 2"),
        ({"block_m": 256}, 90, "block_m 256: 4 warps compute 16 or 32 rows each"),
        ({"block_n": 48}, 90, "block_n 48"),
        ({"stages": 3}, 90, "stages 3"),
        ({"parts": 3}, 90, "parts 3: 1, 2, 4 or 8"),
        ({"parts": 8}, 90, "parts 8: 1, 2, 4 or 8, of at least the 16 keys"),
        ({"dtype": "fp8e4nv", "parts": 4}, 90, "parts 4: 1, 2, 4 or 8, of at least the 32 keys"),
        (
            {"head_dim": 256, "block_n": 64, "stages": 2},
            120,
            "196608 bytes of shared memory: a CTA on sm_120 has 101376",
        ),
        ({"dtype": "fp8e4nv", "parts": 2, "sum_by_mma": True}, 90, "sum_by_mma: not with fp8: ptxas"),
        ({"name": "two words"}, 90, "name 'two words'"),
    ],
)
def test_why_not_names_the_reason(change, arch, reason):
    config = replace(MmaConfig(), **change)
    assert reason in config.why_not(arch)
    with pytest.raises(ValueError, match=re.escape(reason)):
        config.require(arch)


def test_every_candidate_comes_under_both_names_and_can_run():
    config = default_config(90, "bf16", 128, None)
    found = list(candidates(config, 90))
    assert found[0] == config
    assert len(found) == len(set(found))
    assert all(c.why_not(90) is None for c in found)
    for one in found:
        assert {replace(one, name=name) for name in NAMES} <= set(found)
        assert (one.dtype, one.head_dim, one.causal) == (config.dtype, config.head_dim, config.causal)


COMPILED = [
    (80, MmaConfig()),
    (90, default_config(90, "bf16", 128, None)),
    (90, default_config(90, "fp16", 64, "top-left")),
    (120, default_config(120, "fp8e4nv", 128, "bottom-right")),
]


@pytest.mark.parametrize(("arch", "config"), COMPILED, ids=lambda x: str(getattr(x, "dtype", x)))
def test_it_assembles(arch, config, triton_cache):
    from gluon_kernels.attention_mma import compile_offline
    from tritonhook.cubin.image import Cubin

    kernel = compile_offline(config, arch)
    ptx = kernel.asm["ptx"]
    assert re.search(rf"^\.target sm_{arch}a?\b", ptx, re.MULTILINE)
    assert re.search(r"mma\.sync\.aligned\.m16n8k(16|32)", ptx) and "cp.async.cg.shared.global" in ptx
    assert Cubin.from_bytes(kernel.asm["cubin"]).kernels == (config.name,)
    # The buffers of the config, and at most a little scratch beside them.
    assert config.shared_bytes <= kernel.metadata.shared <= config.shared_bytes + 1024


def test_a_name_is_part_of_the_compile_hash(triton_cache):
    """Renaming through `repr` alone would hit the cache entry of the other name."""
    from gluon_kernels.attention_mma import compile_offline

    plain, other = (compile_offline(head_dim=64, keep_q=True, name=name) for name in NAMES)
    assert plain.hash != other.hash
    assert (plain.metadata.name, other.metadata.name) == (BASE_NAME, f"cutlass_{BASE_NAME}")


class FakeTensor:
    """What check_tensors looks at."""

    def __init__(self, *shape, dtype="torch.bfloat16", device="cuda:0", strides=None, pointer=1024):
        class Device(str):
            type = device.partition(":")[0]

        self.shape, self.dtype, self.device, self._pointer = shape, dtype, Device(device), pointer
        own = [1]
        for size in reversed(shape[1:]):
            own.insert(0, own[0] * size)
        self._strides = tuple(strides or own)

    def stride(self, i=None):
        return self._strides if i is None else self._strides[i]

    def element_size(self):
        return 1 if "float8" in self.dtype else 4 if "32" in self.dtype else 2

    def data_ptr(self):
        return self._pointer

    def numel(self):
        total = 1
        for size in self.shape:
            total *= size
        return total


def test_tensors_that_fit_are_accepted():
    from gluon_kernels.attention_mma import check_tensors

    q, k = FakeTensor(2, 8, 100, 64), FakeTensor(2, 2, 77, 64)
    assert check_tensors(q, k, k) == "bf16"
    heads_last = FakeTensor(2, 8, 100, 64, strides=(51200, 64, 512, 1))
    assert check_tensors(heads_last, k, k) == "bf16"


@pytest.mark.parametrize(
    ("q", "k", "error", "message"),
    [
        (FakeTensor(1, 1, 8, 64, dtype="torch.float32"), None, TypeError, "q is torch.float32"),
        (FakeTensor(8, 64), None, ValueError, "q has shape (8, 64): pass [batch, heads, length, head_dim]"),
        (None, FakeTensor(1, 1, 8, 64, dtype="torch.float16"), TypeError, "k is torch.float16"),
        (None, FakeTensor(1, 1, 8, 64, device="cpu"), ValueError, "k is on cpu"),
        (None, FakeTensor(1, 0, 8, 64), ValueError, "1 query heads for 0 K/V heads"),
        (None, FakeTensor(1, 1, 8, 64, strides=(512, 512, 1, 8)), ValueError, "k's last dimension has stride 8"),
        (None, FakeTensor(1, 1, 8, 64, strides=(520, 520, 65, 1)), ValueError, "k has strides (520, 520, 65, 1)"),
        (None, FakeTensor(1, 1, 8, 64, pointer=1032), ValueError, "k starts at 0x408"),
        (None, FakeTensor(2, 1, 8, 64), ValueError, "batch and head_dim must be equal"),
        (FakeTensor(1, 3, 8, 64), FakeTensor(1, 2, 8, 64), ValueError, "3 query heads for 2 K/V heads"),
    ],
)
def test_tensors_that_do_not_fit_are_named(q, k, error, message):
    from gluon_kernels.attention_mma import check_tensors

    q, k = q or FakeTensor(1, 1, 8, 64), k or FakeTensor(1, 1, 8, 64)
    with pytest.raises(error, match=re.escape(message)):
        check_tensors(q, k, k)


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
    from gluon_kernels import check
    from gluon_kernels.attention_mma import attention

    _, arch = torch_and_arch
    if MmaConfig(dtype=dtype).why_not(arch):
        pytest.skip(MmaConfig(dtype=dtype).why_not(arch))
    cases = list(check.matrix((dtype,), (head_dim,), quick=True))
    assert [v for v in check.run(attention, iter(cases)) if not v.right] == []


@pytest.mark.gpu
def test_wrong_kernels_are_found(torch_and_arch):
    from gluon_kernels import check

    found = list(check.run_mutations("attention_mma"))
    assert len(found) == len(check.MUTATIONS) + len(check.KERNEL_MUTATIONS["attention_mma"])
    assert [one.mutation for one in found if one.verdict is None] == []


@pytest.mark.gpu
def test_a_query_without_keys_gets_zero_and_minus_infinity(torch_and_arch):
    from gluon_kernels.attention_mma import attention

    torch, _ = torch_and_arch
    q = torch.randn(1, 2, 200, 64, device="cuda").bfloat16()
    k, v = (torch.randn(1, 2, 70, 64, device="cuda").bfloat16() for _ in range(2))
    o, lse = attention(q, k, v, causal="bottom-right", return_lse=True)
    assert not o[:, :, :130].any() and bool((lse[:, :, :130] == -float("inf")).all())
    assert o[:, :, 130:].any() and bool(lse[:, :, 130:].isfinite().all())


@pytest.mark.gpu
def test_the_tuner_times_no_wrong_candidate(torch_and_arch):
    """Given candidates of which one gives zeros and one cannot run; then both are named, and neither has a time."""
    from gluon_kernels.attention_mma import attention
    from gluon_kernels.bench import Shape, agree, torch_output
    from gluon_kernels.tune import best, tune

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
    assert "made for another" in reasons[unfit]
    assert best(tried, BASE_NAME) == right
