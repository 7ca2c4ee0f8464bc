"""The other kernels that `sm120_serving_h200.py` times over a KV cache, as they are found on the machine.

A maker takes a Problem and gives one launch per cache of the problem; making plans and compiles, the launch is timed.
Where a peer cannot do a problem, its maker raises Missing.

    sdpa         torch's scaled_dot_product_attention on K and V that are gathered already; torch picks the backend
    flashinfer   FlashInfer's wrappers for paged caches, backend fa2, on the pages of our call. Decode: both of its
                 kernels, with and without tensor cores. Its plan is made before, for exactly these lengths
    fa4          FlashAttention 4 on Hopper, with a page table. Its Hopper path does not split keys over CTAs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

Launch = Callable[[], Any]
FLASHINFER_WORKSPACE_BYTES = 512 << 20


class Missing(Exception):
    """This peer is not on this machine, or not for this problem; says why."""


@dataclass(frozen=True)
class Problem:
    """Queries over caches that differ in their values alone, so that calls can rotate among them.

    q: [batch, queries, heads, head_dim]. caches: pairs of K and V, [pages, page, heads_kv, head_dim], or with page 0
    [batch, keys, heads_kv, head_dim]. table: None with page 0. All sequences are `keys` long; the mask is causal.
    """

    q: Any
    caches: tuple[tuple[Any, Any], ...]
    lengths: Any
    table: Any
    keys: int
    page: int

    @property
    def queries(self) -> int:
        return int(self.q.shape[1])

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `attention_with_kv_cache` that follow q, K and V."""
        found = {"cache_seqlens": self.lengths}
        return found if self.table is None else found | {"block_table": self.table}


def ours(problem: Problem, **given: Any) -> list[Launch]:
    from sm120_attn import attention_with_kv_cache

    named = problem.arguments | given
    return [lambda k=k, v=v: attention_with_kv_cache(problem.q, k, v, **named) for k, v in problem.caches]


def contiguous(problem: Problem) -> list[Launch]:
    """`attention`, which knows no cache."""
    from sm120_attn import attention

    return [lambda k=k, v=v: attention(problem.q, k, v, causal=True) for k, v in problem.caches]


def sdpa(problem: Problem) -> list[Launch]:
    import torch

    if problem.table is not None or problem.q.dtype != problem.caches[0][0].dtype:
        raise Missing("SDPA reads neither pages nor FP8 caches")
    if problem.queries not in (1, problem.keys):
        raise Missing("SDPA has no flag for a causal mask that is aligned to the last key")
    causal = problem.queries > 1
    q = problem.q.transpose(1, 2)
    attend = torch.nn.functional.scaled_dot_product_attention
    turned = [(k.transpose(1, 2), v.transpose(1, 2)) for k, v in problem.caches]
    return [lambda k=k, v=v: attend(q, k, v, is_causal=causal, enable_gqa=True) for k, v in turned]


@cache
def _workspace() -> Any:
    import torch

    return torch.zeros(FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")


def flashinfer(problem: Problem, tensor_cores: bool = True) -> list[Launch]:
    """Decode with one kernel or the other, or prefill."""
    import torch

    try:
        import flashinfer as package
    except ImportError as error:
        raise Missing(f"flashinfer: {error}") from None
    if problem.table is None:
        raise Missing("timed on pages only")
    batch, queries, heads, dim = problem.q.shape
    caches = problem.caches
    pages = problem.table.shape[1]
    starts = torch.arange(batch + 1, dtype=torch.int32)
    last = torch.full((batch,), problem.page, dtype=torch.int32)
    kinds = {"q_data_type": problem.q.dtype, "kv_data_type": caches[0][0].dtype}
    sizes = (heads, caches[0][0].shape[2], dim, problem.page)
    indices, q = problem.table.flatten(), problem.q.flatten(0, 1)
    if queries == 1:
        made = package.BatchDecodeWithPagedKVCacheWrapper(_workspace(), use_tensor_cores=tensor_cores, backend="fa2")
        made.plan(starts * pages, indices, last, *sizes, **kinds)
    else:
        made = package.BatchPrefillWithPagedKVCacheWrapper(_workspace(), backend="fa2")
        made.plan(starts * queries, starts * pages, indices, last, *sizes, causal=True, **kinds)
    return [lambda pair=pair: made.run(q, pair) for pair in caches]


def flashinfer_without_tensor_cores(problem: Problem) -> list[Launch]:
    if problem.queries > 1:
        raise Missing("for decode only")
    return flashinfer(problem, tensor_cores=False)


def fa4(problem: Problem) -> list[Launch]:
    try:
        from flash_attn.cute import flash_attn_varlen_func
    except ImportError as error:
        raise Missing(f"flash_attn.cute: {error}") from None
    if problem.table is None or problem.q.dtype != problem.caches[0][0].dtype:
        raise Missing("timed on 16-bit pages only")
    named = {"page_table": problem.table, "seqused_k": problem.lengths, "causal": True}

    def launch(k: Any, v: Any) -> Any:
        found = flash_attn_varlen_func(problem.q, k, v, **named)
        return found[0] if isinstance(found, tuple) else found

    return [lambda k=k, v=v: launch(k, v) for k, v in problem.caches]


PEERS: dict[str, Callable[[Problem], list[Launch]]] = {
    "sdpa": sdpa,
    "flashinfer": flashinfer,
    "flashinfer, no tensor cores": flashinfer_without_tensor_cores,
    "fa4": fa4,
}
