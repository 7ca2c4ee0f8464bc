"""Append new keys and values to a KV cache, with rotary embedding."""
