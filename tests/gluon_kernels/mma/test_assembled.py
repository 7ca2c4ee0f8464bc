"""The mma.sync attention, assembled by Triton."""

import re

import pytest

from gluon_kernels.mma.config import BASE_NAME, NAMES, MmaConfig, default_config
from gluon_kernels.offline import compile_offline

COMPILED = [
    (80, MmaConfig()),
    (90, default_config(90, "bf16", 128, None)),
    (90, default_config(90, "fp16", 64, "top-left")),
    (120, default_config(120, "fp8e4nv", 128, "bottom-right")),
]


@pytest.mark.parametrize(("arch", "config"), COMPILED, ids=lambda x: str(getattr(x, "dtype", x)))
def test_it_assembles(arch, config, triton_cache):
    from tritonhook.cubin.image import Cubin

    kernel = compile_offline(config, arch)
    ptx = kernel.asm["ptx"]
    assert re.search(rf"^\.target sm_{arch}a?\b", ptx, re.MULTILINE)
    assert re.search(r"mma\.sync\.aligned\.m16n8k(16|32)", ptx) and "cp.async.cg.shared.global" in ptx
    assert Cubin.from_bytes(kernel.asm["cubin"]).kernels == (config.name,)
    # The buffers of the config, and at most a little scratch beside them.
    assert config.shared_bytes <= kernel.metadata.shared <= config.shared_bytes + 1024


def test_a_name_is_part_of_the_compile_hash(triton_cache):
    """Renaming through `repr` alone would hit the cache entry of the other name."""

    plain, other = (compile_offline(MmaConfig(head_dim=64, keep_q=True, name=name)) for name in NAMES)
    assert plain.hash != other.hash
    assert (plain.metadata.name, other.metadata.name) == (BASE_NAME, f"cutlass_{BASE_NAME}")
