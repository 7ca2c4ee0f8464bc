"""NVFP4 and MXFP8 in plain torch: the bytes that append kernels must write, and the values of these bytes.

NVFP4: a block's scale is the nearest e4m3 value to amax / 6. Values divided by the scale are rounded to the nearest
e2m1 value, ties to even, and are at most 6. TensorRT-LLM's and FlashInfer's kernels do the same, but divide by
approximate reciprocals. MXFP8: the scale is the smallest power of two that is not less than amax / 448, as in those
kernels and in Transformer Engine; the OCP specification rounds the scale down, so that values saturate. A block with a
NaN or an infinite value has the scale NaN, and zeros.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..config import SCALE_COLUMNS

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E4M3_LARGEST, E2M1_LARGEST = 448.0, 6.0
NAN_SCALE = {"nvfp4": 0x7F, "mxfp8": 0xFF}


def quantised(values: Any, kv_dtype: str, descale: Any = None) -> tuple[Any, Any]:
    """Quantise values [..., head_dim]; return bytes and scales. descale: float32 factor of the scales; None is 1."""
    import torch

    blocks = values.float().unflatten(-1, (-1, SCALE_COLUMNS[kv_dtype]))
    factor = torch.ones((), device=values.device) if descale is None else descale[..., None, None]
    largest = blocks.abs().amax(-1, keepdim=True) * (1 / factor)
    if kv_dtype == "nvfp4":
        scales = (largest / E2M1_LARGEST).clamp(max=E4M3_LARGEST).to(torch.float8_e4m3fn)
        inverse = 1 / (scales.float() * factor)
        inverse = torch.where(torch.isfinite(inverse), inverse, 0.0)
        scaled = (blocks * inverse).flatten(-2)
        found = scaled.abs()
        code = torch.zeros_like(found, dtype=torch.uint8)
        for i, (low, high) in enumerate(itertools.pairwise(E2M1)):
            middle = (low + high) / 2
            code += (found >= middle) if i % 2 else (found > middle)
        code |= (scaled.view(torch.int32) >> 31 & 8).to(torch.uint8)
        data, scale_bytes = code[..., ::2] | code[..., 1::2] << 4, scales.view(torch.uint8)
    else:
        bits = (largest / E4M3_LARGEST).view(torch.int32)
        exponents = ((bits + 0x7FFFFF) >> 23).clamp(max=254)
        inverse = ((254 - exponents) << 23).view(torch.float32) * (1 / factor)
        scaled = (blocks * inverse).flatten(-2).clamp(-E4M3_LARGEST, E4M3_LARGEST)
        data, scale_bytes = scaled.to(torch.float8_e4m3fn).view(torch.uint8), exponents.to(torch.uint8)
    wrong = ~torch.isfinite(largest)
    data = data.unflatten(-1, (blocks.shape[-2], -1)).masked_fill(wrong, 0).flatten(-2)
    return data, torch.where(wrong, NAN_SCALE[kv_dtype], scale_bytes).to(torch.uint8).squeeze(-1)


def dequantised(data: Any, scales: Any, kv_dtype: str) -> Any:
    """Convert the values of a cache to float32, exactly, without descales."""
    import torch

    data, scales = data.view(torch.uint8), scales.view(torch.uint8)
    if kv_dtype == "nvfp4":
        signed = torch.tensor([*E2M1, *(-x for x in E2M1)], device=data.device)
        values = signed[torch.stack((data & 15, data >> 4), -1).flatten(-2).long()]
        factors = scales.view(torch.float8_e4m3fn).float()
    else:
        values = data.view(torch.float8_e4m3fn).float()
        factors = torch.exp2(scales.float() - 127)
        factors = torch.where(scales == NAN_SCALE["mxfp8"], torch.nan, factors)
    return values * factors.repeat_interleave(SCALE_COLUMNS[kv_dtype], -1)
