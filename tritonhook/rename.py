"""Entry renaming: add a prefix, strip a word, or map names. Works on Ptx values; Triton's cache belongs
to ptx_capture."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tritonhook.errors import PtxError, UsageError
from tritonhook.ptx.module import IDENTIFIER, Ptx

TRIGGER = "cutlass"  # what ptxas looks for in a function's own name, in lower case only
CONTROL = "cutlasz"  # as long as the trigger, and ptxas does not know it
PREFIX = f"{TRIGGER}_"


@runtime_checkable
class Rewrite(Protocol):
    """A pure change of one PTX module. `key` names the change; equal keys must mean equal changes."""

    @property
    def key(self) -> str: ...

    def apply(self, ptx: Ptx) -> Ptx: ...


@dataclass(frozen=True, slots=True)
class Rename:
    """How entries are renamed: by `mapping` where it has the name, else `strip` first and then `prefix`.

    prefix: put in front of a name that does not have it yet, e.g. "cutlass_".
    strip: remove this word, with one underscore beside it, e.g. "cutlass".
    mapping: exact old name -> new name, as pairs or as a Mapping; kept as pairs.
    entry: rename only this entry; None means all of them.
    """

    prefix: str = ""
    strip: str = ""
    mapping: tuple[tuple[str, str], ...] = ()
    entry: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mapping", _pairs(self.mapping))
        for field, value in (("prefix", self.prefix), ("strip", self.strip), ("entry", self.entry or "")):
            if not isinstance(value, str):
                raise UsageError(f"{field}={value!r}: give it as text, e.g. {field}='cutlass'")
        if not (self.prefix or self.strip or self.mapping):
            raise UsageError("a rename needs a prefix, a word to strip, or a mapping of names")
        if self.strip and self.strip in self.prefix:
            raise UsageError(f"cannot strip {self.strip!r} and add the prefix {self.prefix!r} at the same time")
        for name in (f"{self.prefix}x", *(new for _, new in self.mapping)):
            if not IDENTIFIER.fullmatch(name) or name.startswith("%"):
                shown = self.prefix if name == f"{self.prefix}x" else name
                raise PtxError(
                    f"{shown!r} cannot start or be a PTX name: use letters, digits, _ and $, and no digit in front"
                )

    @property
    def key(self) -> str:
        mapping = sorted(dict(self.mapping).items())
        parts = {"prefix": self.prefix, "strip": self.strip, "mapping": mapping, "entry": self.entry}
        return "rename-1:" + json.dumps({name: value for name, value in parts.items() if value}, sort_keys=True)

    def new_name(self, name: str) -> str:
        """The name an entry gets; `name` itself where nothing applies."""
        exact = dict(self.mapping).get(name)
        if exact is not None:
            return exact
        if self.strip and self.strip in name:
            name = strip_word(name, self.strip)
        if self.prefix and not name.startswith(self.prefix):
            name = self.prefix + name
        return name

    def other_name(self, name: str) -> str:
        """The new name of `name`. Raises UsageError if it is the old one."""
        new = self.new_name(name)
        if new != name:
            return new
        if self.strip and not self.prefix:
            remedy = f"it has no {self.strip!r} to remove; leave --strip out, or choose another word"
        else:
            remedy = "choose another prefix, or --strip"
        raise UsageError(f"the rename leaves {name!r} as it is: {remedy}")

    def apply(self, ptx: Ptx) -> Ptx:
        """The module with its entries renamed. Raises PtxError if a new name is taken or no identifier."""
        chosen = ptx.entries if self.entry is None else (ptx.only_entry(self.entry),)
        return ptx.rename_entries({name: self.new_name(name) for name in chosen})


def _pairs(mapping: object) -> tuple[tuple[str, str], ...]:
    """Old and new names as pairs, from pairs or from a Mapping."""
    items = mapping.items() if isinstance(mapping, Mapping) else mapping
    pairs = tuple(items) if isinstance(items, Iterable) else (items,)
    if not all(isinstance(pair, (tuple, list)) and [*map(type, pair)] == [str, str] for pair in pairs):
        raise UsageError(f"mapping={mapping!r}: give old and new names as text, e.g. {{'add': 'cutlass_add'}}")
    return tuple((old, new) for old, new in pairs)


@dataclass(frozen=True, slots=True)
class Control:
    """Gives each entry that `rename` would rename a control name instead: as long, and nothing to ptxas."""

    rename: Rename

    @property
    def key(self) -> str:
        return f"control-1:{self.rename.key}"

    def new_name(self, name: str) -> str:
        """The control name of an entry; `name` itself where the rename leaves it."""
        new = self.rename.new_name(name)
        return name if new == name else control_name(name, new)

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx.rename_entries({name: self.new_name(name) for name in ptx.entries})


@dataclass(frozen=True, slots=True)
class Rewrites:
    """Several rewrites, one after the other, for whatever module comes along: a Rename of one entry leaves
    modules without that entry as they are, where Rename.apply on its own calls that an error."""

    steps: tuple[Rewrite, ...] = ()

    @property
    def key(self) -> str:
        return "|".join(step.key for step in self.steps)

    def apply(self, ptx: Ptx) -> Ptx:
        for step in self.steps:
            if not isinstance(step, Rename) or step.entry is None or step.entry in ptx.entries:
                ptx = step.apply(ptx)
        return ptx

    @property
    def without_renames(self) -> Rewrites:
        return Rewrites(tuple(step for step in self.steps if not isinstance(step, Rename)))

    def remarks(self, ptx: Ptx) -> tuple[str, ...]:
        """Sentences that the steps have to say of a module: what they will do, and what they leave alone."""
        return tuple(text for step in self.steps for text in getattr(step, "remarks", lambda _: ())(ptx))


def make_rename(rename: str | Mapping[str, str] | Rename | None, strip: bool | str = False) -> Rename | None:
    """The Rename that the user's `rename=` and `strip=` mean; None if neither was given."""
    if not isinstance(rename, (str, Mapping, Rename, type(None))):
        raise UsageError(f"rename={rename!r}: give a prefix such as 'cutlass_', old and new names, or a Rename")
    word = TRIGGER if strip is True else strip or ""
    if isinstance(rename, Rename):
        if word:
            raise UsageError("give strip= inside the Rename, not beside it")
        return rename
    if isinstance(rename, Mapping):
        return Rename(strip=word, mapping=tuple(rename.items()))
    if rename or word:
        return Rename(prefix=rename or "", strip=word)
    return None


def strip_word(name: str, word: str = TRIGGER) -> str:
    """`name` without `word`, e.g. "cutlass_add" -> "add", "my_cutlass_add" -> "my_add".

    Where that leaves no identifier, or would break a mangled C++ name (which counts its letters),
    the word's last letter is changed instead: ptxas looks for the whole word.
    """
    if name.startswith("_Z"):
        return name.replace(word, _other_word(word))
    stripped = name.replace(f"{word}_", "").replace(f"_{word}", "").replace(word, "")
    fits = IDENTIFIER.fullmatch(stripped) and word not in stripped
    return stripped if fits else name.replace(word, _other_word(word))


def _other_word(word: str) -> str:
    return word[:-1] + ("z" if word[-1] != "z" else "x")


def removes_trigger(old: str, new: str) -> bool:
    """Whether a rename takes the trigger out of a name: then the plain side is the new one."""
    return TRIGGER in old and TRIGGER not in new


def control_name(old: str, new: str) -> str:
    """A name without the trigger, as long as the longer-lived of two: the one that has the trigger, else `new`.

    Section sizes depend on the length of the name (string tables, 128-byte alignment), so that a fair
    comparison gives both sides names of equal length. `cutlass_add` gets the control `cutlasz_add`.
    """
    model = next((name for name in (new, old) if TRIGGER in name), new)
    plain = model.replace(TRIGGER, CONTROL)
    return next(name for name in (plain, *(plain[:-1] + last for last in "yxw")) if name not in (old, new))
