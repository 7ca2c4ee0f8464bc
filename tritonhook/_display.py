"""Notebook: the mixin by which results show themselves in Jupyter. Values do not know reports: the one that a notebook
asks for is looked up by name, only then."""

from __future__ import annotations


class Notebook:
    """A result with a `_repr_html_`."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        from importlib import import_module

        return import_module("tritonhook.report.notebook").fragment(self)  # type: ignore[no-any-return]
