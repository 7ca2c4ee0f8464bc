"""What every package uses: atomic writes, version keys, import hooks, entry points, processes, variables."""
