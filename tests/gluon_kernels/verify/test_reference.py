"""The reference: masks, grouped heads, lse. On the CPU."""

import math

import pytest

from gluon_kernels.verify.check import Case
from gluon_kernels.verify.reference import attention_reference, visible_keys

torch = pytest.importorskip("torch", reason="needs torch")


def test_the_reference_sees_what_the_masks_say():
    assert visible_keys(3, 5, "top-left").tolist() == [1, 2, 3]
    assert visible_keys(3, 5, "bottom-right").tolist() == [3, 4, 5]
    assert visible_keys(5, 3, "bottom-right").tolist() == [0, 0, 1, 2, 3]
    assert visible_keys(2, 3, None).tolist() == [3, 3]
    with pytest.raises(ValueError, match="causal True"):
        visible_keys(1, 1, True)
    q, k, v = Case(4, 4, num_heads_kv=2, qheads_per_kvhead=2).inputs(0, "cpu")
    o, lse = attention_reference(q, k, v, causal="top-left")
    assert torch.allclose(o[:, 3, 0], v[:, 1, 0].double())  # the first row sees one key, of its group's head
    assert torch.allclose(lse[:, 3, 0], (q[:, 3, 0].double() * k[:, 1, 0].double()).sum(-1) / math.sqrt(64))
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.double() for x in (q, k, v)), is_causal=True, enable_gqa=True
    )
    assert torch.allclose(o, expected)
