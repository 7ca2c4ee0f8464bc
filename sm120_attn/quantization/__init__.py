"""bf16, fp16 or fp32 to FP8, with one scale for each head of each sequence: `quantize` and `quantize_qkv`, on the host.

api: for callers; launch: from tensors to a launch; torch_op: the torch operators.
"""
