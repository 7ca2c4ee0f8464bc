"""Parts of emulate.py."""
