"""Policies: the lever that won on a GPU for each kernel, and the configuration for each autotuned function, both
applied at compile time. `model` has the values, and reads and writes them; `schema` checks the files."""
