"""Write files atomically (to a temporary name, then renamed), read files with checks, and find the cache folder.

Imports only a few modules, all of the standard library, because the ptxas wrapper and foreign Python programs load this
module.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

StrPath = str | os.PathLike[str]
STAGED = ".tritonhook-"  # prefix of the names of unfinished files
MOST_BYTES = 1 << 30  # the largest file that is read
_NO_FILE = "a pipe or a device, not a file"


def write_whole(path: StrPath, data: str | bytes, mode: int | None = None, sync: bool = False) -> None:
    """Write a file atomically: readers see the old content or the whole new content. A failure leaves no partial file.

    path: an existing file or link is replaced, a pipe or a device is refused. The folder must exist.
    mode: the file's permissions; None: the default of new files.
    sync: wait until the file and its name are on the disk.
    Raises OSError.
    """
    if not _is_replaceable(path):
        raise OSError(errno.EINVAL, _NO_FILE, path)
    staged = staged_beside(path)
    try:
        with open(staged, "xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(staged)
        if isinstance(error, OSError) and error.errno is not None:  # the message would name the temporary file
            raise OSError(error.errno, error.strerror, path) from None
        raise
    if sync:
        sync_folder(os.path.dirname(path) or ".")


def _is_replaceable(path: StrPath) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # no such file; any other error occurs again when the file is written
        return True
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)


def write_given(path: StrPath, data: str | bytes) -> None:
    """Write a file that the user named. A link is followed and kept; a pipe or a device is written to, not replaced.

    Raises OSError, also for a pipe without a reader, as waiting for one could take forever.
    """
    if not os.path.exists(path) or os.path.isfile(path):
        write_whole(os.path.realpath(path), data)
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, "nobody reads this pipe", path) if error.errno == errno.ENXIO else error from None
    os.set_blocking(handle, True)
    with open(handle, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def read_given(path: StrPath, most: int = MOST_BYTES) -> bytes:
    """Read a file that the user named; a link is followed. Raises OSError for a pipe or a device, which may never end,
    and for a file of more than `most` bytes."""
    return _read(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path, most)


def read_start(path: StrPath, size: int) -> bytes:
    """Read the first `size` bytes of a file of any length. Raises OSError for a pipe or a device."""
    return _read(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), path, size, start=True)


def read_regular(path: StrPath, most: int = MOST_BYTES) -> bytes:
    """Read a file from a folder of untrusted origin. Raises OSError for a link, which could point anywhere, for a pipe
    or a device, and for a file of more than `most` bytes."""
    return _read(_open_regular(path), path, most)


def read_below(folder: StrPath, name: str) -> tuple[bytes, int]:
    """Read a file below an untrusted folder; return its bytes and its permissions.

    Raises OSError as read_regular does, and also if `name` leaves the folder or any part of it is a link.
    """
    path = Path(folder, name)
    *above, last = Path(name).parts or ("..",)
    if Path(name).is_absolute() or ".." in (*above, last):
        raise OSError(errno.EPERM, f"must be below {os.path.abspath(folder)}; copy it there", path)
    inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in above:
            outer, inner = inner, os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inner)
            os.close(outer)
        handle = _open_regular(last, inner)
    finally:
        os.close(inner)
    mode = stat.S_IMODE(os.fstat(handle).st_mode)
    return _read(handle, path, MOST_BYTES), mode


def _open_regular(path: StrPath, folder: int | None = None) -> int:
    """Open a file for reading. Raises OSError for a link. folder: open handle of the folder of relative paths."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, not a file; copy the file that it points to", path) from None
        raise


def _read(handle: int, path: StrPath, most: int, start: bool = False) -> bytes:
    """Read and close an open file. start: return only the first `most` bytes of a longer file, without an error."""
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):  # open() would leak a folder's handle, and name its number in the error
        os.close(handle)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    with open(handle, "rb", closefd=True) as file:
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, _NO_FILE, path)
        if status.st_size > most and not start:
            raise OSError(errno.EFBIG, f"{status.st_size:,} bytes, more than the {most:,} that are read", path)
        return file.read(most if start else -1)


def staged_beside(path: StrPath) -> str:
    """Make a temporary file name in the folder of `path`: write that file, then rename it to `path`.

    The name begins with STAGED and is unique among processes and threads.
    """
    name = f"{STAGED}{os.getpid()}-{threading.get_ident()}-{time.time_ns()}"
    return os.path.join(os.path.dirname(path), name)


def sync_folder(folder: StrPath) -> None:
    """Wait until a folder's list of names is on the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- the cache ------------------------------------------------------------------------------------


VARIABLE = "TRITONHOOK_CACHE"


def cache_folder() -> Path:
    """Find the cache folder: $TRITONHOOK_CACHE, else "tritonhook" in the user's cache folder. It may not exist yet."""
    import platformdirs

    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("tritonhook"))
