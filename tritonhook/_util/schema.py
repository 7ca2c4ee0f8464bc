"""Read JSON and TOML documents and check them against a schema.

Schemas are msgspec Structs in modules named `schema`, in the package that they describe; the JSON reference is
generated from them. Import this only where documents are read, as msgspec is slow to import.

JSON is read strictly: no NaN or Infinity, no lone surrogates, no integer beyond 64 bits in a number field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from tritonhook._util.versions import VERSION

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Tell mypy that subclasses are frozen, as msgspec makes them."""
        return lambda cls: cls


T = TypeVar("T")
_LARGEST = 1 << 53  # the largest integer that every JSON reader represents exactly
FILE_NAME = r"\A(?!\.{1,2}\Z)[^/\x00]+\Z"
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=_LARGEST)]
Whole = Annotated[int, Meta(ge=-_LARGEST, le=_LARGEST)]
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
Version = Annotated[str, Meta(pattern=rf"\A{VERSION}\Z")]
FileName = Annotated[str, Meta(pattern=FILE_NAME)]  # a plain name, so that it cannot lead out of its folder
_SHA256, _HASH, _ARCH, _DATE = r"\A[0-9a-f]{64}\Z", r"\A[0-9a-f]{16}\Z", r"\Asm_\d{2,3}[a-z]?\Z", r"\A\d{4}-\d\d-\d\d\Z"
Sha256 = Annotated[str, Meta(pattern=_SHA256)]
Hash = Annotated[str, Meta(pattern=_HASH)]
Arch = Annotated[str, Meta(pattern=_ARCH)]
Date = Annotated[str, Meta(pattern=_DATE)]
_NO_NUL = r"\A[^\x00]*\Z"
Word = Annotated[str, Meta(pattern=_NO_NUL)]  # an argument of a command line
_PATTERNS = {
    rf"\A{VERSION}\Z": "a version such as 12.8.93",
    FILE_NAME: "the name of a file in the same folder",
    _SHA256: "a hash of 64 hex digits",
    _HASH: "a hash of 16 hex digits",
    _ARCH: "an architecture such as sm_90a",
    _DATE: "a date such as 2026-11-22",
    _NO_NUL: "text without a NUL",
}
MOST_JSON = 1 << 25  # bytes per file
_MOST_JSON_VALUES = 1 << 21  # values per file; each takes up to 200 bytes of memory
MOST_TOML = 1 << 24  # bytes per file; Python parses about 4 MB of TOML per second
_MOST_VALUES = 1 << 20  # values per TOML file
_MOST_PARTS = 16  # parts of a TOML key such as a.b.c; parsing takes time quadratic in them
_JSON_TEXT = re.compile(rb'"[^"]*"?')
_TEXT = re.compile(rb'"[^"\n]*"?|\'[^\'\n]*\'?')
_DOTTED = re.compile(rb'(?<![\w"\-.])(?:[\w"-]+\.){%d}' % _MOST_PARTS)
_WORDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list"}
_WORDS |= {"object": "an object", "null": "null"}


def one_of(texts: Iterable[str]) -> Meta:
    """Make the constraint that a text is one of `texts`."""
    return Meta(pattern=rf"\A(?:{'|'.join(map(re.escape, texts))})\Z")


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Fields(msgspec.Struct, frozen=True):
    """Base class of schemas. Unknown fields in a document are ignored: a later version may have added them."""


class DocumentError(ValueError):
    """A document does not fit its schema, or cannot be parsed. The text names the field and the expected type."""


class NewerFormat(Exception):
    """A document's format is newer than this version of tritonhook. The text has the format and the remedy."""


def read_json(data: bytes | str, shape: type[T]) -> T:
    """Parse JSON into a value of a schema. Raises DocumentError, also if bytes or values exceed their limit."""
    _check_json(data)
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise DocumentError(_sentence(str(error))) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(f"not JSON: {error}") from None
    except RecursionError:
        raise DocumentError("nested too deep") from None


def _check_json(data: bytes | str) -> None:
    """Check that JSON can be parsed within the memory limit. Raises DocumentError."""
    if len(data) > MOST_JSON:
        raise DocumentError(f"{len(data):,} bytes, more than the {MOST_JSON:,} that are read")
    if len(data) <= _MOST_JSON_VALUES:
        return
    signs = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if _values(signs) > _MOST_JSON_VALUES:
        signs = _JSON_TEXT.sub(b"", signs.replace(rb"\\", b"").replace(rb"\"", b""))
    if (values := _values(signs)) > _MOST_JSON_VALUES:
        raise DocumentError(f"about {values:,} values, more than the {_MOST_JSON_VALUES:,} that are read")


def _values(signs: bytes) -> int:
    return sum(map(signs.count, (b",", b"[", b"{")))


def read_toml(data: bytes, shape: type[T], newest: int) -> T:
    """Parse TOML into a value of a schema. newest: the newest `format` number that this version reads. Raises
    DocumentError and NewerFormat."""
    check_toml(data)
    try:
        document = msgspec.toml.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(str(error)) from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise DocumentError(str(error).partition(";")[0]) from None
    except RecursionError:
        raise DocumentError("nested too deep") from None
    format_number = document.get("format")
    if isinstance(format_number, int) and format_number > newest:
        raise NewerFormat(f"its format is {format_number}, this version reads {newest}; update tritonhook")
    return as_schema(document, shape)


def check_toml(data: bytes) -> None:
    """Check that TOML can be parsed within seconds and within the memory limit. Raises DocumentError."""
    if len(data) > MOST_TOML:
        raise DocumentError(f"{len(data):,} bytes, more than the {MOST_TOML:,} that are read")
    signs = data.replace(rb"\\", b"").replace(rb"\"", b"")
    signs = _TEXT.sub(b'""', signs).translate(None, b" \t")
    if (values := sum(map(signs.count, (b"=", b",", b".", b"[", b"{")))) > _MOST_VALUES:
        raise DocumentError(f"about {values:,} values, more than the {_MOST_VALUES:,} that are read")
    if _DOTTED.search(signs):
        raise DocumentError(f"a key has more than {_MOST_PARTS} parts")


def as_schema(document: Any, shape: type[T]) -> T:
    """Convert JSON values to a schema's value. Raises DocumentError."""
    try:
        return msgspec.convert(document, shape, str_keys=True)  # in JSON, integer keys are text
    except msgspec.ValidationError as error:
        raise DocumentError(_sentence(str(error))) from None
    except RecursionError:
        raise DocumentError("nested too deep") from None


def like(value: object, shape: type[T], **given: Any) -> T:
    """Make a schema's value from an object with attributes of the same names. A keyword argument replaces the field of
    its name; UNSET omits that field. Use it only for values of this program, as constraints are not checked."""
    if not given:
        return msgspec.convert(value, shape, from_attributes=True)
    told = {}
    for name, encoded in _encoded(cast("type[msgspec.Struct]", shape)).items():
        each = given[name] if name in given else getattr(value, name, msgspec.UNSET)
        if each is not msgspec.UNSET:
            told[encoded] = each
    return msgspec.convert(told, shape, from_attributes=True)


@functools.cache
def _encoded(shape: type[msgspec.Struct]) -> dict[str, str]:
    """Map the names of a schema's fields to their names in documents. The result is cached, because msgspec reads the
    annotations at each call."""
    return {it.name: it.encode_name for it in msgspec.structs.fields(shape)}


def _sentence(text: str) -> str:
    """Put the path first in msgspec's message: "kernels[...].seen: expected a list, got text"."""
    what, _, place = text.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{place}.{missing[1]} is missing".lstrip(".")
    for pattern, words in _PATTERNS.items():
        what = what.replace(f"`str` matching regex {pattern!r}", words)
    if choice := re.search(r"`str` matching regex '\\\\A\(\?:(.*)\)\\\\Z'", what):
        what = what.replace(choice[0], f"one of {', '.join(choice[1].replace(chr(92), '').split('|'))}")
    what = re.sub(r"`([a-z |]+)`", lambda match: " or ".join(_WORDS.get(w, w) for w in match[1].split(" | ")), what)
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else f"{what[:1].lower()}{what[1:]}"
