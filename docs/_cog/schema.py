"""Write the reference of the JSON documents from the results (tritonhook/report/results)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from msgspec import inspect


def documents() -> str:
    """Write a section for each kind of document: a list of its fields, then a list for each kind of object in it."""
    from tritonhook.report.result import kinds

    described: dict[str, Any] = {}
    parts = (part for kind, result in kinds().items() for part in _section(result.verbs, kind, result, described))
    return "\n\n".join(part for part in parts if part)


def _section(verb: str, kind: str, schema: Any, described: dict[str, Any]) -> Iterator[str]:
    yield f"## `{verb}`"
    yield f"`kind` is `{kind}`. {_parts(schema)[0]}"
    waiting: list[Any] = []
    yield _fields(schema, waiting)
    while waiting:
        inner = waiting.pop(0)
        if inner.__name__ not in described:
            described[inner.__name__] = inner
            yield f"### {inner.__name__}"
            yield _parts(inner)[0]
            yield _fields(inner, waiting)
        assert described[inner.__name__] is inner, f"two schemas are called {inner.__name__}"


def _fields(schema: Any, waiting: list[Any]) -> str:
    """Write a line for each field, or for neighbouring fields of one type and meaning. waiting: gets their classes."""
    meanings = _parts(schema)[1]
    lines: list[tuple[list[str], str]] = []
    for field in inspect.type_info(schema).fields:  # type: ignore[attr-defined]
        if field.encode_name in ("format", "kind") and isinstance(field.type, inspect.LiteralType):
            continue
        optional = "" if field.required or is_dataclass(schema) else " *(may be missing)*"
        meaning = meanings.get(field.encode_name, "")
        text = _type(field.type, waiting) + optional + (f": {meaning}" if meaning else "")
        if not lines or lines[-1][1] != text:
            lines.append(([], text))
        lines[-1][0].append(f"`{field.encode_name}`")
    return "\n".join(f"- {', '.join(names)} - {text}" for names, text in lines)


def _type(info: Any, waiting: list[Any]) -> str:
    if isinstance(info, (inspect.StructType, inspect.DataclassType)):
        waiting.append(info.cls)
        return f"[{info.cls.__name__}](#{info.cls.__name__.lower()})"
    if isinstance(info, inspect.UnionType):
        return " or ".join(_type(one, waiting) for one in info.types)
    if isinstance(info, inspect.DictType):
        value = _type(info.value_type, waiting)
        return f"object of ({value})" if " or " in value else f"object of {value}"
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)):
        item = _type(info.item_type, waiting)
        return f"list of ({item})" if " or " in item else f"list of {item}"
    if isinstance(info, inspect.NamedTupleType):
        rows = inspect.type_info(info.cls)
        return f"[{', '.join(_type(one.type, waiting) for one in rows.fields)}]"  # type: ignore[attr-defined]
    if isinstance(info, inspect.TupleType):
        return f"[{', '.join(_type(one, waiting) for one in info.item_types)}]"
    if isinstance(info, inspect.EnumType):
        return " or ".join(f"`{one.value}`" for one in info.cls)
    if isinstance(info, inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in info.values)
    return _NAMES[type(info)]


_NAMES: dict[Any, str] = {
    inspect.StrType: "text",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.BoolType: "flag",
    inspect.NoneType: "null",
    inspect.AnyType: "any",
}


def _parts(schema: Any) -> tuple[str, dict[str, str]]:
    """Split a docstring into the text about the class, and the meaning of each field ("field, field: meaning").

    The docstring of a base class describes the fields of this base class.
    """
    meanings: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if base.__doc__ and _names(base):
            text, own = _read(base)
            meanings |= own
    return text, meanings


def _names(schema: Any) -> tuple[str, ...]:
    """Return the names of the fields of a schema, or of a dataclass that is part of a document."""
    return tuple(getattr(schema, "__struct_encode_fields__", ()) or getattr(schema, "__dataclass_fields__", ()))


def _read(schema: Any) -> tuple[str, dict[str, str]]:
    text = re.sub(r"\bNone\b", "null", " ".join(schema.__doc__.split()))
    names = "|".join(_names(schema))
    pieces = re.split(rf"(?:^|(?<=[.;] ))((?:(?:{names}), )*(?:{names})): ", text)
    meanings: dict[str, str] = {}
    for fields, meaning in zip(pieces[1::2], pieces[2::2], strict=True):
        meanings |= dict.fromkeys(fields.split(", "), meaning.strip().rstrip("."))
    return pieces[0].strip(), meanings
