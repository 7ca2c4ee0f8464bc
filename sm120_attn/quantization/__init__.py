"""bf16, fp16 or fp32 to FP8, with one scale for each head of each sequence."""
