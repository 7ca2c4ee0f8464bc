"""Attention of few queries over a KV cache, with keys split over CTAs."""
