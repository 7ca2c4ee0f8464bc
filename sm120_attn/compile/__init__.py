"""From a config to a compiled kernel: what it takes, how it is compiled, where it is kept."""
