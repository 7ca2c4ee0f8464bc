"""New keys and values behind those of a cache, before the attention of the same call: the host."""
