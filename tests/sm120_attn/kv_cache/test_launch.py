"""How a call over a cache becomes a launch, and what is refused. On the CPU, with a stand-in for the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn import attention_with_kv_cache  # noqa: E402
from sm120_attn.config import Config  # noqa: E402
from sm120_attn.kernels.decode.config import DecodeConfig  # noqa: E402
from sm120_attn.kv_cache import launch  # noqa: E402
from tests.sm120_attn.support.fake_kernel import FakeKernel, refuses  # noqa: E402


def call(batch: int = 2, queries: int = 1, heads: int = 8, heads_kv: int = 2, dim: int = 128, page: int = 16):
    """q, caches and other arguments; 10 pages, or without pages room for 160 keys."""
    q = torch.zeros(batch, queries, heads, dim, dtype=torch.bfloat16)
    caches = [torch.zeros(10, page, heads_kv, dim, dtype=torch.bfloat16) for _ in range(2)]
    if not page:
        caches = [torch.zeros(batch, 160, heads_kv, dim, dtype=torch.bfloat16) for _ in range(2)]
    options: dict[str, Any] = {"cache_seqlens": torch.zeros(batch, dtype=torch.int32)}
    if page:
        options["block_table"] = torch.zeros(batch, 5, dtype=torch.int32)
    return (q, *caches), options


def test_a_second_call_asks_for_no_kernel(kernel: FakeKernel) -> None:
    tensors, options = call()
    for _ in range(3):
        attention_with_kv_cache(*tensors, **options)
    assert len(kernel.calls) == 3 and len(kernel.configs) == 1
    assert len(launch.prepared_calls) == 1


def test_packed_queries_have_an_lse_of_their_form(kernel: FakeKernel) -> None:
    (_, k, v), options = call()
    q, starts = torch.zeros(7, 8, 128, dtype=torch.bfloat16), torch.tensor([0, 3, 7], dtype=torch.int32)
    o, lse = attention_with_kv_cache(q, k, v, **options, cu_seqlens_q=starts, max_seqlen_q=4, return_lse=True)
    assert o.shape == q.shape and lse.shape == (8, 7)
    assert kernel.configs[0].varlen and kernel.calls[0]["cu_seqlens_q"][0] == starts.data_ptr()


@pytest.mark.parametrize("sinks", [False, True])
def test_a_cache_without_room_gives_zeros(kernel: FakeKernel, sinks: bool) -> None:
    (q, k, v), options = call(page=0)
    o, lse = attention_with_kv_cache(
        q + 1, k[:, :0], v[:, :0], **options, return_lse=True, sinks=torch.arange(8.0) if sinks else None
    )
    assert kernel.calls == [] and not o.any()
    assert (lse[0, :, 0] == (torch.arange(8.0) if sinks else -math.inf)).all()


def _changed(name: str, change):
    def make():
        tensors, options = call()
        return tensors, options | {name: change(options[name])}

    return make


def _cache(change):
    def make():
        (q, k, v), options = call()
        return (q, change(k), v), options

    return make


def _fp8(dim: int = 128, **more: Any):
    def make():
        (q, k, v), options = call(dim=dim)
        return (q, k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn)), options | more

    return make


def test_an_fp8_cache_has_descales_of_one_where_none_are_given(kernel: FakeKernel) -> None:
    tensors, options = _fp8()()
    k_descale = torch.rand(2, 2)
    attention_with_kv_cache(*tensors, **options)
    attention_with_kv_cache(*tensors, **options, k_descale=k_descale)
    plain, given = kernel.calls
    assert kernel.configs[0].kv_dtype == "e4m3" and plain["k_descale"][0] == plain["v_descale"][0] != 0
    assert plain["k_descale"][-2:] == (0, 0)
    assert given["k_descale"][0] == k_descale.data_ptr() and given["k_descale"][-2:] == (2, 1)
    assert given["v_descale"][-2:] == (0, 0)


def test_many_queries_over_an_fp8_cache_get_the_prefill_kernel(kernel: FakeKernel) -> None:
    (_, k, v), options = _fp8()()
    descale = torch.rand(2, 2)
    attention_with_kv_cache(torch.zeros(2, 100, 8, 128, dtype=torch.bfloat16), k, v, **options, v_descale=descale)
    (config,), (given,) = kernel.configs, kernel.calls
    assert isinstance(config, Config) and (config.kv_dtype, config.cache_rows, config.dtype) == ("e4m3", 16, "bf16")
    assert given["v_descale"][0] == descale.data_ptr() and given["v_descale"][-2:] == (2, 1)
    assert given["k_descale"][0] != 0 and given["k_descale"][-2:] == (0, 0) and "q_descale" not in given


def _scaled(kv_dtype: str, dim: int = 128, **more: Any):
    """A call over an NVFP4 or MXFP8 cache. more: arguments in place of the right ones, or beside them."""

    def make():
        (q, k, _), options = call(dim=dim)
        columns, block, dtype = (dim // 2, 16, torch.uint8) if kv_dtype == "nvfp4" else (dim, 32, torch.float8_e4m3fn)
        caches = [torch.zeros(*k.shape[:3], columns, dtype=torch.uint8).view(dtype) for _ in range(2)]
        scales = {f"{n}_scales": torch.zeros(*k.shape[:3], dim // block, dtype=torch.uint8) for n in "kv"}
        return (q, *caches), options | scales | more

    return make


@pytest.mark.parametrize("kv_dtype", ["nvfp4", "mxfp8"])
def test_a_block_scaled_cache_comes_with_its_scales(kernel: FakeKernel, kv_dtype: str) -> None:
    """As pages of vLLM: the scales of a page follow its values, heads first."""
    (q, *_), options = _scaled(kv_dtype)()
    columns, block = (64, 8) if kv_dtype == "nvfp4" else (128, 4)
    pages = torch.zeros(10, 2, 2 * 16 * (columns + block), dtype=torch.uint8)
    values, scales = (
        [side.view(10, 2, 16, -1).transpose(1, 2) for side in part.unbind(1)]
        for part in pages.split([2 * 16 * columns, 2 * 16 * block], -1)
    )
    if kv_dtype == "mxfp8":
        values = [v.view(torch.float8_e4m3fn) for v in values]
    options |= {"k_scales": scales[0], "v_scales": scales[1]}

    attention_with_kv_cache(q, *values, **options)
    attention_with_kv_cache(torch.zeros(2, 100, 8, 128, dtype=torch.bfloat16), *values, **options)

    assert [config.kv_dtype for config in kernel.configs] == [kv_dtype] * 2
    assert all(isinstance(config, DecodeConfig) for config in kernel.configs)
    for name, tensor in (("k", values[0]), ("v", values[1]), *((n, options[n]) for n in ("k_scales", "v_scales"))):
        assert kernel.calls[0][name][0] == tensor.data_ptr() and kernel.calls[0][name][-3:] == tensor.stride()[:3]


@pytest.mark.parametrize(("kv_dtype", "nan"), [("nvfp4", 0x7F), ("nvfp4", 0xFF), ("mxfp8", 0xFF)])
def test_a_nan_scale_is_named_where_values_are_checked(kernel: FakeKernel, kv_dtype: str, nan: int) -> None:
    tensors, options = _scaled(kv_dtype)()
    options["block_table"] = torch.tensor([[4, 5, 0, 0, 0], [7, 8, 9, 0, 0]], dtype=torch.int32)
    options["cache_seqlens"] = torch.tensor([20, 33], dtype=torch.int32)
    for place in ((5, 4, 0, 0), (9, 1, 1, 2), (3, 0, 0, 0)):  # behind the sequences, and on no page of theirs
        options["v_scales"][place] = nan
    attention_with_kv_cache(*tensors, **options, check=True)
    options["v_scales"][9, 0, 1, 2] = nan
    kernel.calls.clear()
    refuses(kernel, "v_scales has a NaN for key 32 of sequence 1", tensors, options | {"check": True})


def _with_scales(change):
    """An NVFP4 call whose scales of V are changed."""

    def make():
        tensors, options = _scaled("nvfp4")()
        return tensors, options | {"v_scales": change(options["v_scales"])}

    return make


REFUSED = {
    "head_dim 96 with a cache in nvfp4: must be a multiple of 64": _scaled("nvfp4", 96),
    "head_dim 64 with a cache in mxfp8: must be a multiple of 128": _scaled("mxfp8", 64),
    "v_scales is missing: nvfp4 caches need a scale per 16 columns": _scaled("nvfp4", v_scales=None),
    "k_scales is missing: mxfp8 caches need a scale per 32": _scaled("mxfp8", k_scales=None),
    "v_scales is torch.float16: must be one of torch.float8_e4m3fn": _with_scales(lambda t: t.half()),
    r"v_scales is \[10, 2, 16, 8\]: must be \[pages or batch": _with_scales(lambda t: t.transpose(1, 2)),
    "v_scales has strides .* multiples of 8 bytes": _with_scales(lambda t: t.new_zeros(10, 16, 2, 9)[..., :8]),
    "k_scales is given with a cache of torch.bfloat16": lambda: (call()[0], call()[1] | {"k_scales": torch.zeros(1)}),
    "head_dim 72 with a cache in e4m3": _fp8(72),
    r"v_descale is \[3\]: must be one number, or \[batch, heads\], \[2, 2\]": _fp8(v_descale=torch.ones(3)),
    "k_descale is torch.float16": _fp8(k_descale=torch.ones((), dtype=torch.float16)),
    "k_descale is given with a cache of torch.bfloat16": lambda: (call()[0], call()[1] | {"k_descale": torch.ones(())}),
    "q is torch.float8_e4m3fn: must be one of torch.bfloat16, torch.float16$": lambda: (
        [t.to(torch.float8_e4m3fn) for t in call()[0]],
        call()[1],
    ),
    "k_cache is torch.int8 and q is torch.bfloat16: must be the same, or torch.float8_e4m3fn": _cache(
        lambda k: k.to(torch.int8)
    ),
    "q is of type list: must be a torch.Tensor": lambda: (([1.0], *call()[0][1:]), call()[1]),
    "cache_seqlens is torch.int64: must be torch.int32": _changed("cache_seqlens", lambda t: t.long()),
    "batch is 2 in q and 3 in cache_seqlens": _changed("cache_seqlens", lambda t: torch.zeros(3, dtype=torch.int32)),
    "batch is 1 in block_table and 2 in cache_seqlens": _changed("block_table", lambda t: t[:1]),
    r"block_table is \[2\]: must be \[batch, most pages\]": _changed("block_table", lambda t: t[:, 0]),
    "page size 24 .*must be one of": lambda: call(page=24),
    "a cache of pages needs block_table": _changed("block_table", lambda t: None),
    r"k_cache is \[9, 16, 2, 128\] and v_cache": _cache(lambda k: k[:9]),
    "k_cache has 3 dimensions": _cache(lambda k: k[0]),
    "never copied": _cache(lambda k: torch.zeros(10, 16, 2, 129, dtype=torch.bfloat16)[..., :128]),
    "8 query heads and 3 key heads": lambda: call(heads_kv=3),
    "scale is -1.0": lambda: (call()[0], call()[1] | {"scale": -1.0}),
    "70000 sequences, 2 key heads: each must be at most 65535": lambda: call(batch=70_000),
    "num_splits is 65536: must be 1 to 65535": lambda: (call()[0], call()[1] | {"num_splits": 65536}),
    r"sinks is \[2\]: must be contiguous, \[heads\], \[8\]": lambda: (call()[0], call()[1] | {"sinks": torch.zeros(2)}),
    "window's left is -7": lambda: (call()[0], call()[1] | {"window": (-7, 3)}),
    "max_seqlen_q is needed": lambda: (call()[0], call()[1] | {"cu_seqlens_q": torch.zeros(3, dtype=torch.int32)}),
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_supported_is_named_before_a_launch(kernel: FakeKernel, message: str, checked: bool) -> None:
    tensors, options = REFUSED[message]()
    refuses(kernel, message, tensors, options | {"check": checked})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cache_seqlens", 81, r"cache_seqlens\[0\] is 81: must be 0 to 80"),
        ("cache_seqlens", -1, r"cache_seqlens\[0\] is -1"),
        ("block_table", 10, r"block_table\[0, 0\] is 10: must be a page, 0 to 9, .* sequence 0 with 5 keys"),
        ("block_table", -1, r"block_table\[0, 0\] is -1"),
    ],
)
def test_check_names_what_is_outside_of_the_cache(kernel: FakeKernel, name: str, value: int, said: str) -> None:
    tensors, options = call()
    options["cache_seqlens"][0] = 5
    attention_with_kv_cache(*tensors, **options, check=True)
    options["block_table"][:, 1:] = -1  # not used
    attention_with_kv_cache(*tensors, **options, check=True)
    options[name].view(-1)[0] = value
    with pytest.raises(ValueError, match=said):
        attention_with_kv_cache(*tensors, **options, check=True)


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """The operator on CPU tensors; its values mean nothing."""
    library = torch.library.Library("sm120_attn", "IMPL")

    def plain(q, *others):
        return q + 1, torch.zeros((8, q.shape[0]) if q.dim() == 3 else (q.shape[0], 8, q.shape[1]))

    library.impl("with_kv_cache", plain, "CPU")
    yield
    library._destroy()


def test_the_operator_keeps_torchs_rules(on_cpu: None) -> None:
    (q, k, v), options = call(queries=2)
    lengths, table = options["cache_seqlens"], options["block_table"]
    starts = torch.tensor([0, 1, 4], dtype=torch.int32)
    asked = (*(None,) * 5, True, -1, -1, 0.125, 0.0, True)
    (_, k4, v4), scaled = _scaled("nvfp4")()
    scales = (scaled["k_scales"], scaled["v_scales"])
    for arguments in (
        (q, k4, v4, lengths, table, None, *asked[:3], *scales, *asked[5:], 2, None),
        (q, k, v, lengths, table, None, *asked, 2, None),
        (q.flatten(0, 1), k, v, lengths, table, starts, *asked, 3, 4),
    ):
        torch.library.opcheck(
            torch.ops.sm120_attn.with_kv_cache.default, arguments, test_utils=("test_schema", "test_faketensor")
        )
