"""The schema of every JSON document that a verb prints or saves: docs/reference/json.md is made of these classes.

A class's docstring says what it is, then what each field means, as "field: meaning". A field with a default may be
missing: `--save` writes it, `--json` does not, or only some documents have it.
"""
