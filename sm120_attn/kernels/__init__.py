"""Device code of all kernels, in the CuTe DSL, and their configs.

The attention kernels are in attention_tma.py and attention_cp_async.py; attention.py has their shared code. It uses:

    scheduler    which tile of queries a CTA works on        mask        which keys a query sees
    pipeline     rings of tiles in shared memory             softmax     running maxima and sums
    mma, ...     operands and MMA instructions (policies)    epilogue    O and LSE to global memory
    inline_ptx   one function for each PTX instruction

Each folder has a config and its kernel: `decode` computes attention over a KV cache, `append` writes to a cache,
`quantize` converts to FP8, and `probe` tests on a GPU the hardware behaviour that the FP8 kernels assume.
"""
