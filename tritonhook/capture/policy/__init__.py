"""Policies: which lever each kernel gets when it is compiled, because it won on a GPU, and which configuration an
autotuned function gets. `model` has the values, and reads and writes them; `schema` says what a file must look like."""
