"""Arguments of an attention kernel, grouped as tuples for its functions."""

from typing import Any, NamedTuple


class Given(NamedTuple):
    """The tensors of a call, as in compile/build.py; None if absent.

    In the tma kernel, q, k and v are pairs of a TMA atom and its coordinate tensor. page_size: rows of a page, set by
    this kernel only.
    """

    q: Any
    k: Any
    v: Any
    o: Any
    lse: Any
    cu_seqlens_q: Any
    cu_seqlens_k: Any = None
    cache_seqlens: Any = None
    block_table: Any = None
    page_size: Any = None
    sinks: Any = None
    q_descale: Any = None
    k_descale: Any = None
    v_descale: Any = None
    k_scales: Any = None
    v_scales: Any = None
    partials: Any = None


class Scores(NamedTuple):
    """Scalars of a call. scale: factor in the softmax's exponent; tanh_scale: factor before tanh, for softcap."""

    scale: Any
    tanh_scale: Any
    window_left: Any
    window_right: Any
