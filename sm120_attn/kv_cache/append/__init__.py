"""Host code that appends new keys and values to a cache, before the attention of the same call."""
