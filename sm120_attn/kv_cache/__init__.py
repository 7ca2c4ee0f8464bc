"""Attention over a KV cache, for serving: decode with keys split over CTAs, contiguous and paged caches.

config, planner: values; kernel, combine: device code; launch, torch_op, api: the host.
"""
