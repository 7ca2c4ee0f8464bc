"""What `python -m sm120_attn` runs: comparison with float64, timing, instruction counts, the self-test."""
