"""A lock: facts of kernels as a text file for code review, and a folder with their PTX.

    tritonhook.lock                    TOML: a block for each kernel, sorted
    tritonhook.lock.d/SHA256.ptx.xz    the PTX, named by its hash

The content does not depend on the time or the machine. Each block has a seal, the hash of its values, which reveals an
edit by hand. The seal covers only its block, so that a merge of two branches can contain blocks of both.
"""

from __future__ import annotations

import errno
import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tritonhook._util.demangle import function_name
from tritonhook._util.files import read_regular, write_given, write_whole
from tritonhook._util.text import visible
from tritonhook._util.toml import toml_block, toml_value
from tritonhook.errors import SnapshotError
from tritonhook.ptxas.command_line import refused_option
from tritonhook.snapshot.facts import FIGURES, Budgets, Identity, KernelFacts, sha256

if TYPE_CHECKING:
    from tritonhook.snapshot.schema import LockedKernel

_HEADER = """\
# Machine code of kernels, by `tritonhook lock`. `tritonhook check {name}` says what changed since.
# Do not edit: `tritonhook check {name} CAPTURES --update` writes it again.
format = 1
"""
# `kernels lock` of Hugging Face's package "kernels" writes kernels.lock: JSON with the revisions of kernels in its Hub.
_OF_HUGGING_FACE = re.compile(rb'\s*\[\s*\{[^{}\[\]]{0,1000}"(?:repo_id|sha)"\s*:')
_HUGGING_FACES = "a lock of Hugging Face's kernels, not of tritonhook"
_REMARK = 200  # maximum characters of a name in a comment
_LARGEST_PTX = 1 << 26  # size limit in bytes, unpacked
_UNPACKER_BYTES = 1 << 26  # memory limit of the xz decoder; files that write_lock makes need 9 MB
_AS_LOCKED = ["stages", "ptxas", "classes", "threads", "loaded", "dynamic_shared", "rewrites", "dry_run"]
_AS_LOCKED += ["configuration", "bits", "launch"]  # fields of KernelFacts that a block has under the same name
_PACKED = re.compile(r"[0-9a-f]{64}\.ptx\.xz")


def write_lock(
    path: Path,
    kernels: Iterable[tuple[KernelFacts, str | None]],
    tests: Sequence[str] | None = None,
    budgets: Budgets | None = None,
) -> None:
    """Write a lock. kernels: facts and PTX of each kernel. An interruption keeps the old lock. Raises SnapshotError.

    tests: files and folders whose tests compile all of these kernels; None if not known.
    """
    from tritonhook._util import schema

    ordered = sorted(kernels, key=lambda pair: pair[0].identity)
    folder = _folder(path)
    if path.exists() and not path.is_file():
        raise SnapshotError(f"{path}: not a file; name a file for the lock (its PTX goes to a folder beside it)")
    if path.exists() and _OF_HUGGING_FACE.match(path.read_bytes()):
        raise SnapshotError(f"{path}: {_HUGGING_FACES}, so it is not replaced; name another file")
    for locked, _ in ordered:
        _check_options(path, locked)
    text = lock_text(path.name, [locked for locked, _ in ordered], tests, budgets)
    try:
        schema.check_toml(text.encode())
    except schema.DocumentError as error:
        raise SnapshotError(f"{path}: {error}; lock fewer kernels in one lock, e.g. make several locks") from None
    try:
        kept = {f"{sha256(ptx)}.ptx.xz": ptx for _, ptx in ordered if ptx is not None}
        if kept or folder.is_dir():
            folder.mkdir(exist_ok=True)
        for name, ptx in kept.items():
            if not (folder / name).exists() or _unpacked(folder / name) != ptx:  # also replaces a damaged file
                write_whole(folder / name, lzma.compress(ptx.encode(), preset=6))
        write_given(path, text)
        for old in folder.iterdir() if folder.is_dir() else ():
            if _PACKED.fullmatch(old.name) and old.name not in kept:
                old.unlink()
    except OSError as error:
        raise SnapshotError(f"{error.filename or path}: cannot write: {error.strerror}") from None


def lock_text(
    name: str, kernels: Iterable[KernelFacts], tests: Sequence[str] | None = None, budgets: Budgets | None = None
) -> str:
    """Format a lock as text."""
    blocks = [_block(locked) for locked in kernels]
    top = {"tests": list(tests)} if tests is not None else {}
    top |= budgets.values if budgets is not None else {}
    lines = [f"{key} = {toml_value(value)}\n" for key, value in top.items()]
    header = "".join([_HEADER.format(name=visible(name)), *lines])
    return "\n".join([header, *blocks])


def _block(facts: KernelFacts) -> str:
    """Format the block of a kernel, with the demangled name, if it differs, in a comment above it."""
    values = _values(facts)
    name = function_name(facts.identity.kernel)
    remark = "" if name == facts.identity.kernel else f"# {visible(name)[:_REMARK]}\n"
    return remark + toml_block("kernel", values | {"seal": _seal(values)})


def _values(facts: KernelFacts) -> dict[str, Any]:
    """Return the values of a block, without unknown values and defaults."""
    identity = facts.identity
    values = {
        "name": identity.kernel,
        "entry": facts.entry if facts.entry != identity.kernel else None,
        "arch": identity.arch,
        "front_end": identity.front_end,
        "specialisation": list(identity.specialisation),
        "number": identity.number if identity.number != 1 else None,
        "rewrites": facts.rewrites,
        "dry_run": facts.dry_run or None,
        "configuration": facts.configuration,
        "commands": list(facts.commands) or None,
        "ptx": facts.ptx_sha256,
        "ptxas": facts.ptxas,
        "options": None if facts.options is None else list(facts.options),
        "stages": dict(facts.stages) or None,
        "codes": sorted(facts.codes),
        **{name: facts.figures.get(name) for name in FIGURES},
        "launch": facts.launch or None,
        "threads": facts.threads,
        "launch_bounds": list(facts.launch_bounds) or None,
        "loaded": dict(facts.loaded) or None,
        "dynamic_shared": facts.dynamic_shared or None,
        "classes": {name: count for name, count in facts.classes.items() if count} or None,
        "bits": facts.bits,
    }
    return {name: value for name, value in values.items() if value is not None}


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def is_lock(path: Path) -> bool:
    """Return True if a file looks like a lock, even a damaged one."""
    try:
        return begins_a_lock(path, read_regular(path))
    except OSError:
        return path.suffix == ".lock"


def begins_a_lock(path: Path, data: bytes) -> bool:
    """Return True if a file with this name and content looks like a lock, even a damaged one."""
    return path.suffix == ".lock" or data.startswith(_HEADER.partition("{")[0].encode())


def read_lock(path: Path) -> list[KernelFacts]:
    """Read the kernels of a lock. Raises SnapshotError as read_whole_lock does."""
    return read_whole_lock(path).kernels


class WholeLock(NamedTuple):
    """The content of a lock. tests: files and folders whose tests compile all of its kernels; None if not known."""

    kernels: list[KernelFacts]
    tests: tuple[str, ...] | None
    budgets: Budgets


def read_whole_lock(path: Path) -> WholeLock:
    """Read a lock: kernels, tests and budgets. Raises SnapshotError if the file is missing, damaged, edited by hand, or
    has a newer format."""
    from tritonhook._util import schema
    from tritonhook.snapshot import schema as locks

    try:
        data = read_regular(path, schema.MOST_TOML)
    except IsADirectoryError:
        raise SnapshotError(f"{path}: a folder, not a lock; `tritonhook lock {path}` makes a lock of it") from None
    except OSError as error:
        raise SnapshotError(f"{path}: cannot read: {error.strerror}; `tritonhook lock` makes one") from None
    if _OF_HUGGING_FACE.match(data):
        raise SnapshotError(f"{path}: {_HUGGING_FACES}; `tritonhook lock` makes a lock, tritonhook.lock")
    document = locks.read_lock(data, str(path))
    kernels: dict[Identity, KernelFacts] = {}
    for facts in (_facts(kernel, path) for kernel in document.kernel):
        if kernels.setdefault(facts.identity, facts) is not facts:
            raise SnapshotError(f"{path}: has {facts.identity.text} twice; make the lock again with `tritonhook lock`")
    tests = None if document.tests is None else tuple(document.tests)
    return WholeLock(list(kernels.values()), tests, Budgets.of(document.max_registers, document.allow_spills))


def _facts(kernel: LockedKernel, path: Path) -> KernelFacts:
    identity = Identity(kernel.name, kernel.arch, kernel.front_end, tuple(kernel.specialisation), kernel.number)
    facts = KernelFacts(
        identity=identity,
        entry=kernel.name if kernel.entry is None else kernel.entry,
        ptx_sha256=kernel.ptx,
        options=None if kernel.options is None else tuple(kernel.options),
        codes=tuple(kernel.codes),
        launch_bounds=tuple(kernel.launch_bounds),
        commands=tuple(kernel.commands),
        figures={name: getattr(kernel, name) for name in FIGURES},
        **{name: getattr(kernel, name) for name in _AS_LOCKED},
    )
    if _seal(_values(facts)) != kernel.seal:
        raise SnapshotError(
            f"{path}: {identity.text}: its values do not fit its seal, so its block was edited; restore the file from "
            "version control, or make the lock again with `tritonhook lock`"
        )
    _check_options(path, facts)
    return facts


def _check_options(path: Path, facts: KernelFacts) -> None:
    """Refuse options by which ptxas could read or write arbitrary files, since a lock may be of untrusted origin.
    Raises SnapshotError."""
    if (word := refused_option(facts.options or ())) is not None:
        raise SnapshotError(
            f"{path}: {facts.identity.text}: the ptxas option {word[:80]!r} is not allowed in a lock. Allowed are "
            "options that affect the code and whose value is a number or a word. Compile the kernel without this option"
        )


def all_kept_ptx(path: Path, kernels: Sequence[KernelFacts]) -> list[str]:
    """Read the stored PTX of each kernel, each file once. Raises SnapshotError as kept_ptx does."""
    one_of_each = {facts.ptx_sha256: facts for facts in reversed(kernels)}
    texts = {name: kept_ptx(path, facts) for name, facts in one_of_each.items()}
    return [texts[facts.ptx_sha256] for facts in kernels]


def kept_ptx(path: Path, facts: KernelFacts) -> str:
    """Read a kernel's PTX in a lock's folder. Raises SnapshotError if it is missing, or differs from the locked
    hash."""
    identity, name = facts.identity, facts.ptx_sha256
    if name is None:
        raise SnapshotError(f"{path}: {identity.text}: its capture had no PTX, so the lock has none; name captures")
    place = _folder(path) / f"{name}.ptx.xz"
    try:
        text = _unpacked(place)
    except OSError as error:
        raise SnapshotError(
            f"{place}: cannot read the PTX of {identity.text}: {error.strerror}; restore the folder from version "
            "control"
        ) from None
    if text is None or sha256(text) != name:
        raise SnapshotError(f"{place}: not the locked PTX of {identity.text}; restore the file from version control")
    return text


def _unpacked(place: Path) -> str | None:
    """Unpack a PTX file; None if it is damaged. Raises OSError."""
    unpacker = lzma.LZMADecompressor(memlimit=_UNPACKER_BYTES)
    try:
        text = unpacker.decompress(read_regular(place, _LARGEST_PTX), _LARGEST_PTX)
        if len(text) == _LARGEST_PTX:
            raise OSError(errno.EFBIG, f"{_LARGEST_PTX:,} bytes or more when unpacked", place)
        return text.decode()
    except (lzma.LZMAError, UnicodeError):
        return None


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.d")
