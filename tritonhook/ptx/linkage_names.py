"""Rename functions in the DWARF bytes of a PTX module that was compiled for debuggers.

`.debug_info` contains the linkage name of each function (`nvcc -G`, clang). In a module with `.target ..., debug`,
ptxas keeps the variables of an entry alive if it finds the entry's name there, and makes different code if it does not.
A name of a different length moves the bytes after it, so lengths and references in `.debug_info` and offsets in
`.debug_pubnames` and `.debug_pubtypes` are corrected. Names of the source functions stay.
"""

from __future__ import annotations

import io
import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from tritonhook.errors import PtxError
from tritonhook.ptx.tokens import Span, Tokens

_INFO, _ABBREVIATIONS, _STRINGS = ".debug_info", ".debug_abbrev", ".debug_str"
_OFFSETS = (".debug_pubnames", ".debug_pubtypes")
_SECTION = re.compile(r"\.section\s+(\.[\w.]+)\s*\{([^{}]*)\}", re.ASCII)
_WORD = re.compile(r"[^\s,]+")
_SIZES = {".b8": 1, ".b16": 2, ".b32": 4, ".b64": 8}
_VALUE = re.compile(r"(?P<base>\.[\w.]+\+)?(?P<number>\d+)", re.ASCII)
_LINKAGE = ("DW_AT_linkage_name", "DW_AT_MIPS_linkage_name")
_RELATIVE = frozenset({"DW_FORM_ref1", "DW_FORM_ref2", "DW_FORM_ref4", "DW_FORM_ref8", "DW_FORM_ref_udata"})
# On damaged bytes, pyelftools raises these exceptions besides its own.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)

Edit = tuple[Span, str]


def linkage_names(tokens: Tokens) -> list[str]:
    """List the linkage names of the functions in the debug bytes, in order. Raises PtxError if the bytes cannot be
    read."""
    return [name.text for name in _names(_entries(tokens))]


def linkage_edits(tokens: Tokens, changes: Mapping[str, str]) -> list[Edit]:
    """Compute the edits that make linkage names follow renamed symbols: spans of the text, with their new text. Empty
    for a module without `.target ..., debug`. Raises PtxError if the bytes cannot be read."""
    entries = list(_entries(tokens))
    moved = [(name, changes[name.text]) for name in _names(entries) if name.text in changes]
    if not moved:
        return []
    info = _Section.read(tokens.code, _INFO)
    shift = _Shift([(name.offset + len(name.text), len(new) - len(name.text)) for name, new in moved])
    return [
        *(edit for name, new in moved for edit in info.spell(name, new)),
        *_lengths_and_references(entries, info, shift),
        *(edit for section in _OFFSETS for edit in _offsets(_Section.read(tokens.code, section), shift)),
    ]


class _Value(NamedTuple):
    """One value of a section. span: where its number stands in the text; None for a label, whose value ptxas
    computes."""

    number: int
    size: int
    span: Span | None


class _Name(NamedTuple):
    """A linkage name and its offset in `.debug_info`."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class _Section:
    """One section: its values by offset, in order, and its bytes, where each label is 0."""

    name: str
    code: str
    values: Mapping[int, _Value]
    data: bytes

    @classmethod
    def read(cls, code: str, name: str) -> _Section:
        bodies = [match for match in _SECTION.finditer(code) if match[1] == name]
        if len(bodies) > 1:
            raise _unreadable(f"there are {len(bodies)} sections {name}")
        words = _WORD.finditer(code, *bodies[0].span(2)) if bodies else iter(())
        values: dict[int, _Value] = {}
        size = offset = 0
        for match in words:
            if match[0].endswith(":"):
                continue
            if match[0] in _SIZES:
                size = _SIZES[match[0]]
                continue
            number = _VALUE.fullmatch(match[0])
            if not size or (number and len(number["number"]) > 20):
                raise _unreadable(f"{match[0][:40]!r} in {name} is not a value")
            span = Span(number["number"], match.start() + number.start("number")) if number else None
            values[offset] = _Value(int(span.text) if span else 0, size, span)
            offset += size
        data = b"".join((v.number % (1 << 8 * v.size)).to_bytes(v.size, "little") for v in values.values())
        return cls(name, code, values, data)

    def change(self, offset: int, size: int, number: int) -> Iterator[Edit]:
        """Yield the edit that replaces the number at an offset; yield nothing for a label."""
        value = self.values.get(offset)
        if value is None or value.size != size:
            raise _unreadable(f"{self.name} has no value of {size} bytes at offset {offset}")
        if value.span is not None:
            yield value.span, str(number)

    def spell(self, name: _Name, new: str) -> Iterator[Edit]:
        """Yield the edits that replace the bytes of a name; bytes are added or removed at its end."""
        values = [self.values.get(name.offset + i) for i in range(len(name.text) + 1)]
        spans = [value.span for value in values if value is not None and value.span is not None]
        if len(spans) != len(values):
            raise _unreadable(f"the name {name.text!r} is not spelled byte by byte")
        *letters, end = spans
        following = letters[1] if len(letters) > 1 else end
        separator = "\n.b8 " if "." in self.code[letters[0].end : following.start] else ","
        kept = min(len(letters), len(new))
        for span, letter in zip(letters[: kept - 1], new, strict=False):
            yield span, str(ord(letter))
        begin, last = letters[kept - 1], letters[-1 if len(new) <= len(letters) else kept - 1]
        rest = separator.join(str(ord(letter)) for letter in new[kept - 1 :])
        yield Span(self.code[begin.start : last.end], begin.start), rest


class _Shift:
    """Computes how far a byte of `.debug_info` moves: the sum of the changes in length of all names before it."""

    def __init__(self, changes: list[tuple[int, int]]) -> None:
        ordered = sorted(changes)
        self.places = [place for place, _ in ordered]
        self.sums = [0, *accumulate(change for _, change in ordered)]

    def __call__(self, offset: int) -> int:
        return self.sums[bisect_left(self.places, offset)]


def _names(entries: Iterable[tuple[Any, Any]]) -> Iterator[_Name]:
    for _, entry in entries:
        if entry.tag != "DW_TAG_subprogram":
            continue
        values = [entry.attributes[key] for key in (*_LINKAGE, "DW_AT_name") if key in entry.attributes][:1]
        for attribute in values:
            if attribute.form != "DW_FORM_string":
                raise _unreadable(f"names are in {_STRINGS}")
            yield _Name(attribute.value.decode("utf-8", "replace"), attribute.offset)


def _lengths_and_references(entries: Iterable[tuple[Any, Any]], info: _Section, shift: _Shift) -> Iterator[Edit]:
    begun: set[int] = set()
    for unit, entry in entries:
        start = unit.cu_offset
        if start not in begun:
            begun.add(start)
            length = unit["unit_length"]
            yield from info.change(start, 4, length + shift(start + 4 + length) - shift(start))
        for attribute in entry.attributes.values():
            relative = attribute.form in _RELATIVE
            if not relative and attribute.form != "DW_FORM_ref_addr":
                continue
            target = attribute.raw_value + (start if relative else 0)
            moved = attribute.raw_value + shift(target) - (shift(start) if relative else 0)
            size = info.values[attribute.offset].size if attribute.offset in info.values else 0
            if moved != attribute.raw_value:
                yield from info.change(attribute.offset, size, moved)


def _offsets(section: _Section, shift: _Shift) -> Iterator[Edit]:
    """Yield the edits of the offsets in a table of names. A unit of the table begins with its length, its version, and
    the begin and the size of the described unit of `.debug_info`. The offset and the name of each entry follow; an
    offset of 0 ends the unit."""
    at = 0
    while at < len(section.data):
        begin, size = struct.unpack_from("<II", section.data, at + 6)
        yield from section.change(at + 6, 4, begin + shift(begin))
        yield from section.change(at + 10, 4, size + shift(begin + size) - shift(begin))
        at += 14
        while place := int.from_bytes(section.data[at : at + 4], "little"):
            yield from section.change(at, 4, place + shift(begin + place) - shift(begin))
            at = section.data.index(0, at + 4) + 1
        at += 4


def _entries(tokens: Tokens) -> Iterator[tuple[Any, Any]]:
    """Yield each unit and entry of `.debug_info`; nothing for a module that was not compiled for debuggers."""
    if "debug" not in tokens.options:
        return
    info, abbreviations = (_Section.read(tokens.code, name).data for name in (_INFO, _ABBREVIATIONS))
    if not info:
        return
    try:
        from elftools.common.exceptions import DWARFError, ELFError
        from elftools.construct import ConstructError
        from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
    except ImportError:
        raise PtxError(
            "a rename in a module with `.target ..., debug` needs pyelftools; pip install pyelftools"
        ) from None
    names = DWARFInfo.__init__.__code__.co_varnames[2 : DWARFInfo.__init__.__code__.co_argcount]
    sections = {"debug_info_sec": (_INFO, info), "debug_abbrev_sec": (_ABBREVIATIONS, abbreviations)}
    given = {
        name: DebugSectionDescriptor(io.BytesIO(data), section, 0, len(data), 0)
        for name, (section, data) in sections.items()
    }
    config = DwarfConfig(little_endian=True, machine_arch="", default_address_size=8)
    try:
        for unit in DWARFInfo(config, **(dict.fromkeys(names) | given)).iter_CUs():
            for entry in unit.iter_DIEs():
                if entry.tag is not None:
                    yield unit, entry
    except (DWARFError, ELFError, ConstructError, *_DAMAGE) as error:
        raise _unreadable(f"{type(error).__name__}: {error}") from None


def _unreadable(why: str) -> PtxError:
    return PtxError(
        f"the name in the module's debug information cannot be changed: {why}; compile without -G, or keep the name"
    )
