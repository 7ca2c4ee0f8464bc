"""What every launcher asks of q, k and v. What its kernel can address beyond that, each launcher checks itself."""

import math

from .reference import TORCH_NAMES


def common_dtype(q, k, v, dtypes: tuple[str, ...]) -> str:
    """The one of `dtypes` that q, k and v have, on one CUDA device, [batch, heads, length, head_dim].

    Raises TypeError or ValueError, naming the tensor and what would be right.
    """
    ours = {f"torch.{TORCH_NAMES[name]}": name for name in dtypes}
    if str(q.dtype) not in ours:
        raise TypeError(f"q is {q.dtype}: the kernel takes {', '.join(ours)}")
    for label, x in (("q", q), ("k", k), ("v", v)):
        if len(x.shape) != 4:
            raise ValueError(f"{label} has shape {tuple(x.shape)}: pass [batch, heads, length, head_dim]")
        if x.shape[3] == 0:
            raise ValueError(f"{label} has shape {tuple(x.shape)}: only lengths may be 0, not head_dim")
        if x.dtype != q.dtype:
            raise TypeError(f"{label} is {x.dtype}, q is {q.dtype}: they must be equal")
        if x.device != q.device or x.device.type != "cuda":
            raise ValueError(f"{label} is on {x.device}: q, k and v must be on one CUDA device")
    return ours[str(q.dtype)]


def is_empty(q, k) -> bool:
    """Whether no kernel has to run, nor could, as there is no query or no key."""
    return 0 in q.shape or 0 in k.shape


def write_blind(o, lse) -> None:
    """The result of queries that see no key, in all of o and lse (which may be None)."""
    o.zero_()
    if lse is not None:
        lse.fill_(-math.inf)


def tma_strides(shape, strides) -> list[int]:
    """The strides in elements; a dimension of one element gets one that TMA accepts, since it is never stepped."""
    found = list(strides)
    for i in reversed(range(len(shape) - 1)):
        if shape[i] == 1:
            found[i] = found[i + 1] * shape[i + 1]
    return found
