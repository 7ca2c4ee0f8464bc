"""Files that are whole or not there: written beside their place, then renamed into it.

Standard library only, and little of it: the ptxas wrapper and other programs' Pythons load this too.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from contextlib import suppress

StrPath = str | os.PathLike[str]
STAGED = ".tritonhook-"  # how names of unfinished files begin


def write_whole(path: StrPath, data: str | bytes, mode: int | None = None, sync: bool = False) -> None:
    """Write a file so that readers find all of it, or what was there before. A failure leaves nothing behind.

    path: replaced if it exists, also where it is a link. Its folder must exist.
    mode: the file's permissions; None: those that any new file gets.
    sync: wait until the disk has the file and its name.
    Raises OSError.
    """
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
        if isinstance(error, OSError) and error.errno is not None:  # it names the file that was staged
            raise OSError(error.errno, error.strerror, path) from None
        raise
    if sync:
        sync_folder(os.path.dirname(path) or ".")


def read_regular(path: StrPath) -> bytes:
    """Read a file of a folder that a stranger may have made. Raises OSError for a link, which may lead anywhere, and
    for a pipe or a device, which may never end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, not a file; copy the file that it points to", path) from None
        raise
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "a pipe or a device, not a file", path)
        return file.read()


def staged_beside(path: StrPath) -> str:
    """A new name in the folder of `path`, for what is renamed to `path` when it is whole.

    It begins with STAGED. No two processes or threads get the same name.
    """
    name = f"{STAGED}{os.getpid()}-{threading.get_ident()}-{time.time_ns()}"
    return os.path.join(os.path.dirname(path), name)


def sync_folder(folder: StrPath) -> None:
    """Wait until the disk has the names in a folder. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
