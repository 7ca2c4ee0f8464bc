"""New keys and values into a KV cache, with rotary embedding."""
