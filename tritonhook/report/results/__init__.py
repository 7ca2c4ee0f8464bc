"""The kinds of results, each declared once: its fields, how a run fills them, and its Summary.

A class's docstring first names the thing, then each field's meaning, as "field: meaning": docs/_cog/schema.py makes the
JSON reference from these. A field whose default is UNSET may be absent: `--save` writes it and `--json` does not, or
only some documents have it.
"""
