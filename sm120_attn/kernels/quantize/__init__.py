"""Convert bf16, fp16 or fp32 to FP8."""
