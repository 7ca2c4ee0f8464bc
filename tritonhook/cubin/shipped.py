"""The files of what is shipped: shared libraries, archives, wheels, cubins, fat binaries, and folders of them.

Files are found by what they begin with, one at a time, and read as a whole. A wheel is unpacked member by member,
within limits. What cannot be read is named, and the rest is read.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tritonhook._util.files import read_given, read_start
from tritonhook.cubin.elf import MAGIC
from tritonhook.cubin.fatbin import FATBIN_MAGIC, embedded_cubins

_ARCHIVE, _ZIP = b"!<arch>\n", b"PK\3\4"
_EM_CUDA = 190
_MOST_BYTES = 1 << 32  # of a file: libraries of torch have 2 GiB
_MOST_MEMBER, _MOST_WHEEL = 1 << 32, 1 << 35  # bytes, unpacked
_MOST_RATIO, _SMALL = 200, 1 << 24  # unpacked over packed, of members larger than this; libraries have 3 to 20
_PYTHON = re.compile(r"\.(?:cpython-\d+\w*|abi3|cp\d+)(?:-[\w-]+)?(?=\.so\b)")


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file with GPU code, or what there is to say of one. name: in its wheel or folder, without the Python that an
    extension module was built for; it stays from release to release. notes: of what in it is no machine code, or
    damaged. images: its cubins, each with the suffix of its target, as "a" of sm_90a; "" where it is not known."""

    name: str
    images: tuple[tuple[bytes, str], ...] = ()
    notes: tuple[str, ...] = ()


def shipped_files(path: Path) -> Iterator[ShippedFile]:
    """Read a file, a wheel or a folder. Host code without GPU code gives nothing. Raises OSError if `path` itself
    cannot be read."""
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink()):
            try:
                yield from _in_file(file, str(file.relative_to(path)))
            except OSError as error:
                yield ShippedFile(str(file), notes=(f"cannot be read: {error.strerror}",))
    else:
        yield from _in_file(path, path.name)


def is_shipped(path: Path) -> bool:
    """Whether a file begins as a library, an archive, a wheel or a cubin does; what is in it is not looked at."""
    try:
        start = read_start(path, len(_ARCHIVE))
    except OSError:
        return False
    return start.startswith(_ZIP) or _may_have_code(start)


def _in_file(path: Path, name: str) -> Iterator[ShippedFile]:
    start = read_start(path, len(_ARCHIVE))
    if start.startswith(_ZIP):
        yield from _in_wheel(path)
    elif _may_have_code(start):
        yield from _in_bytes(read_given(path, _MOST_BYTES), name)


def _may_have_code(start: bytes) -> bool:
    return start.startswith((MAGIC, FATBIN_MAGIC, _ARCHIVE))


def _in_wheel(path: Path) -> Iterator[ShippedFile]:
    """What each member of a wheel holds."""
    unpacked = 0
    try:
        with zipfile.ZipFile(path) as wheel:
            for member in sorted(wheel.infolist(), key=lambda member: member.filename):
                if why := _why_not_unpacked(member, unpacked):
                    yield ShippedFile(member.filename, notes=(f"not unpacked: {why}",))
                    continue
                try:
                    with wheel.open(member) as file:
                        data = file.read(8)
                        if not _may_have_code(data):
                            continue
                        data += file.read(member.file_size)
                except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
                    yield ShippedFile(member.filename, notes=(f"cannot be unpacked: {error}",))
                    continue
                unpacked += len(data)
                yield from _in_bytes(data, member.filename)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        yield ShippedFile(path.name, notes=(f"no wheel that can be read: {error}",))


def _why_not_unpacked(member: zipfile.ZipInfo, before: int) -> str | None:
    size, packed = member.file_size, max(member.compress_size, 1)
    if size > _MOST_MEMBER:
        return f"{size:,} bytes, more than the {_MOST_MEMBER:,} that are read"
    if before + size > _MOST_WHEEL:
        return f"the wheel has more than the {_MOST_WHEEL:,} bytes that are read"
    if size > _SMALL and size > _MOST_RATIO * packed:
        return f"{packed:,} bytes would become {size:,}, as of a zip bomb"
    return None


def _in_bytes(data: bytes, name: str) -> Iterator[ShippedFile]:
    name = _PYTHON.sub("", name)
    if data[:4] == MAGIC and data[18:20] == _EM_CUDA.to_bytes(2, "little"):
        yield ShippedFile(name, ((data, ""),))
        return
    embedded = embedded_cubins(data)
    lost = {
        f"{embedded.damaged:,} damaged or cut off": embedded.damaged,
        f"{embedded.packed:,} compressed and not read (`pip install lz4 zstandard`, or damaged)": embedded.packed,
        f"{embedded.linked:,} for the linker only (LTO)": embedded.linked,
    }
    notes = [f"fat binaries: {what}" for what, number in lost.items() if number]
    if embedded.ptx and not embedded.cubins:
        notes.append(f"only PTX, no machine code: {embedded.ptx:,}")
    if embedded.cubins or notes:
        yield ShippedFile(name, tuple(zip(embedded.cubins, embedded.suffixes, strict=True)), tuple(notes))
