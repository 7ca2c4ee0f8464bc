"""The subcommands of `python -m sm120_attn`: comparison with float64, timing, instruction counts, the self-test."""
