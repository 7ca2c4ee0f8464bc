"""Policies: which lever each kernel gets when it is compiled, because it won on a GPU, and which configuration an
autotuned function gets (`pins`). `model` has the values, `file` reads and writes them, `schema` says what a file must
look like."""
