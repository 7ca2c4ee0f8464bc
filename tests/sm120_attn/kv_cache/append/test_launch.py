"""How a call that appends becomes two launches, and what is refused. On the CPU, with a stand-in for the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install torch")

from sm120_attn import attention_with_kv_cache  # noqa: E402
from sm120_attn.kernels.append.config import AppendConfig  # noqa: E402
from tests.sm120_attn.support.fake_kernel import FakeKernel, refuses  # noqa: E402


def call(queries: int = 1, new: int = 1, page: int = 16, rotary: int = 0, packed: bool = False, **changed: Any) -> Any:
    """q and caches, and the other arguments: two sequences, 8 query heads, 2 key heads, head_dim 128."""
    rows = (5,) if packed else (2, queries)
    q = torch.zeros(*rows, 8, 128, dtype=torch.bfloat16)
    caches = [torch.zeros(10 if page else 2, page or 160, 2, 128, dtype=torch.bfloat16) for _ in range(2)]
    new_rows = (5,) if packed else (2, new)
    options: dict[str, Any] = {"cache_seqlens": torch.zeros(2, dtype=torch.int32)}
    for name in ("k_new", "v_new"):
        options[name] = torch.zeros(*new_rows, 2, 128, dtype=torch.bfloat16)
    if page:
        options["block_table"] = torch.zeros(2, 5, dtype=torch.int32)
    if rotary:
        options |= {name: torch.zeros(90, rotary // 2) for name in ("rotary_cos", "rotary_sin")}
    if packed:
        options |= {"cu_seqlens_q": torch.tensor([0, 2, 5], dtype=torch.int32), "max_seqlen_q": 3}
    return (q, *caches), options | changed


@pytest.mark.parametrize("page", [0, 16])
def test_the_attention_gets_the_new_lengths_and_the_turned_queries(kernel: FakeKernel, page: int) -> None:
    tensors, options = call(queries=3, new=3, page=page, rotary=64)
    o = attention_with_kv_cache(*tensors, **options, rotary_interleaved=False)

    appended, attended = kernel.calls
    config = kernel.configs[0]
    assert (config.rotary, config.table_dtype, config.paged, config.varlen) == ("half", "fp32", page > 0, False)
    for name, tensor in zip(("q", "k", "v"), tensors, strict=True):
        assert appended[name][0] == tensor.data_ptr()
    for name in ("k_new", "v_new", "rotary_cos", "rotary_sin", "cache_seqlens"):
        assert appended[name][0] == options[name].data_ptr()
    assert (appended["tokens"], appended["seqlen_q"], appended["seqlen_new"], appended["q_step"]) == (6, 3, 3, 1)
    assert attended["q"][0] == appended["q_out"][0] not in (0, tensors[0].data_ptr())
    assert attended["cache_seqlens"][0] == appended["new_seqlens"][0] != options["cache_seqlens"].data_ptr()
    assert attended["k"][0] == tensors[1].data_ptr() and attended["o"][0] == o.data_ptr()
    assert appended["stream"] == attended["stream"] == 0x5EA


def test_without_rotary_embedding_the_queries_stay(kernel: FakeKernel) -> None:
    tensors, options = call(queries=4, new=2)
    attention_with_kv_cache(*tensors, **options)
    appended, attended = kernel.calls
    assert "q" not in appended and attended["q"][0] == tensors[0].data_ptr()
    assert appended["tokens"] == 4  # two for each sequence


def test_packed_queries_have_a_new_key_each(kernel: FakeKernel) -> None:
    tensors, options = call(packed=True, rotary=128)
    attention_with_kv_cache(*tensors, **options)
    appended, _ = kernel.calls
    assert kernel.configs[0].varlen and appended["tokens"] == 5
    assert appended["cu_seqlens_q"][0] == options["cu_seqlens_q"].data_ptr()
    assert kernel.configs[0].rotary == "interleaved"


@pytest.mark.parametrize(
    ("options", "step"), [({}, 1), ({"causal": False}, 0), ({"causal": False, "window": (3, 3)}, 1)]
)
def test_without_a_mask_all_queries_have_one_position(kernel: FakeKernel, options: dict, step: int) -> None:
    tensors, others = call(queries=2, rotary=32, **options)
    attention_with_kv_cache(*tensors, **others)
    assert kernel.calls[0]["q_step"] == step


def test_queries_that_are_misaligned_once_are_copied_once(kernel: FakeKernel) -> None:
    """Given calls that differ in q's address only, then each attention gets q's own strides, or those of the copy."""
    (_, *caches), options = call()
    held = torch.zeros(2 * 2 * 8 * 128 + 8, dtype=torch.bfloat16)
    for first in (0, 1, 0):
        q = held[first : first + 2 * 2 * 8 * 128].view(2, 2, 8, 128)[:, :1]
        attention_with_kv_cache(q, *caches, **options)
    strides = [given["q"][-3:] for given in kernel.calls[1::2]]
    assert strides[0] == strides[2] == (2048, 1024, 128) and strides[1] == (1024, 1024, 128)
    assert kernel.calls[1]["q"][0] == held.data_ptr() != kernel.calls[3]["q"][0]


@pytest.mark.parametrize("empty", ["new keys", "queries"])
def test_what_is_empty_is_not_launched(kernel: FakeKernel, empty: str) -> None:
    tensors, options = call(queries=int(empty != "queries"), new=int(empty != "new keys"), page=0)
    attention_with_kv_cache(*tensors, **options)
    kinds = [type(config) is AppendConfig for config in kernel.configs]
    assert kinds == {"new keys": [False], "queries": [True]}[empty]


@pytest.mark.parametrize(
    ("new", "room"),
    [
        ({"queries": 130, "new": 81}, 80),  # five pages of 16
        ({"queries": 1, "new": 161, "page": 0}, 160),
        ({"queries": 1, "new": 17, "block_table": torch.zeros(2, 1, dtype=torch.int32)}, 16),
        ({"packed": True, "block_table": torch.zeros(2, 0, dtype=torch.int32)}, 0),
    ],
)
def test_more_new_keys_than_a_sequence_has_room_for_are_refused(
    new: dict[str, Any], room: int, kernel: FakeKernel
) -> None:
    tensors, options = call(**new)
    with pytest.raises(ValueError, match=rf"k_new is .* at most {room}, the room in k_cache"):
        attention_with_kv_cache(*tensors, **options)
    assert kernel.calls == []


def test_as_many_new_keys_as_a_sequence_has_room_for_are_appended(kernel: FakeKernel) -> None:
    for new in ({"new": 80}, {"new": 160, "page": 0}, {"packed": True, "max_seqlen_q": 500}):
        tensors, options = call(**new)
        attention_with_kv_cache(*tensors, **options)
    assert len(kernel.calls) == 6


TABLE = torch.zeros(90, 32)
REFUSED = {
    "k_new is given without v_new": lambda: call(v_new=None),
    "v_new is given without k_new": lambda: call(k_new=None),
    "rotary_cos is given without k_new": lambda: call(k_new=None, v_new=None, rotary=64),
    "one of rotary_cos and rotary_sin is None": lambda: call(rotary_cos=TABLE),
    r"k_new is \[2, 1, 2, 128\] and v_new is \[2, 2, 2, 128\]": lambda: call(
        v_new=torch.zeros(2, 2, 2, 128, dtype=torch.bfloat16)
    ),
    "k_new is torch.float16 and q is torch.bfloat16": lambda: call(k_new=call()[1]["k_new"].half()),
    r"k_new is \[2, 1, 4, 128\] and k_cache": lambda: call(
        **dict.fromkeys(("k_new", "v_new"), torch.zeros(2, 1, 4, 128, dtype=torch.bfloat16))
    ),
    r"k_new is \[3, 1, 2, 128\] and q is \[2": lambda: call(
        **dict.fromkeys(("k_new", "v_new"), torch.zeros(3, 1, 2, 128, dtype=torch.bfloat16))
    ),
    "because each packed query has one new key": lambda: call(
        packed=True, **dict.fromkeys(("k_new", "v_new"), torch.zeros(4, 2, 128, dtype=torch.bfloat16))
    ),
    "k_new has 3 dimensions": lambda: call(k_new=torch.zeros(5, 2, 128, dtype=torch.bfloat16)),
    "for 72 rotary columns: must be a multiple of 16, up to head_dim, 128": lambda: call(rotary=72),
    "rotary_cos is .* must be contiguous": lambda: call(rotary_cos=TABLE.T, rotary_sin=TABLE.T),
    "rotary_cos is .* and rotary_sin is .*: must be the same": lambda: call(rotary_cos=TABLE, rotary_sin=TABLE[:80]),
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_supported_is_named_before_anything_is_written(
    kernel: FakeKernel, message: str, checked: bool
) -> None:
    tensors, options = REFUSED[message]()
    refuses(kernel, message, tensors, options | {"check": checked})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"cache_seqlens": 79}, r"cache_seqlens with the new keys\[0\] is 81: must be 0 to 80"),
        ({"block_table": 10}, r"block_table\[0, 0\] is 10: .* sequence 0 with 2 keys"),
        ({"rotary": 64}, ""),
        ({"rotary": 64, "positions": 1}, "rotary_cos has 1 positions: must have at least 2"),
    ],
)
def test_check_looks_at_the_new_keys_too(kernel: FakeKernel, changed: dict, said: str) -> None:
    tensors, options = call(queries=2, new=2, rotary=changed.pop("rotary", 0))
    positions = changed.pop("positions", 90)
    for name, value in changed.items():
        options[name].view(-1)[0] = value
    for name in ("rotary_cos", "rotary_sin"):
        if name in options:
            options[name] = options[name][:positions]
    if not said:
        attention_with_kv_cache(*tensors, **options, check=True)
        return
    with pytest.raises(ValueError, match=said):
        attention_with_kv_cache(*tensors, **options, check=True)
    assert kernel.calls == []


def _smoothed(**more: Any) -> Any:
    """A call that appends to an FP8 cache, with a mean key."""
    (q, *caches), options = call()
    mean = torch.zeros(len(q), caches[0].shape[2], q.shape[-1])
    return (q, *(t.to(torch.float8_e4m3fn) for t in caches)), options | {"k_mean": mean} | more


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"softcap": 5.0}, "k_mean with softcap, sinks or return_lse"),
        ({"sinks": torch.zeros(8)}, "k_mean with softcap, sinks or return_lse"),
        ({"return_lse": True}, "k_mean with softcap, sinks or return_lse"),
        ({"k_mean": torch.zeros(2, 128)}, r"k_mean is \[2, 128\] .*must be \[batch, heads_kv, head_dim\]"),
        ({"k_mean": torch.zeros(2, 2, 128, dtype=torch.bfloat16)}, "k_mean is torch.bfloat16: must be torch.float32"),
    ],
)
def test_a_mean_key_that_would_be_seen_is_refused(kernel: FakeKernel, more: dict, said: str) -> None:
    tensors, options = _smoothed(**more)
    refuses(kernel, said, tensors, options)


def test_the_operator_says_that_it_changes_the_cache(kernel: FakeKernel) -> None:
    import sm120_attn.kv_cache.torch_op  # noqa: F401

    schema = torch.ops.sm120_attn.append_and_attend.default._schema
    assert [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write] == [
        "k_cache", "v_cache", "k_scales", "v_scales",
    ]  # fmt: skip


@pytest.fixture
def on_cpu() -> Iterator[list]:
    """The operator on CPU tensors: it writes one row, and notes the caches that it has been given."""
    library, seen = torch.library.Library("sm120_attn", "IMPL"), []

    def plain(q, k_cache, v_cache, *others):
        seen.append((k_cache, v_cache))
        k_cache[0, 0] = others[8][0, 0]
        v_cache[0, 0] = 3
        return q + k_cache[0, 0, 0], torch.empty(0)

    library.impl("append_and_attend", plain, "CPU")
    yield seen
    library._destroy()


def test_the_operator_keeps_torchs_rules(on_cpu: list) -> None:
    (q, k, v), options = call(queries=2, new=2)
    arguments = (q, k, v, options["cache_seqlens"], options["block_table"], *(None,) * 6,
                 options["k_new"], options["v_new"], None, None, None, True, -1, -1, 0.125, 0.0, False, 2, None,
                 True)  # fmt: skip
    operator = torch.ops.sm120_attn.append_and_attend.default
    torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_keeps_what_was_written(on_cpu: list, backend: str) -> None:
    """Given a compiled model that appends and then reads the cache, when run, then it reads the new row."""
    (q, k, v), options = call()
    options["k_new"] += 2

    def model(q, k, v):
        o = attention_with_kv_cache(q, k, v, **options)
        return o, k.sum() + v.sum()

    with torch.no_grad():
        o, total = torch.compile(model, fullgraph=True, backend=backend)(q, k, v)
    assert on_cpu and (o == 2).all()
    assert total == 2 * 128 * (2 + 3) == k.sum() + v.sum()
