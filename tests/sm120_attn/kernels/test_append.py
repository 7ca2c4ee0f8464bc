"""The append kernel: which configs it has. What it writes: test_emulated_checks.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sm120_attn.kernels.append.config import AppendConfig, why_not


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arch": "sm_80"}, "arch 'sm_80': compiled for sm_120a"),
        ({"dtype": "fp32"}, "dtype 'fp32': must be bf16 or fp16"),
        ({"head_dim": 24}, "head_dim 24: 32 to 256 in steps of 8"),
        ({"kv_dtype": "e5m2"}, "kv_dtype 'e5m2': must be e4m3"),
        ({"kv_dtype": "e4m3", "head_dim": 40}, "head_dim 40 with a cache in e4m3: must be a multiple of 16"),
        ({"rotary": "neox"}, "rotary 'neox': must be half, interleaved"),
        ({"table_dtype": "fp32"}, "table_dtype 'fp32': must be fp32 with rotary"),
    ],
)
def test_what_cannot_be_built_says_why(changed: dict, said: str) -> None:
    assert str(why_not(replace(AppendConfig(), **changed))).startswith(said)
