"""What every result of a verb is: value, JSON document and schema in one. Each kind has a module in `report/results/`.

A kind's class has its name as the tag, which stands in the document's field `kind`. `of` makes it from the values of a
run, `summary` reads its fields. Sentences are made in `summary` and read by nobody.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from msgspec import to_builtins

from tritonhook._util.schema import Fields, as_schema
from tritonhook.errors import UsageError
from tritonhook.report.summary import Summary, short, visible

T = TypeVar("T")
FORMAT = 1  # of all kinds of documents
_PACKAGE = "tritonhook.report.results"


class Result(Fields, tag_field="kind"):
    """Base of all results. A subclass names its kind: `class Policy(Result, tag="policy")`.

    verbs: the verbs that give it, for the JSON reference, such as "ptxas install`, `uninstall".
    """

    verbs: ClassVar[str]

    def summary(self) -> Summary:
        """The result in brief."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {"format": FORMAT, **to_builtins(self)}


@lru_cache(maxsize=1)
def kinds() -> Mapping[str, type[Result]]:
    """Every kind of result by its tag."""
    for _ in _loaded():
        pass
    return {tag_of(kind): kind for kind in sorted(Result.__subclasses__(), key=lambda kind: kind.verbs)}


@lru_cache(maxsize=1)
def _modules() -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules(import_module(_PACKAGE).__path__))


def _loaded(tag: str = "") -> Iterator[type[Result]]:
    """The kinds, as their modules are loaded: first those that the tag names, for each loads what it tells of."""
    for name in sorted(_modules(), key=lambda name: name not in tag.split()):
        import_module(f"{_PACKAGE}.{name}")
        yield from Result.__subclasses__()


def tag_of(kind: type[Result]) -> str:
    """The kind's name, as documents give it."""
    return str(kind.__struct_config__.tag)


def kind_of(document: Mapping[str, Any]) -> type[Result]:
    """Raises UsageError if the document's kind is missing or not known."""
    name = document.get("kind")
    if not isinstance(name, str):
        raise UsageError(
            "not a result that tritonhook can show: it has no `kind`; give a capture folder, or what a verb wrote with "
            "--save or --json"
        )
    matching = next((kind for kind in _loaded(name) if tag_of(kind) == name), None)
    if matching is None:
        raise UsageError(
            f"a document of kind {short(name, 40)!r}, for which this version has no report; update tritonhook if a "
            "newer version wrote it"
        )
    return matching


def read_result(document: Mapping[str, Any]) -> Result:
    """A document as its result. Raises UsageError if it does not fit the schema of its kind."""
    kind = kind_of(document)
    version = document.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise UsageError(f"its format is {version}, this version reads up to {FORMAT}; update tritonhook")
    if version != FORMAT:
        raise UsageError(f"damaged, or of another version: format: expected {FORMAT}")
    try:
        return as_schema(document, kind)
    except ValueError as error:
        raise UsageError(f"damaged, or of another version: {error}") from None


def fitting(make: Callable[[], T]) -> T:
    """What a result's summary or page is made of that was read. Raises UsageError for what no schema says: a row that
    names a file that is not listed, sides that are missing."""
    try:
        return make()
    except (LookupError, ValueError, ArithmeticError, RecursionError) as error:
        raise UsageError(f"damaged: its parts do not fit together: {short(visible(repr(error)), 200)}") from None
