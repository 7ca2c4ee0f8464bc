"""`show`: what is read of a folder, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_kernels import KERNELS, MODULE, keep_module
from work import is_linear

from tritonhook.capture.model import Capture
from tritonhook.capture.store import CaptureFolder, by_module
from tritonhook.cubin.image import Cubin
from tritonhook.report.documents.captures import captures_document
from tritonhook.report.summaries.captures import captures_summary


@pytest.mark.parametrize("linked, reads", [(True, 1), (False, 3)])
def test_the_files_of_a_module_are_read_once(tmp_path: Path, monkeypatch: Any, linked: bool, reads: int) -> None:
    (tmp_path / "cache").mkdir()
    folder = keep_module(tmp_path / "out", tmp_path / "cache", linked)
    read: list[str] = []
    files = type(folder.capture(folder.records[0]).artifacts)
    get = files.__getitem__
    monkeypatch.setattr(files, "__getitem__", lambda self, stage: (read.append(stage.value), get(self, stage))[1])
    document = captures_document(folder)
    assert sorted(read) == ["cubin"] * reads + ["ptx"] * reads
    cubin = Cubin.from_bytes(MODULE)
    assert {k["kernel"]: k["resources"]["code_bytes"] for k in document["kernels"]} == {
        kernel: len(cubin.text(kernel)) for kernel in KERNELS
    }
    assert document["notes"] == []


def test_work_grows_as_the_number_of_kernels(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()

    def listed(count: int) -> Callable[[], object]:
        kernels = [f"k{number}" for number in range(count)]
        folder = keep_module(tmp_path / str(time.monotonic_ns()), tmp_path / "cache", kernels=kernels)
        return lambda: captures_summary(captures_document(folder))

    assert is_linear(listed)


def test_a_record_is_read_once(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "cache").mkdir()
    folder = keep_module(tmp_path / "out", tmp_path / "cache")
    read: list[str] = []
    capture = CaptureFolder.capture
    monkeypatch.setattr(CaptureFolder, "capture", lambda self, name: (read.append(name), capture(self, name))[1])
    captures_document(folder)
    assert sorted(read) == sorted(folder.records)


def test_a_module_that_cannot_be_read_gives_one_note(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    folder = keep_module(tmp_path / "out", tmp_path / "cache", image=MODULE[:500])
    document = captures_document(folder)
    assert [k["resources"] for k in document["kernels"]] == [None] * 3
    (note,) = document["notes"]
    assert all(record in note for record in folder.records) and "truncated" in note


def test_captures_without_files_are_modules_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    folder = keep_module(tmp_path / "out", tmp_path / "cache")
    captures = {record: c for record, c in folder.captures().items() if isinstance(c, Capture)}
    assert [len(module) for module in by_module(captures)] == [3]
    for record in folder.records[:2]:
        for path in (tmp_path / "out" / "kernels" / record).glob("*.cubin"):
            path.unlink()
    assert [len(module) for module in by_module(captures)] == [1, 1, 1]
