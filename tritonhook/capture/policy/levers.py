"""Levers: ways to get different machine code for the same kernel. KINDS is the registry.

A lever is data. It combines changes that a session can apply: rewrites of the PTX, another ptxas, further options of
ptxas. `tuning` assembles and times levers; `policy` applies the winners.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tritonhook._util.files import cache_folder, read_below, write_whole
from tritonhook._util.versions import version_key
from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.errors import ToolError, UsageError
from tritonhook.ptx.cta_loads import ClusterToCta
from tritonhook.ptx.throughput_pragma import LARGEST, PTXAS_VERSION, SMALLEST, RegisterLimit, ThroughputPragma
from tritonhook.rename import PREFIX, TRIGGER, Rename, Rewrite, Rewrites

AND = "+"  # separates the parts of one lever
# The first ptxas whose help lists --apply-controls. Versions 12.6 to 13.0 accept the option with any file, without an
# error.
CONTROLS_VERSION = "13.3"


@dataclass(frozen=True, slots=True)
class LeverPart:
    """The effect of one part of a lever. option: an option of ptxas. controls: path of the user's controls file."""

    rewrite: Rewrite | None = None
    ptxas: str | None = None
    option: str | None = None
    controls: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of lever: its syntax, its effect, and its requirements.

    form: syntax for users, e.g. "maxnreg=N". what: its effect, for help texts. pattern: regular expression for the
    whole text; the group is the value. part: makes the part from the value. archs: regular expression for the supported
    targets; "" for all. oldest_ptxas: the first ptxas that supports it. for_cute: True if it works for CuTe kernels.
    Many levers do not, because the DSL's ptxas is inside its library and cannot get rewritten PTX.
    """

    form: str
    what: str
    pattern: str
    part: Callable[[str], LeverPart]
    archs: str = ""
    oldest_ptxas: str | None = None
    for_cute: bool = False


def _registers(value: str) -> LeverPart:
    if not SMALLEST <= int(value) <= LARGEST:
        raise UsageError(f"maxnreg={value}: give a number from {SMALLEST} to {LARGEST}")
    return LeverPart(RegisterLimit(int(value)))


# The parts of a lever are applied in this order, and its text has them in this order.
KINDS = (
    Kind(
        "name",
        f"rename the kernel with the prefix {PREFIX}",
        "name()",
        lambda _: LeverPart(Rename(PREFIX)),
        for_cute=True,
    ),
    Kind(
        "strip",
        f"remove {TRIGGER} from the kernel's name",
        "strip()",
        lambda _: LeverPart(Rename(strip=TRIGGER)),
        for_cute=True,
    ),
    Kind(
        "pragma",
        'put .pragma "mma_throughput" into the kernel',
        "pragma()",
        lambda _: LeverPart(ThroughputPragma()),
        oldest_ptxas=PTXAS_VERSION,
        for_cute=True,
    ),
    Kind("tma-cta", "TMA loads to .shared::cta", "tma-cta()", lambda _: LeverPart(ClusterToCta()), archs=r"sm_12\d"),
    Kind("maxnreg=N", f"limit registers by .maxnreg, {SMALLEST} to {LARGEST}", r"maxnreg=(\d{1,3})", _registers),
    Kind(
        "ptxas=VERSION",
        "assemble by another ptxas",
        r"ptxas=(\d{1,4}\.\d{1,4}\.\d{1,4})",
        lambda value: LeverPart(ptxas=value),
    ),
    Kind("ON", "the -O level, O0 to O4", "O([0-4])", lambda value: LeverPart(option=f"-O{value}")),
    Kind(
        "regalloc=N",
        "--regAllocOptLevel, 0 to 6",
        "regalloc=([0-6])",
        lambda value: LeverPart(option=f"--regAllocOptLevel={value}"),
    ),
    Kind(
        "regusage=N",
        "--register-usage-level, 0 to 10",
        "regusage=([0-9]|10)",
        lambda value: LeverPart(option=f"--register-usage-level={value}"),
    ),
    Kind(
        "controls=FILE",
        "pass your file to ptxas by --apply-controls",
        "controls=([^,+]+)",
        lambda value: LeverPart(controls=value),
        oldest_ptxas=CONTROLS_VERSION,
    ),
)


@dataclass(frozen=True, slots=True)
class Lever:
    """One lever, of one or several parts, e.g. "pragma+ptxas=13.5.37". Made by `lever`.

    text: as users write it, but with the parts in the order of KINDS.
    """

    text: str
    kinds: tuple[Kind, ...] = field(repr=False, compare=False)
    parts: tuple[LeverPart, ...] = field(repr=False, compare=False)

    @property
    def rewrites(self) -> Rewrites:
        return Rewrites(tuple(part.rewrite for part in self.parts if part.rewrite is not None))

    @property
    def renames(self) -> bool:
        return self.rewrites.without_renames != self.rewrites

    @property
    def ptxas(self) -> str | None:
        """Version of the lever's ptxas; None if it uses the compiler's own."""
        return next((part.ptxas for part in self.parts if part.ptxas is not None), None)

    @property
    def controls(self) -> str | None:
        """Path of the controls file, as the user wrote it."""
        return next((part.controls for part in self.parts if part.controls is not None), None)

    def why_not(self, own_ptxas: str | None, arch: str, front_end: str) -> str | None:
        """Return why the lever cannot be applied to kernels of this architecture and front end, else None. own_ptxas:
        version of the compiler's own ptxas."""
        version = self.ptxas or own_ptxas
        for kind in self.kinds:
            if front_end == "cute" and not kind.for_cute:
                return f"{kind.form} is not possible for CuTe kernels: their ptxas is part of the DSL"
            if kind.archs and not re.match(kind.archs, arch):
                return f"{kind.form} is not for {arch}"
            if kind.oldest_ptxas and version and version_key(version) < version_key(kind.oldest_ptxas):
                return f"{kind.form} needs ptxas {kind.oldest_ptxas} or newer; this ptxas is {version}"
        return None

    def assembling(self, folder: Path, sha256: str | None = None) -> Assembling | None:
        """Return the lever's ptxas and options; None if it changes neither.

        folder, sha256: as in kept_controls. Raises ToolError if the ptxas or the controls file is missing.
        """
        options = tuple(part.option for part in self.parts if part.option is not None)
        if self.controls is not None:
            options += (f"--apply-controls={kept_controls(folder, self.controls, sha256)}",)
        return Assembling.of(self.ptxas, options) if self.ptxas or options else None


def lever(text: str) -> Lever:
    """Parse one lever. Raises UsageError if the text is not a lever."""
    parts: dict[int, LeverPart] = {}
    words: dict[int, str] = {}
    for word in text.split(AND):
        number, part = _part(word.strip())
        if number in parts:
            raise UsageError(f"{text!r}: {KINDS[number].form} occurs twice; leave one out")
        parts[number], words[number] = part, word.strip()
    order = sorted(parts)
    return Lever(AND.join(words[n] for n in order), tuple(KINDS[n] for n in order), tuple(parts[n] for n in order))


def _part(word: str) -> tuple[int, LeverPart]:
    for number, kind in enumerate(KINDS):
        if (match := re.fullmatch(kind.pattern, word)) is not None:
            return number, kind.part(match[1])
    forms = ", ".join(kind.form for kind in KINDS)
    raise UsageError(f"{word!r} is not a lever; choose from {forms}; {AND} joins two, e.g. pragma{AND}ptxas=13.5.37")


def levers(text: str) -> tuple[Lever, ...]:
    """Parse several levers, separated by commas; duplicates are dropped. Raises UsageError if an item is not a
    lever."""
    return tuple(dict.fromkeys(lever(word.strip()) for word in text.split(",")))


def controls_levers(files: Iterable[str]) -> tuple[Lever, ...]:
    """Make a lever for each controls file. Raises UsageError for a path with a comma or a plus sign."""
    return tuple(dict.fromkeys(lever(f"controls={file}") for file in files))


def kept_controls(folder: Path, name: str, sha256: str | None = None) -> Path:
    """Copy a controls file into the cache and return the copy's path. The copy is named by the hash of its content, so
    that cache keys can contain the path. It keeps the file's permissions.

    folder: folder of the policy; files elsewhere are refused, because a policy may be untrusted. sha256: hash of the
    certified content; None accepts any content. Raises ToolError if the file is missing, differs, or cannot be copied.
    """
    try:
        data, mode = read_below(folder, name)
        found = hashlib.sha256(data).hexdigest()
        if found != (sha256 or found):
            raise ToolError(f"{folder / name}: not the controls file that was certified; restore it, or tune again")
        copy = cache_folder() / "controls" / found
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_whole(copy, data, mode)
    except OSError as error:
        raise ToolError(f"{folder / name}: cannot read the controls file: {error.strerror}") from None
    return copy
