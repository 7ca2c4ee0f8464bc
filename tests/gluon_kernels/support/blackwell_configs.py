"""Configurations of the Blackwell attention that several tests share."""

from gluon_kernels.blackwell.config import AttentionConfig

CONFIGS = [
    AttentionConfig(),
    AttentionConfig(packed_row_sum=True),
    AttentionConfig(dtype="fp8e4nv", head_dim=128, ragged=True, out="bf16"),
    AttentionConfig(dtype="bf16", head_dim=64, causal=True),
    AttentionConfig(dtype="fp16", head_dim=128, packed_row_sum=True, causal=True, ragged=True),
]


def describe(config: AttentionConfig) -> str:
    causal = ("causal" if config.causal else "full") + ("-ragged" if config.ragged else "")
    return f"{config.dtype}-{config.head_dim}-{causal}-{'packed' if config.packed_row_sum else 'scalar'}"
