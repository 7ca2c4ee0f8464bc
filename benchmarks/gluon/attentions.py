"""Every attention of gluon_kernels as it is launched by default, for other benchmarks: its target and its PTX.

mma.sync and Hopper's for sm_90a, Blackwell's for sm_100a: the default config of each dtype, head_dim and mask at 4096
queries and keys. Targets are named as those of timing/targets/ab_targets.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

LENGTH = 4096
DTYPES = {"": "bf16", "_fp8": "fp8e4nv"}
HEAD_DIMS = {"mma": (64, 128, 256), "hopper": (64, 128, 256), "blackwell": (64, 128)}
ARCHITECTURES = {"mma": 90, "hopper": 90, "blackwell": 100}


def subjects() -> Iterator[tuple[str, str, str, int, bool]]:
    """(target, kernel, dtype, head_dim, causal)"""
    for kernel, head_dims in HEAD_DIMS.items():
        for tag, dtype in DTYPES.items():
            for head_dim in head_dims:
                for causal in (False, True):
                    yield f"gluon_{kernel}{tag}_d{head_dim}{'_causal' * causal}", kernel, dtype, head_dim, causal


def compiled(kernel: str, dtype: str, head_dim: int, causal: bool, ptx_version: int) -> str:
    """The PTX of the default config under a name without the word."""
    from gluon_kernels.blackwell import config as blackwell
    from gluon_kernels.hopper import config as hopper
    from gluon_kernels.mma import config as mma
    from gluon_kernels.offline import compile_offline

    arch, mask = ARCHITECTURES[kernel], "top-left" if causal else None
    if kernel == "blackwell":
        ours = blackwell.default_config(arch, dtype, head_dim, causal=causal, seqlen_q=LENGTH, seqlen_k=LENGTH)
    else:
        ours = {"mma": mma, "hopper": hopper}[kernel].default_config(arch, dtype, head_dim, mask, LENGTH)
    built = compile_offline(replace(ours, name=f"attention_{kernel}_fwd"), arch, {"ptx_version": ptx_version})
    return built.asm["ptx"].rstrip("\0")
