"""bf16, fp16 or fp32 to FP8, with one scale for each head of each sequence, on the device.

api        `quantize` and `quantize_qkv`
launch     from tensors to a launch             torch_op   the torch operators
config     what a kernel is compiled for        kernel     device code
"""
