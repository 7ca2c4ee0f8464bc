"""A smaller kernel must order what the first one did: products, threads and proxies."""

from __future__ import annotations

import pytest

from tritonhook.ptx.program import Item
from tritonhook.verify.minimise import Ordering, ordering_of

STORE, LOAD, BAR = "st.shared.b32", "ld.shared.b32", "bar.sync"
FENCE, PRODUCT, COMMIT, WAIT = (
    f"wgmma.{one}.sync.aligned" for one in ("fence", "mma_async", "commit_group", "wait_group")
)
PROXY = "fence.proxy.async.shared::cta"


@pytest.mark.parametrize(
    ("opcodes", "ordering"),
    [
        ((STORE, PROXY, BAR, FENCE, PRODUCT, PRODUCT, COMMIT, WAIT, LOAD), Ordering(True, True, True, True)),
        ((STORE, PROXY, BAR, PRODUCT, COMMIT, WAIT), Ordering(False, True, True, True)),
        ((STORE, PROXY, BAR, FENCE, PRODUCT, COMMIT), Ordering(False, True, True, True)),
        ((STORE, PROXY, BAR, FENCE, PRODUCT, WAIT), Ordering(False, True, True, True)),
        ((STORE, PROXY, BAR, FENCE, PRODUCT, COMMIT, WAIT, PRODUCT), Ordering(False, True, True, True)),
        ((STORE, BAR, FENCE, PRODUCT, COMMIT, WAIT), Ordering(True, True, False, True)),
        ((STORE, PROXY, FENCE, PRODUCT, COMMIT, WAIT), Ordering(True, False, True, True)),
        ((STORE, LOAD), Ordering(True, False, True, True)),
        ((LOAD, STORE, BAR, LOAD), Ordering(True, True, True, False)),
        (("cp.async.cg.shared.global", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"), Ordering(True, False, True, True)),
        ((FENCE, PRODUCT, COMMIT, WAIT), Ordering(True, True, True, False)),
        (("mbarrier.init.shared::cta.b64", "mbarrier.try_wait.shared::cta.b64"), Ordering(True, True, True, True)),
        (("st.global.b32", "ld.global.b32"), Ordering(True, True, True, True)),
    ],
)
def test_what_is_ordered(opcodes: tuple[str, ...], ordering: Ordering) -> None:
    assert ordering_of([Item(opcode) for opcode in opcodes]) == ordering


def test_what_the_first_kernel_ordered_stays() -> None:
    every, lost = Ordering(True, True, True, True), Ordering(True, False, True, True)
    assert every.covers(every, 32) and every.covers(lost, 32) and lost.covers(lost, 32)
    assert not lost.covers(every, 32) and lost.covers(every, 1)
    assert not Ordering(True, True, True, False).covers(every, 1)
    assert not Ordering(False, True, True, True).covers(every, 1) and not Ordering(True, True, False, True).covers(
        every, 1
    )
