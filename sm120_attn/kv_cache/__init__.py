"""Attention over a KV cache, for serving, on the host: contiguous and paged caches, and appending to them.

planner: values; call, launch, torch_op, api: from tensors to launches. The kernels are in kernels/.
"""
