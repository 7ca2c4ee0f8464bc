"""Matrix products of tensor cores.

`sums` and `architectures` compute them with the hardware's rounding. `fragments` maps the registers of threads to
matrices, `shared_tiles` the bytes of shared memory. `products` are those of mma and wgmma, `tcgen05` those of sm_100.
"""
