"""New keys and values behind those of a cache, with rotary embedding, before the attention of the same call.

config: values; kernel: device code; call, launch, torch_op: the host.
"""
