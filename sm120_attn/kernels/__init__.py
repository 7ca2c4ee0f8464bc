"""Device code of all kernels, in the CuTe DSL, and the configs that they are compiled for.

Attention is in attention_tma.py and attention_cp_async.py; what they share is in attention.py. Around it:

    scheduler    which tile of queries a CTA works on        mask        which keys a query sees
    pipeline     rings of tiles in shared memory             softmax     running maxima and sums
    mma, ...     operands and MMA instructions (policies)    epilogue    O and LSE to global memory
    inline_ptx   one function for each PTX instruction

Folders have a config (values) and the kernel of it: `decode` over a KV cache, `append` to one, `quantize` to FP8, and
`probe`, with which the self-test asks a GPU what the FP8 kernels assume.
"""
