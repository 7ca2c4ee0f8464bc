"""Host code for attention over a KV cache, for serving: contiguous and paged caches, and appending to them.

planner chooses the kernel and its parameters; call, launch, torch_op and api make launches from tensors. The kernels
are in ../kernels/.
"""
