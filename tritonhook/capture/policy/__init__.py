"""Policies: a lever for each kernel and a configuration for each autotuned function, as measured fastest on a GPU and
applied at compile time. `model` has the values, reads and writes them; `schema` checks policy files."""
