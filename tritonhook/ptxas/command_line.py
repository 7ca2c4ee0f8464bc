"""Parse a command line of ptxas into PTX inputs, output file, options that affect the code, and optimisation level.
Also check options of untrusted origin, and dump the PTX of a call of ptxas to files."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonhook._util.files import cache_folder, write_whole
from tritonhook.errors import PtxError
from tritonhook.ptx.module import Ptx

DUMP_VARIABLE = "PTX_DUMP_DIR"
DUMP_DEFAULT = "ptx_dumps"
DEFAULT_OUTPUT = "elf.o"  # ptxas's own default
_STDIN = ("-", "/dev/stdin")
_NESTED_OPTION_FILES = 8


@dataclass(frozen=True, slots=True)
class Module:
    """One PTX input. source: its path, or "standard input" or "command line"; for messages."""

    source: str
    data: bytes

    @property
    def ptx(self) -> Ptx:
        return Ptx.from_bytes(self.data, self.source)


@dataclass(frozen=True, slots=True)
class Command:
    """A parsed command line of ptxas, with options files expanded.

    output: the file for the cubin; None if it cannot be read back, e.g. for a pipe. target: e.g. "sm_90a", or None.
    options: the options that affect the code; inputs, output and target are not among them. left_out: the options that
    name files. They are not in `options`, since the caller of ptxas may delete the files.
    """

    modules: tuple[Module, ...]
    output: str | None
    target: str | None
    options: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def makes_code(self) -> bool:
        """Whether the call makes a cubin. nvcc also calls ptxas only to check PTX, with a virtual architecture."""
        return self.target is None or self.target.startswith("sm_")


def read_command(words: Sequence[str], stdin: bytes | None = None) -> Command:
    """Parse a command line; relative paths start at the current folder. stdin: content of ptxas's standard input.

    Each argument that names a PTX file is an input, even after an unknown option that could take it as its value: the
    options of ptxas change from release to release.
    """
    modules: list[Module] = []
    options: list[str] = []
    left_out: list[str] = []
    output, target = DEFAULT_OUTPUT, None
    expanded = iter(_expand(words))
    for word in expanded:
        name, has_value, value = word.partition("=")
        if name in ("-o", "--output-file"):
            output = value if has_value else next(expanded, output)
        elif name in ("-arch", "--gpu-name"):
            target = value if has_value else next(expanded, target)
        elif name in ("-ias", "--input-as-string"):
            modules.append(Module("command line", os.fsencode(value if has_value else next(expanded, ""))))
        elif word in _STDIN:
            modules.append(Module("standard input", stdin or b""))
        elif not word.startswith("-") and (data := _ptx_file(word)) is not None:
            modules.append(Module(word, data))
        elif value and os.path.isfile(value):  # noqa: PTH113  (pathlib is slower, which costs build time)
            left_out.append(word)
        else:
            options.append(word)
    return Command(tuple(modules), output if _is_file(output) else None, target, tuple(options), tuple(left_out))


def _expand(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """Yield the arguments, with each -optf FILE,... replaced by the arguments in these files."""
    given = iter(words)
    for word in given:
        name, has_value, value = word.partition("=")
        if name not in ("-optf", "--options-file"):
            yield word
            continue
        for path in (value if has_value else next(given, "")).split(","):
            if depth < _NESTED_OPTION_FILES:
                yield from _expand(_words_in(path), depth + 1)


def _words_in(path: str) -> list[str]:
    """Read the arguments in an options file, split as ptxas splits: at blanks, with double quotes and backslashes."""
    try:
        text = Path(path).read_text(errors="surrogateescape")
    except OSError:
        return []
    splitter = shlex.shlex(text, posix=True)
    splitter.whitespace_split, splitter.commenters, splitter.quotes = True, "", '"'
    try:
        return list(splitter)
    except ValueError:  # an unclosed quote; ptxas will report it
        return []


def _is_file(path: str) -> bool:
    """Return True if a cubin written to this path can be read back: False for a pipe or a device."""
    return not os.path.exists(path) or os.path.isfile(path)  # noqa: PTH110, PTH113


def _ptx_file(path: str) -> bytes | None:
    """Read a PTX file; None for any other file. Pipes are not read, since ptxas would then miss these bytes."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            return None
        data = Path(path).read_bytes()
    except (OSError, ValueError):
        return None
    return data if b".version" in data and not data.startswith(b"\x7fELF") else None


# --- dump the PTX of a call ----------------------------------------------------------------------


def dump(words: Sequence[str], told: Mapping[str, Any]) -> None:
    """Write the PTX of a call to $PTX_DUMP_DIR. If the variable is not set, an installed ptxas wrapper writes to
    ptx_dumps/ in the call's current folder, and any other wrapper writes nothing. Each module becomes one file, named
    by its first entry and its hash, so that a second build does not write it again."""
    folder = os.environ.get(DUMP_VARIABLE) or (DUMP_DEFAULT if told["kind"] == "installed" else None)
    if folder is None:
        return
    for module in read_command(words, told["stdin"]).modules:
        name = _name_of(module)
        path = Path(folder, f"{name}-{hashlib.sha256(module.data).hexdigest()[:12]}.ptx")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, module.data)


def _name_of(module: Module) -> str:
    try:
        name = next(iter(module.ptx.entries), "")
    except PtxError:
        name = ""
    return re.sub(r"[^\w$.-]", "_", name or Path(module.source).stem, flags=re.ASCII)[:80]


# --- the optimisation level -----------------------------------------------------------------------


_LEVEL_APART = ("-O", "--opt-level", "-opt-level")  # options whose next argument is the level
_LEVEL_WITHIN = ("-O", "--opt-level=", "-opt-level=")  # prefixes of arguments that contain the level


def level_of(options: Sequence[str] | None) -> str:
    """Return the optimisation level in the options, e.g. "-O1". Returns ptxas's default, "-O3", if the options contain
    no level or are not known (None)."""
    level = "-O3"
    given = tuple(options or ())
    for option, following in zip(given, (*given[1:], ""), strict=False):
        if option in _LEVEL_APART:
            level = f"-O{following}"
        elif option.startswith(_LEVEL_WITHIN):
            level = f"-O{option.rpartition('=')[2].removeprefix('-O')}"
    return level


def without_level(options: Sequence[str]) -> tuple[str, ...]:
    """Return the options without those that set the optimisation level."""
    pairs = zip(options, ("", *options), strict=False)
    return tuple(
        word
        for word, last in pairs
        if not (word in _LEVEL_APART or word.startswith(_LEVEL_WITHIN) or last in _LEVEL_APART)
    )


# --- options of untrusted origin ------------------------------------------------------------------


_SWITCH_NAMES = """
-v --verbose -v2 --verbose2 -c --compile-only -g --device-debug -w --disable-warnings -lineinfo --generate-line-info
-suppress-debug-info -annotate --compiler-annotations -astoolspatch --compile-as-tools-patch -ewp
--extensible-whole-program -no-bb-merge --dont-merge-basicblocks -ret-end --return-at-end -sp-bounds-check
-preserve-relocs -disable-optimizer-consts --disable-optimizer-constants -opt-fp-atomics --optimize-float-atomics
-make-errors-visible-at-exit -override-directive-values -legacy-bar-warp-wide-behavior -Werror --warning-as-error
-warn-spills --warn-on-spills -warn-lmem-usage --warn-on-local-memory-usage -warn-double-usage
--warn-on-double-precision-use -g-tmem-access-check --g-tensor-memory-access-check -gno-tmem-access-check
--gno-tensor-memory-access-check -gno-fabric-access-check -suppress-async-bulk-multicast-advisory-warning
-suppress-double-demote-warning -suppress-position-independent-code-warning -suppress-sparse-mma-advisory-info
-suppress-stack-size-warning -uumn
"""
_VALUED_NAMES = """
-O --opt-level -Ofc --Ofast-compile -arch --gpu-name -m --machine -maxrregcount -maxntid -minnctapersm
-func-maxrregcount --device-function-maxrregcount -regUsageLevel --register-usage-level -fmad
-allow-expensive-optimizations -device-stack-protector -pic --position-independent-code -split-compile -sanitize
-enable-func-clone-sc -dlcm --def-load-cache -dscm --def-store-cache -flcm --force-load-cache -fscm
--force-store-cache -e --entry --enable-extended-smem -regAllocOptLevel --regAllocOptLevel
"""
_SWITCHES, _VALUED = frozenset(_SWITCH_NAMES.split()), frozenset(_VALUED_NAMES.split())
_CONTROLS = "--apply-controls"  # its value is a file, which tritonhook stores under the hash of its content
_JOINED = re.compile(r"-(?:O\d|m\d\d)")
_VALUE = re.compile(r"[\w$.,]{1,4096}", re.ASCII)


def refused_option(options: Iterable[str]) -> str | None:
    """Return the first option that is not allowed, or whose value is not a plain name or number; None if all are
    allowed."""
    words = iter(options)
    for word in words:
        name, equals, value = word.partition("=")
        if (not equals and _is(name, _SWITCHES)) or _JOINED.fullmatch(word):
            continue
        value = value if equals else next(words, "")
        if not (_is(name, _VALUED) and _VALUE.fullmatch(value)) and not _is_kept_controls(name, value):
            return word
    return None


def _is(name: str, among: frozenset[str]) -> bool:
    """Return True if the option is in the list; ptxas accepts one dash instead of two."""
    return name in among or f"-{name}" in among or (name.startswith("--") and name[1:] in among)


def _is_kept_controls(name: str, value: str) -> bool:
    folder, _, file = value.rpartition("/")
    kept = folder == str(cache_folder() / "controls") and re.fullmatch(r"[0-9a-f]{64}", file) is not None
    return name in (_CONTROLS, _CONTROLS[1:]) and kept
