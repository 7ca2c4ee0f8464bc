"""Device code of the attention kernels, in the CuTe DSL.

The kernels are in attention_tma.py and attention_cp_async.py; what they share is in attention.py. Around it:

    scheduler    which tile of queries a CTA works on        mask        which keys a query sees
    pipeline     rings of tiles in shared memory             softmax     running maxima and sums
    mma, ...     operands and MMA instructions (policies)    epilogue    O and LSE to global memory
    inline_ptx   one function for each PTX instruction
"""

from .mma_16bit import Mma16
from .mma_fp8 import Mma8, Mma8Portable, Mma8StandIn
from .mma_fp8_cache import MmaFp8Cache


def policy_of(config):
    """Choose the MMA policy for a config's dtype and target."""
    if getattr(config, "kv_dtype", ""):
        return MmaFp8Cache(config)
    if not config.fp8:
        return Mma16(config)
    if config.fp8_mma == "portable":
        return Mma8Portable(config)
    if config.arch == "sm_90a":  # has neither byte-wise ldmatrix nor block-scaled MMA
        return Mma8StandIn(config)
    return Mma8(config, block_scaled=config.fp8_mma == "native")
