"""A capture keeps the text of its source files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureWriter, read_capture

AS_COMPILED, AFTER = "def k():\n    one\n", "def k():\n    two\n"


def keep(tmp_path: Path, kernel: str = "k", out: str = "out") -> tuple[Path, Path]:
    """Capture a kernel whose PTX names a source file; returns the record's folder and the file."""
    source = tmp_path / "k.py"
    source.write_text(AS_COMPILED)
    os.utime(source, ns=(1_000, 1_000))
    files = {Stage.PTX: tmp_path / f"{kernel}.ptx", Stage.CUBIN: tmp_path / f"{kernel}.cubin"}
    files[Stage.PTX].write_text(f'.file 1 "{source}"\n.file 2 "{tmp_path / "gone.py"}"\n.file 3 "/etc/passwd"\n')
    files[Stage.CUBIN].write_bytes(kernel.encode())
    paths: Mapping[Stage, str] = {stage: str(path) for stage, path in files.items()}
    record = CaptureWriter(tmp_path / out).add_files(Capture(kernel, "0" * 64, "sm_90a", paths), paths)
    return tmp_path / out / "kernels" / record, source


def test_the_text_is_that_of_the_compilation(tmp_path: Path) -> None:
    folder, source = keep(tmp_path)
    source.write_text(AFTER)
    assert dict(read_capture(folder).sources) == {str(source): AS_COMPILED}


def test_a_content_is_kept_once(tmp_path: Path) -> None:
    keep(tmp_path)
    keep(tmp_path, "other")
    assert len(list((tmp_path / "out" / "sources").iterdir())) == 1


@pytest.mark.parametrize(("changed", "text"), [(False, AS_COMPILED), (True, None)])
def test_of_an_older_capture_only_an_unchanged_file_is_read(tmp_path: Path, changed: bool, text: str | None) -> None:
    folder, source = keep(tmp_path)
    path = folder / "capture.json"
    document = json.loads(path.read_text())
    del document["sources"]
    path.write_text(json.dumps(document))
    if changed:
        source.write_text(AFTER)
        os.utime(source, ns=(1 << 62, 1 << 62))
    assert read_capture(folder).sources.get(str(source)) == text


def test_git_ignores_a_folder_that_the_writer_made(tmp_path: Path) -> None:
    keep(tmp_path)
    assert (tmp_path / "out" / ".gitignore").read_text() == "*\n"
    (tmp_path / "own").mkdir()
    keep(tmp_path, out="own")
    assert not (tmp_path / "own" / ".gitignore").exists()
