"""Host code for attention over a KV cache, for serving: contiguous and paged caches, and appending to them.

planner computes the values of a launch; call, launch, torch_op and api make launches from tensors. The kernels are in
kernels/.
"""
