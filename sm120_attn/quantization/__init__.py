"""Host code of `quantize` and `quantize_qkv`: bf16, fp16 or fp32 to FP8, with a scale for each head of each sequence.

api: the public functions; launch: launches from tensors; torch_op: the torch operators.
"""
