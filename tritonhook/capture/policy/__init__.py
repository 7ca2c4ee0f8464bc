"""Policies: the fastest lever (see levers.py) for each kernel, and the fastest configuration for each autotuned
function. They were measured on a GPU and are applied at compile time. `model` defines, reads and writes policies;
`schema` checks policy files."""
