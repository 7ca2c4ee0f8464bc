"""Verbs as modules: each has a docstring, which is its help, and the functions add_arguments and run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from tritonhook.cli._parser import Parser


def add_verbs(verbs: argparse._SubParsersAction[Parser], package: str, names: Sequence[str], to: str) -> None:
    """Add a parser for each module of the package. to: the attribute of the parsed arguments that becomes its `run`."""
    for name in names:
        module = import_module(f"{package}.{name}")
        text = (module.__doc__ or "").strip()
        sub = verbs.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
        )
        module.add_arguments(sub)
        sub.set_defaults(**{to: module.run})
