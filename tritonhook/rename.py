"""Rename the entries of a PTX module: add a prefix, remove a string, or map names. Works on Ptx values; no cache is
read or written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tritonhook.errors import PtxError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptx.throughput_pragma import TRIGGER as TRIGGER
from tritonhook.ptx.tokens import IDENTIFIER

CONTROL = "cutlasz"  # as long as the trigger, "cutlass", but without effect on ptxas
PREFIX = f"{TRIGGER}_"


@runtime_checkable
class Rewrite(Protocol):
    """A pure change of a PTX module. `key` identifies the change: rewrites with equal keys must make the same
    change."""

    @property
    def key(self) -> str: ...

    def apply(self, ptx: Ptx) -> Ptx: ...


@dataclass(frozen=True, slots=True)
class Rename:
    """Rules to rename entries: `mapping` if it contains the name, else first `strip` and then `prefix`.

    prefix: added to a name that does not start with it, e.g. "cutlass_".
    strip: removed from the name together with one adjacent underscore, e.g. "cutlass".
    mapping: exact old name -> new name, as pairs or as a Mapping; kept as pairs.
    entry: rename only this entry; None: all entries.
    """

    prefix: str = ""
    strip: str = ""
    mapping: tuple[tuple[str, str], ...] = ()
    entry: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mapping", _pairs(self.mapping))
        for option, value in (("prefix", self.prefix), ("strip", self.strip), ("entry", self.entry or "")):
            if not isinstance(value, str):
                raise UsageError(f"{option}={value!r}: give it as text, e.g. {option}='cutlass'")
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
        """Compute the new name of an entry; the same name if no rule applies."""
        return self.new_names([name])[name]

    def new_names(self, names: Iterable[str]) -> dict[str, str]:
        """Map each entry to its new name."""
        exact = dict(self.mapping)
        return {name: exact[name] if name in exact else self._by_words(name) for name in names}

    def _by_words(self, name: str) -> str:
        if self.strip and self.strip in name:
            name = strip_word(name, self.strip)
        if self.prefix and not name.startswith(self.prefix):
            name = self.prefix + name
        return name

    def other_name(self, name: str) -> str:
        """Compute an entry's new name. Raises UsageError if it equals the old one."""
        new = self.new_name(name)
        if new != name:
            return new
        if self.strip and not self.prefix:
            remedy = f"it does not contain {self.strip!r}; omit --strip, or choose another word"
        else:
            remedy = "choose another prefix, or --strip"
        raise UsageError(f"the rename does not change {name!r}: {remedy}")

    def apply(self, ptx: Ptx) -> Ptx:
        """Return the module with its entries renamed. Raises PtxError if a new name is taken or not an identifier."""
        chosen = ptx.entries if self.entry is None else (ptx.only_entry(self.entry),)
        return ptx.rename_entries(self.new_names(chosen))


def _pairs(mapping: object) -> tuple[tuple[str, str], ...]:
    """Convert pairs or a Mapping of old and new names to pairs. Raises UsageError."""
    items = mapping.items() if isinstance(mapping, Mapping) else mapping
    pairs = tuple(items) if isinstance(items, Iterable) else (items,)
    if not all(isinstance(pair, (tuple, list)) and [*map(type, pair)] == [str, str] for pair in pairs):
        raise UsageError(f"mapping={mapping!r}: give old and new names as text, e.g. {{'add': 'cutlass_add'}}")
    return tuple((old, new) for old, new in pairs)


@dataclass(frozen=True, slots=True)
class Control:
    """Renames the same entries as `rename`, but to control names: of equal length, and without effect on ptxas."""

    rename: Rename

    @property
    def key(self) -> str:
        return f"control-1:{self.rename.key}"

    def new_name(self, name: str) -> str:
        """Compute the control name of an entry; the same name if the rename does not change it."""
        return self.new_names([name])[name]

    def new_names(self, names: Iterable[str]) -> dict[str, str]:
        """Map each entry to its control name."""
        new_names = self.rename.new_names(names)
        return {name: name if new == name else control_name(name, new) for name, new in new_names.items()}

    def apply(self, ptx: Ptx) -> Ptx:
        return ptx.rename_entries(self.new_names(ptx.entries))


@dataclass(frozen=True, slots=True)
class Rewrites:
    """A sequence of rewrites. A Rename of one entry is skipped for a module without that entry; Rename.apply alone
    would raise an error."""

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

    def why_not(self, ptxas_version: str | None) -> str | None:
        """Return the reason why a ptxas of this version cannot assemble the rewritten PTX, with the remedy; None if
        there is no known reason."""
        if ptxas_version is None:
            return None
        reasons = (getattr(step, "why_not", lambda _: None)(ptxas_version) for step in self.steps)
        return next((reason for reason in reasons if reason is not None), None)

    def remarks(self, ptx: Ptx) -> tuple[str, ...]:
        """List the remarks of all rewrites on a module: what each will change, and what stays unchanged."""
        return tuple(text for step in self.steps for text in getattr(step, "remarks", lambda _: ())(ptx))


def make_rename(rename: str | Mapping[str, str] | Rename | None, strip: bool | str = False) -> Rename | None:
    """Make a Rename from the user's `rename=` and `strip=`; None if neither is given. Raises UsageError."""
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
    """Remove `word` from `name`, e.g. "cutlass_add" -> "add", "my_cutlass_add" -> "my_add".

    If the remaining name is not an identifier, the last letter of `word` is changed instead: ptxas looks for the whole
    word. The same is done with mangled C++ names, since they contain the lengths of their parts.
    """
    if name.startswith("_Z"):
        return name.replace(word, _other_word(word))
    stripped = name.replace(f"{word}_", "").replace(f"_{word}", "").replace(word, "")
    fits = IDENTIFIER.fullmatch(stripped) and word not in stripped
    return stripped if fits else name.replace(word, _other_word(word))


def _other_word(word: str) -> str:
    return word[:-1] + ("z" if word[-1] != "z" else "x")


def removes_trigger(old: str, new: str) -> bool:
    """Return True if a rename removes the trigger "cutlass" from a name, so that the new name lacks it."""
    return TRIGGER in old and TRIGGER not in new


def control_name(old: str, new: str) -> str:
    """Make a control name without the trigger. It is as long as `new`, or as `old` if only `old` contains the trigger.

    Section sizes depend on the length of the name (string tables, 128-byte alignment), so a fair comparison needs two
    names of equal length. For `cutlass_add` the control name is `cutlasz_add`.
    """
    model = next((name for name in (new, old) if TRIGGER in name), new)
    plain = model.replace(TRIGGER, CONTROL)
    return next(name for name in (plain, *(plain[:-1] + last for last in "yxw")) if name not in (old, new))
