"""Files are whole or not there, whatever fails, and while others write."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tritonhook._util import files
from tritonhook._util.files import STAGED, staged_beside, write_whole


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
