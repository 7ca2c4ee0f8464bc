"""Reading capture folders: torn lines, damaged files, and folders that hold no captures. Needs no Triton."""

from __future__ import annotations

import json
import os
import time

import pytest
from stored_kernels import made

from tritonhook.capture.launches.record import Buffer, Launch, Pointer, Scalar
from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter, read_capture, read_launch
from tritonhook.capture.store import writer as writer_module
from tritonhook.capture.store.ids import digest_of
from tritonhook.errors import CaptureError


def test_what_was_kept_is_read_back(out, cache):
    capture, files = made(cache)
    writer = CaptureWriter(out, {"triton": "3.6.0"})
    record = writer.add_files(capture, files)
    writer.close(["a note"])
    folder = CaptureFolder.open(out)
    again = folder.capture(record)
    assert {stage: again.artifacts[stage] for stage in again.artifacts} == {
        Stage.TTIR: "ttir",
        Stage.PTX: ".version 8.7\n.target sm_90a\n",
        Stage.CUBIN: b"\x7fELF code",
    }
    for name in ("kernel", "hash", "arch", "assembler", "options", "metadata", "cache_hit", "rewritten_from", "note"):
        assert getattr(again, name) == getattr(capture, name)
    assert folder.records == (record,)
    assert folder.processes[0]["triton"] == "3.6.0" and folder.processes[0]["pid"] == os.getpid()
    assert folder.notes == ("a note",)
    assert [(s.kernel, s.cache_hit, s.rank) for s in folder.sightings] == [("add", False, "-")]


def test_what_a_dying_process_left_staged_is_no_record(out, cache):
    record = CaptureWriter(out).add_files(*made(cache))
    staged = out / "kernels" / f".{record}.1.2"
    staged.mkdir()
    (staged / "capture.json").write_text("{")
    assert CaptureFolder.open(out).records == (record,)


# --- parts of a folder ---------------------------------------------------------------------------


def test_a_kernel_is_found_by_the_beginning_of_its_id(out, cache):
    writer = CaptureWriter(out)
    first, second = (writer.add_files(*made(cache, name)) for name in ("add", "sub"))
    folder = CaptureFolder.open(out)
    assert folder.find(digest_of(first)[:8]) == f"kernels/{first}"
    assert folder.find(digest_of(second)) == f"kernels/{second}"
    assert folder.find("no digit") is None
    with pytest.raises(CaptureError, match="the ids of 2 kernels begin so; give more digits:") as raised:
        folder.find("")
    assert str(raised.value).splitlines()[1:] == [f"  {folder.ids[one]}  {one}" for one in (first, second)]


# --- launches ----------------------------------------------------------------------------------


def launch(size: int) -> Launch:
    parameters = (Pointer("x", 0, 0, "float32", (size,)), Scalar("n", "i32", size))
    return Launch("add", (8, 1, 1), (128, 1, 1), parameters, (Buffer(4 * size, "float32", "x.bin"),))


def test_launches_are_read_back_the_most_frequent_first(out, cache, monkeypatch):
    # given files in the opposite order: a launch whose process died before it counted, a rare one, a frequent one
    uncounted, rare, often = sorted(map(launch, (10, 20, 30)), key=lambda one: one.key)
    for counts in ({rare: 1, often: 2}, {often: 3}):
        writer = CaptureWriter(out)
        record = writer.add_files(*made(cache))
        for one in (uncounted, rare, often):
            writer.add_launch(record, one, {"x.bin": b"values"})
        writer.add_launch_counts({(record, one.key): count for one, count in counts.items()})
        writer.close()
        monkeypatch.setattr(writer_module, "_process_ns", writer_module._process_ns + 1)  # as in another process
    folder = CaptureFolder.open(out)
    found = folder.launches(record)
    assert [(one.launch, one.count) for one in found] == [(often, 5), (rare, 1), (uncounted, None)]
    place = out / "kernels" / record / "launches"
    assert {(one.record, one.folder) for one in found} == {(record, place)}
    assert (found[0].folder / "x.bin").read_bytes() == b"values"
    assert read_launch(place / f"{rare.key}.json") == rare


def test_a_launch_that_cannot_be_read_is_said(out, cache, tmp_path):
    writer = CaptureWriter(out)
    record = writer.add_files(*made(cache))
    writer.add_launch(record, launch(10), {})
    folder = CaptureFolder.open(out)
    (path,) = (out / "kernels" / record / "launches").iterdir()
    (path.parent / ".unfinished.json").write_text("{")
    assert len(folder.launches(record)) == 1
    whole = path.read_text()
    path.write_text("{")
    with pytest.raises(CaptureError, match=f"^{path}: "):
        folder.launches(record)
    path.unlink()
    with pytest.raises(CaptureError, match=f"^{path}: cannot be read: No such file"):
        read_launch(path)
    (tmp_path / "elsewhere.json").write_text(whole)
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(CaptureError, match=f"^{path}: cannot be read: a link"):
        folder.launches(record)


# --- folders that are none -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_what_is_no_capture_folder_is_said(tmp_path, kind):
    path = tmp_path / "here"
    if kind == "file":
        path.write_text("")
    elif kind == "empty":
        path.mkdir()
    with pytest.raises(
        CaptureError, match="no such file or folder" if kind == "missing" else "not a capture folder"
    ) as raised:
        CaptureFolder.open(path)
    assert (f"--out {path} " in str(raised.value)) == (kind != "file")  # a file cannot become a folder
    assert ("; give the folder that `tritonhook run" in str(raised.value)) == (kind == "file")


def test_a_folder_of_a_capture_folder_is_told_from_it(out, cache):
    CaptureWriter(out).add_files(*made(cache))
    with pytest.raises(CaptureError, match=rf"kernels: not a capture folder \(it has no index/\); give {out}$"):
        CaptureFolder.open(out / "kernels")


def test_a_kernel_folder_that_is_none_is_said(out, tmp_path):
    with pytest.raises(CaptureError, match="no capture.json"):
        read_capture(tmp_path)
    (tmp_path / "capture.json").write_text("{")
    with pytest.raises(CaptureError, match="capture.json: damaged: not JSON: .*truncated"):
        read_capture(tmp_path)


def test_a_capture_without_its_file_is_said(out, cache):
    record = CaptureWriter(out).add_files(*made(cache))
    (out / "kernels" / record / "add.cubin").unlink()
    with pytest.raises(CaptureError, match=r"add\.cubin: cannot read the capture"):
        _ = CaptureFolder.open(out).capture(record).cubin


def test_one_bad_record_does_not_end_a_listing(out, cache):
    writer = CaptureWriter(out)
    good, bad, gone = (writer.add_files(*made(cache, name)) for name in ("good", "bad", "gone"))
    writer.close()
    (out / "kernels" / bad / "capture.json").write_text("null")
    (out / "kernels" / gone / "capture.json").unlink()
    folder = CaptureFolder.open(out)
    assert folder.records == (good, bad, gone)
    results = [folder.try_capture(record) for record in folder.records]
    assert isinstance(results[0], Capture) and results[0].kernel == "good"
    assert [type(result) for result in results[1:]] == [CaptureError, CaptureError]


@pytest.mark.parametrize("what", ["pipe", "link"])
@pytest.mark.parametrize("name", ["capture.json", "add.cubin", "index"])
def test_a_pipe_or_a_link_in_a_capture_folder_is_named_and_not_read(out, cache, name, what):
    record = CaptureWriter(out).add_files(*made(cache))
    path = out / "index" / "0.jsonl" if name == "index" else out / "kernels" / record / name
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)  # whose reader would wait for ever
    else:
        path.symlink_to("/etc/passwd")
    with pytest.raises(CaptureError, match=f"{path}: cannot .*: a {what}"):
        _ = CaptureFolder.open(out).capture(record).cubin


LINES = [
    *("5", "null", "[]", "{}", '"x"', "true", '{"record": 5}', '{"record": "a"}', '{"notes": 5}', '{"notes": [5]}'),
    *('{"notes": null}', '{"format": "x"}', '{"format": null}', '{"record": "a", "kernel": 5, "cache_hit": true}'),
    '{"record": "a", "kernel": "a", "cache_hit": 5}',
    '{"record": "../../a", "kernel": "a", "cache_hit": true}',
    "[" * 100_000,
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:50])
def test_an_odd_index_line_is_counted_and_skipped(out, cache, line):
    writer = CaptureWriter(out)
    record = writer.add_files(*made(cache))
    writer.close()
    (index,) = (out / "index").glob("*.jsonl")
    whole = index.read_text().splitlines()
    index.write_text("\n".join([whole[0], line, *whole[1:]]) + "\n")
    folder = CaptureFolder.open(out)
    assert (folder.torn, folder.records, len(folder.processes), folder.notes) == (1, (record,), 1, ())


def test_odd_files_among_the_indexes_are_skipped(out, cache):
    writer = CaptureWriter(out)
    record = writer.add_files(*made(cache))
    writer.close()
    for name in ("foo-1.jsonl", "foo.jsonl", "-.jsonl", f"foo-{time.time_ns() * 2}.jsonl"):
        (out / "index" / name).mkdir()
    (out / "index" / "gone.jsonl").symlink_to("nowhere")
    for name in ("bar.jsonl", "bar-x.jsonl", "bar-1.jsonl"):
        (out / "index" / name).write_text("5\n")
    folder = CaptureFolder.open(out)
    assert (folder.records, folder.torn) == ((record,), 3)
    # an index without a time in its name counts as older
    assert (folder.since(2).torn, len(folder.since(2).sightings)) == (0, 1)
    assert not folder.since(time.time_ns()).sightings


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_of_indexes_that_may_not_be_listed_is_not_an_empty_one(out, cache):
    CaptureWriter(out).add_files(*made(cache))
    (out / "index").chmod(0)
    try:
        with pytest.raises(CaptureError, match="index: cannot read: Permission denied"):
            CaptureFolder.open(out)
    finally:
        (out / "index").chmod(0o755)


@pytest.mark.machine
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_index_that_may_not_be_read_is_said(out, cache):
    CaptureWriter(out).add_files(*made(cache))
    (index,) = (out / "index").glob("*.jsonl")
    index.chmod(0)
    with pytest.raises(CaptureError, match="cannot be read: Permission denied; make it readable"):
        CaptureFolder.open(out)


def test_two_writers_of_one_process_met_a_kernel_once(out, cache):
    # given two nested sessions that write to this folder
    capture, files = made(cache)
    for _ in range(2):
        writer = CaptureWriter(out)
        writer.add_files(capture, files)
        writer.close()
    folder = CaptureFolder.open(out)
    assert (len(folder.processes), len(folder.sightings)) == (2, 1)


def test_a_format_of_the_future_is_said(out, cache):
    writer = CaptureWriter(out)
    record = writer.add_files(*made(cache))
    writer.close()
    path = out / "kernels" / record / "capture.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(CaptureError, match="capture format 2; this tritonhook reads format 1"):
        read_capture(path.parent)
    (index,) = (out / "index").glob("*.jsonl")
    index.write_text(json.dumps({"format": 2, "new": "things"}) + "\n" + json.dumps({"record": "?"}) + "\n")
    with pytest.raises(CaptureError, match="capture format 2"):
        CaptureFolder.open(out)
