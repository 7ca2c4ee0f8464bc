"""Writing capture folders: errors, full disks, threads and processes lose and tear nothing. Needs no Triton."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hangs import HANG_S
from stored_kernels import KERNELS, keep_module, kept, made

from tritonhook.capture.model import Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter, read_capture
from tritonhook.capture.store import writer as writer_module
from tritonhook.errors import CaptureError

# --- what is kept --------------------------------------------------------------------------------


def test_a_kernel_met_again_is_not_stored_again(out, cache):
    capture, files = made(cache)
    first, second = CaptureWriter(out), CaptureWriter(out)
    assert len({writer.add_files(capture, files) for writer in (first, first, second)}) == 1
    # nor is the same code after another compile, whose file has another time
    assert first.add_files(*made(cache)) == kept(out)[0]
    assert len(kept(out)) == 1


def test_other_bytes_under_one_name_and_hash_are_another_record(out, cache):
    writer = CaptureWriter(out)
    records = [writer.add_files(*made(cache, cubin=code)) for code in (b"\x7fELF a", b"\x7fELF b", b"\x7fELF a")]
    assert records == ["add-0000000000000000", "add-0000000000000000-1", "add-0000000000000000"]
    assert [read_capture(out / "kernels" / record).cubin for record in records[:2]] == [b"\x7fELF a", b"\x7fELF b"]


def test_more_stages_of_the_same_code_are_another_record(out, cache):
    capture, files = made(cache)
    writer = CaptureWriter(out)
    writer.add_files(capture, {Stage.CUBIN: files[Stage.CUBIN]})
    record = CaptureWriter(out).add_files(capture, files)
    assert set(read_capture(out / "kernels" / record).artifacts) == set(files)


def test_nothing_that_is_kept_can_be_run(out, cache):
    writer = CaptureWriter(out)
    writer.add_files(*made(cache))
    assert writer.add_crash("add", "ptx", {}).is_dir()
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) == 8
    assert not any(path.stat().st_mode & 0o111 for path in files)


def test_the_kernels_of_one_module_share_their_files(out, cache, monkeypatch):
    def places(folder: CaptureFolder) -> list[int]:
        return [
            (folder.path / "kernels" / r / f"{k}.cubin").stat().st_ino
            for r, k in zip(folder.records, KERNELS, strict=True)
        ]

    assert len(set(places(keep_module(out, cache)))) == 1

    def no_links(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(writer_module.os, "link", no_links)  # as on a file system without links
    copied = keep_module(out.with_name("copied"), cache)
    assert len(set(places(copied))) == len(KERNELS)
    assert len({copied.capture(record).cubin for record in copied.records}) == 1


def test_a_writer_that_was_closed_begins_another_index(out, cache):
    writer = CaptureWriter(out)
    writer.add_files(*made(cache, "first"))
    writer.close()
    writer.close()
    writer.add_files(*made(cache, "second"))
    writer.close()
    folder = CaptureFolder.open(out)
    assert ([sighting.kernel for sighting in folder.sightings], len(folder.processes)) == (["first", "second"], 2)


def test_after_a_fork_a_writer_knows_nothing_and_begins_another_index(out, cache):
    writer = CaptureWriter(out)
    capture, files = made(cache)
    record = writer.add_files(capture, files)
    writer.after_fork()
    assert writer.known("add", capture.hash, files) is None
    assert writer.add_files(capture, files) == record
    writer.close()
    assert (kept(out), len(CaptureFolder.open(out).processes)) == ([record], 2)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/abs", "..", ".", "", ".hidden", "a b\nc", "x" * 300, "日" * 300, "a\0b", "-rf", "$(id)"],
)
def test_hostile_kernel_names_stay_inside_the_folder(out, cache, name):
    before = {path for path in out.parent.rglob("*") if out not in path.parents}
    capture, files = made(cache, kernel=name)
    record = CaptureWriter(out).add_files(capture, files)
    folder = CaptureFolder.open(out)
    assert folder.records == (record,)
    assert folder.capture(record).kernel == name
    assert folder.capture(record).cubin == b"\x7fELF code"
    assert CaptureWriter(out).add_crash(name, "ptx", {}).parent == out / "crashes"
    after = {path for path in out.parent.rglob("*") if out not in path.parents}
    sources = [Path(path) for path in files.values()]
    assert after - before <= {out, *sources, *(path.parent for path in sources)}


def test_what_killed_processes_left_goes_after_a_day(out, cache, tmp_path):
    CaptureWriter(out).add_files(*made(cache))
    staging, elsewhere = out / ".staging", tmp_path / "elsewhere"
    assert list(staging.iterdir()) == []
    for folder in (staging / "yesterday", staging / "now", elsewhere):
        folder.mkdir()
        (folder / "add.cubin").write_bytes(b"half")
    (staging / "file").write_bytes(b"half")
    (staging / "link").symlink_to(elsewhere)
    for name in ("yesterday", "file", "link"):
        os.utime(staging / name, (0, time.time() - 25 * 3600), follow_symlinks=False)
    os.utime(staging / "now", (0, time.time() - 23 * 3600))
    CaptureWriter(out)
    assert [path.name for path in staging.iterdir()] == ["now"]
    assert (elsewhere / "add.cubin").read_bytes() == b"half"


# --- errors --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match=r"file/below: cannot keep captures there: Not a directory; choose another"):
        CaptureWriter(tmp_path / "file" / "below")


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_an_error_at_once(out):
    out.mkdir(mode=0o500)
    with pytest.raises(CaptureError, match="Permission denied"):
        CaptureWriter(out)


def full_disk(*arguments: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["sendfile", "write"])
def test_a_full_disk_loses_the_capture_and_leaves_nothing_half_written(out, cache, monkeypatch, call):
    writer = CaptureWriter(out)
    capture, files = made(cache)
    with monkeypatch.context() as patch:
        patch.setattr(writer_module.os, call, full_disk)
        with pytest.raises(OSError, match="No space left"):
            writer.add_files(capture, files)
    # the record is whole or absent, and the kernel is kept once there is room again
    assert all(not name.startswith(".") for name in kept(out))
    record = writer.add_files(capture, files)
    writer.close()
    folder = CaptureFolder.open(out)
    assert [sighting.record for sighting in folder.sightings] == [record]
    assert folder.capture(record).cubin == b"\x7fELF code"
    assert folder.torn == 0


def test_a_disk_that_fills_up_within_a_line_tears_that_line_only(out, cache, monkeypatch):
    writer = CaptureWriter(out)
    writer.add_files(*made(cache, "first"))
    write = os.write

    def write_part_of_a_record(file: int, data: bytes) -> int:
        return write(file, data[:20] if data.startswith(b'{"record') else data)

    with monkeypatch.context() as patch:
        patch.setattr(writer_module.os, "write", write_part_of_a_record)
        with pytest.raises(OSError, match="No space left"):
            writer.add_files(*made(cache, "second"))
    writer.add_files(*made(cache, "third"))
    writer.close()
    folder = CaptureFolder.open(out)
    assert [sighting.kernel for sighting in folder.sightings] == ["first", "third"]
    assert folder.torn == 1
    assert len(folder.processes) == 2
    assert len(folder.records) == 3


def test_a_source_that_shrinks_is_an_error(out, cache, monkeypatch):
    capture, files = made(cache)
    monkeypatch.setattr(writer_module.os, "sendfile", lambda *arguments: 0)
    with pytest.raises(OSError, match="became shorter"):
        CaptureWriter(out).add_files(capture, files)
    assert kept(out) == []


# --- several processes and threads ---------------------------------------------------------------


def test_a_forked_child_has_an_index_of_its_own_and_no_stuck_lock(out, cache):
    writer = CaptureWriter(out)
    writer.add_files(*made(cache, "parent"))
    locked, release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with writer._lock:
            locked.set()
            release.wait(HANG_S)

    holder = threading.Thread(target=hold_the_lock)
    holder.start()
    locked.wait(HANG_S)
    pid = os.fork()
    if pid == 0:
        signal_after(HANG_S)
        writer.add_files(*made(cache, "child"))
        writer.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    release.set()
    holder.join()
    writer.add_files(*made(cache, "parent again"))
    writer.close()
    folder = CaptureFolder.open(out)
    assert {process["pid"] for process in folder.processes} == {os.getpid(), pid}
    by_process: dict[str, list[str]] = {}
    for sighting in folder.sightings:
        by_process.setdefault(sighting.process, []).append(sighting.kernel)
    assert sorted(by_process.values()) == [["child"], ["parent", "parent again"]]


def signal_after(seconds: int) -> None:
    """End this process if it still runs after so many seconds."""
    import signal

    signal.alarm(seconds)


def test_a_rank_that_is_no_number_is_none(out, cache, monkeypatch):
    for name in writer_module._RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "gold/1")  # must not become part of a file name
    monkeypatch.setenv("SLURM_PROCID", "3")
    writer = CaptureWriter(out)
    writer.add_files(*made(cache))
    writer.close()
    assert CaptureFolder.open(out).ranks == ("3",)


def test_a_damaged_record_is_not_taken_for_the_kernel(out, cache):
    capture, files = made(cache)
    first = CaptureWriter(out).add_files(capture, files)
    for damage in ("null", '{"format": 1, "files": []}', "[" * 100_000):
        (out / "kernels" / first / "capture.json").write_text(damage)
        record = CaptureWriter(out).add_files(capture, files)
        assert record == f"{first}-1"
        assert read_capture(out / "kernels" / record).cubin == b"\x7fELF code"
