"""Files are whole or not there, whatever fails, and while others write."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook._util import files
from tritonhook._util.files import (
    STAGED,
    cache_folder,
    read_given,
    read_regular,
    read_start,
    staged_beside,
    sync_folder,
    write_whole,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_and_bytes_are_written_and_replace_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "é")
    assert path.read_bytes() == "é".encode()
    write_whole(str(path), b"\0", sync=True)
    assert path.read_bytes() == b"\0"
    assert names(tmp_path) == ["file"]


def test_permissions_are_those_of_any_new_file_or_those_given(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "usual", "")
        write_whole(tmp_path / "given", "", mode=0o755)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "usual").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "given").stat().st_mode) == 0o755


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(path, "new", sync=True)
    assert raised.value.filename == path  # not the file that was staged
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [letter * 100_000 for letter in "abcdefgh"]
    threads = [threading.Thread(target=write_whole, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert names(tmp_path) == ["file"]
    assert Path(staged_beside(path)).name.startswith(STAGED)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A file of six bytes, a link to it, a link to nothing, a folder and a pipe."""
    found = {name: tmp_path / name for name in ("file", "link", "broken", "folder", "pipe")}
    found["file"].write_bytes(b"abcdef")
    found["link"].symlink_to("file")
    found["broken"].symlink_to("new")
    found["folder"].mkdir()
    os.mkfifo(found["pipe"])
    return found


NO_FILE = (errno.EINVAL, "a pipe or a device, not a file")
FOLDER = (errno.EISDIR, "Is a directory")
MORE = (errno.EFBIG, "6 bytes, more than the 5 that are read")
LINK = (errno.ELOOP, "a link, not a file; copy the file that it points to")
NONE = (errno.ENOENT, "No such file or directory")


@pytest.mark.parametrize(
    ("read", "answers"),
    [
        (read_given, {"file": b"abcdef", "link": b"abcdef", "folder": FOLDER, "pipe": NO_FILE, "broken": NONE}),
        (read_regular, {"file": b"abcdef", "link": LINK, "folder": FOLDER, "pipe": NO_FILE, "broken": LINK}),
        (lambda path: read_given(path, 5), {"file": MORE, "link": MORE}),
        (lambda path: read_regular(path, 5), {"file": MORE}),
        (lambda path: read_given(path, 6), {"file": b"abcdef"}),
        (lambda path: read_regular(path, 6), {"file": b"abcdef"}),
        (lambda path: read_start(path, 2), {"file": b"ab", "link": b"ab", "folder": FOLDER, "pipe": NO_FILE}),
        (lambda path: read_start(path, 9), {"file": b"abcdef", "broken": NONE}),
        (sync_folder, {"folder": None, "file": (errno.ENOTDIR, "Not a directory")}),
        (lambda path: write_whole(path, b""), {"pipe": NO_FILE, "folder": FOLDER}),
    ],
)
def test_what_is_no_file_is_said(places: dict[str, Path], read: Callable[[Path], object], answers: object) -> None:
    def answer(path: Path) -> object:
        try:
            return read(path)
        except OSError as error:
            assert str(error.filename) == str(path)
            return error.errno, error.strerror

    assert isinstance(answers, dict)
    assert {name: answer(places[name]) for name in answers} == answers


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/x/cache")
    for value, folder in (("/a/b", "/a/b"), ("", "/home/x/cache/tritonhook")):
        monkeypatch.setenv("TRITONHOOK_CACHE", value)
        assert cache_folder() == Path(folder)
