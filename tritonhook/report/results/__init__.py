"""The kinds of results, each declared once: its fields, how it is made from a run, and its Summary.

A class's docstring says what it is, then what each field means, as "field: meaning": docs/_cog/schema.py makes the
reference of these. A field that is UNSET by default may be missing: `--save` writes it, `--json` does not, or only some
documents have it.
"""
