"""The mixin by which results show themselves in Jupyter.

Results know nothing of `tritonhook.report`: it is looked up by name when a notebook asks, and never before.
"""

from __future__ import annotations


class Notebook:
    """A result with a `_repr_html_`."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        from importlib import import_module

        return import_module("tritonhook.report.render.notebook").fragment(self)  # type: ignore[no-any-return]
