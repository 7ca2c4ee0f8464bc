"""Pages of saved results: one function per kind of JSON document, found by its `kind` or, in older ones, its fields."""
