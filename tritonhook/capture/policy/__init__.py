"""Policies: which lever each kernel gets when it is compiled, because it won on a GPU. `model` has the values, `file`
reads and writes them, `schema` says what a file must look like."""
