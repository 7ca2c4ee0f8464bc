"""Helpers of every package: atomic writes, version keys, import hooks, entry points, processes, variables."""
