"""Capture folders on disk: nothing is lost, nothing is torn, and what cannot be kept is said. No Triton here."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT, SUPPORT

from tritonhook.capture import store
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter, read_capture
from tritonhook.errors import CaptureError


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where a compiler would leave its artifacts."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def made(cache: Path, kernel: str = "add", cubin: bytes = b"\x7fELF code", hash: str = "0" * 64) -> Any:
    """A kernel as a compiler leaves it: (Capture, its files)."""
    folder = cache / str(time.monotonic_ns())
    folder.mkdir()
    contents = {Stage.TTIR: b"ttir", Stage.PTX: b".version 8.7\n.target sm_90a\n", Stage.CUBIN: cubin}
    files = {stage: f"{folder}/{number}.{stage.value}" for number, stage in enumerate(contents)}
    for stage, path in files.items():
        Path(path).write_bytes(contents[stage])
    assembler = Assembler("/bin/ptxas", "12.8.93", ("-v", "--gpu-name=sm_90a"))
    capture = Capture(kernel, hash, "sm_90a", dict.fromkeys(files, ""), assembler, {"num_warps": 4}, {"a": [1]}, False)
    return capture, files


def kept(out: Path) -> list[str]:
    """All names below OUT/kernels, the hidden ones too."""
    return sorted(path.name for path in (out / "kernels").iterdir())


# --- writing and reading back --------------------------------------------------------------------


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


def test_a_kernel_met_again_is_not_stored_again(out, cache):
    capture, files = made(cache)
    first, second = CaptureWriter(out), CaptureWriter(out)
    assert len({writer.add_files(capture, files) for writer in (first, first, second)}) == 1
    # and neither is the same code that was compiled anew, which has another time
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


# --- trouble -------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match=r"file/below: cannot keep captures there: Not a directory; choose another"):
        CaptureWriter(tmp_path / "file" / "below")


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
        patch.setattr(store.os, call, full_disk)
        with pytest.raises(OSError, match="No space left"):
            writer.add_files(capture, files)
    # the record is whole or absent, and after there is room again the kernel is kept
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
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "write", lambda f, data: write(f, data[:20] if data.startswith(b'{"record') else data))
        with pytest.raises(OSError, match="No space left"):
            writer.add_files(*made(cache, "second"))
    writer.add_files(*made(cache, "third"))
    writer.close()
    folder = CaptureFolder.open(out)
    assert [sighting.kernel for sighting in folder.sightings] == ["first", "third"]
    assert folder.torn == 1
    assert len(folder.processes) == 2
    assert len(folder.records) == 3


def test_a_torn_last_line_is_counted_and_tolerated(out, cache):
    writer = CaptureWriter(out)
    record = writer.add_files(*made(cache))
    writer.close()
    (index,) = (out / "index").glob("*.jsonl")
    with index.open("ab") as file:
        file.write(b'{"record": "add-\xff\xfe')
    folder = CaptureFolder.open(out)
    assert folder.torn == 1
    assert folder.records == (record,)


def test_what_a_dying_process_left_staged_is_no_record(out, cache):
    record = CaptureWriter(out).add_files(*made(cache))
    staged = out / "kernels" / f".{record}.1.2"
    staged.mkdir()
    (staged / "capture.json").write_text("{")
    assert CaptureFolder.open(out).records == (record,)


def test_a_source_that_shrinks_is_an_error(out, cache, monkeypatch):
    capture, files = made(cache)
    monkeypatch.setattr(store.os, "sendfile", lambda *arguments: 0)
    with pytest.raises(OSError, match="became shorter"):
        CaptureWriter(out).add_files(capture, files)
    assert kept(out) == []


def test_a_source_that_is_gone_is_an_error(out, cache):
    capture, files = made(cache)
    Path(files[Stage.PTX]).unlink()
    with pytest.raises(FileNotFoundError):
        CaptureWriter(out).add_files(capture, files)
    assert kept(out) == []


# --- several processes and threads ---------------------------------------------------------------

WORKER = """
import sys
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from tests.capture.test_store import made, CaptureWriter
out, cache = Path(sys.argv[3]), Path(sys.argv[4])
writer = CaptureWriter(out)
print("ready", flush=True)
sys.stdin.readline()
for number in range(5):
    writer.add_files(*made(cache, f"kernel{number}", hash=f"{number:064d}"))
writer.close()
"""


def test_eight_processes_with_the_same_kernels_lose_and_tear_nothing(out, tmp_path):
    here = SUPPORT
    workers = []
    for number in range(8):
        cache = tmp_path / f"cache{number}"
        cache.mkdir()
        command = [sys.executable, "-c", WORKER, str(here), str(ROOT), str(out), str(cache)]
        workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert [worker.wait(60) for worker in workers] == [0] * 8
    for worker in workers:
        worker.stdin.close()  # type: ignore[union-attr]
        worker.stdout.close()  # type: ignore[union-attr]
    folder = CaptureFolder.open(out)
    assert folder.torn == 0
    assert len(folder.processes) == 8
    assert len(folder.sightings) == 40
    assert kept(out) == [f"kernel{number}-{'0' * 16}" for number in range(5)]
    for record in folder.records:
        capture = folder.capture(record)
        assert capture.cubin == b"\x7fELF code"
        assert set(capture.artifacts) == {Stage.TTIR, Stage.PTX, Stage.CUBIN}
        assert capture.ptx.target == "sm_90a"


def test_another_process_that_was_faster_is_believed(out, cache, monkeypatch):
    # given two writers that both see no record and both write one
    capture, files = made(cache)
    other = CaptureWriter(out)
    copy = store._copy

    def while_another_finishes(source: str, target: str) -> None:
        monkeypatch.setattr(store, "_copy", copy)
        other.add_files(capture, files)
        copy(source, target)

    monkeypatch.setattr(store, "_copy", while_another_finishes)
    assert CaptureWriter(out).add_files(capture, files) == kept(out)[0]
    assert len(kept(out)) == 1


def test_a_forked_child_has_an_index_of_its_own_and_no_stuck_lock(out, cache):
    writer = CaptureWriter(out)
    writer.add_files(*made(cache, "parent"))
    locked, release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with writer._lock:
            locked.set()
            release.wait(60)

    holder = threading.Thread(target=hold_the_lock)
    holder.start()
    locked.wait(60)
    pid = os.fork()
    if pid == 0:
        signal_after(30)
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
    """End this process if it hangs."""
    import signal

    signal.alarm(seconds)


def test_threads_share_one_index(out, cache):
    writer = CaptureWriter(out)
    todo = [made(cache, f"kernel{number % 5}", hash=f"{number % 5:064d}") for number in range(20)]
    threads = [threading.Thread(target=writer.add_files, args=item) for item in todo]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    folder = CaptureFolder.open(out)
    assert (len(folder.records), len(folder.processes), folder.torn) == (5, 1, 0)


def test_the_rank_is_kept(out, cache, monkeypatch):
    for name in store._RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "3")
    writer = CaptureWriter(out)
    writer.add_files(*made(cache))
    writer.close()
    folder = CaptureFolder.open(out)
    assert folder.processes[0]["rank"] == "3" and folder.sightings[0].rank == "3"


def test_a_rank_that_is_no_number_is_none(out, cache, monkeypatch):
    for name in store._RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "gold/1")  # no file name either
    monkeypatch.setenv("SLURM_PROCID", "3")
    writer = CaptureWriter(out)
    writer.add_files(*made(cache))
    writer.close()
    assert CaptureFolder.open(out).ranks == ("3",)


def test_a_kernel_is_found_among_the_sightings_of_its_own_part(out, cache, monkeypatch):
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        writer = CaptureWriter(out)
        record = writer.add_files(*made(cache))
        writer.close()
        monkeypatch.setattr(store, "_process_ns", store._process_ns + 1)  # as in another process
    folder = CaptureFolder.open(out)
    assert [s.rank for s in folder.seen(record)] == ["0", "1"]
    assert [s.rank for s in folder.of_rank("1").seen(record)] == ["1"]  # not what the whole folder remembers
    assert folder.seen("another") == ()


# --- folders that are none -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_what_is_no_capture_folder_is_said(tmp_path, kind):
    path = tmp_path / "here"
    if kind == "file":
        path.write_text("")
    elif kind == "empty":
        path.mkdir()
    with pytest.raises(CaptureError, match="no such folder" if kind == "missing" else "not a capture folder") as raised:
        CaptureFolder.open(path)
    assert (f"--out {path} " in str(raised.value)) == (kind != "file")  # a file cannot become a folder


def test_a_kernel_folder_that_is_none_is_said(out, tmp_path):
    with pytest.raises(CaptureError, match="no capture.json"):
        read_capture(tmp_path)
    (tmp_path / "capture.json").write_text("{")
    with pytest.raises(CaptureError, match="cannot be read"):
        read_capture(tmp_path)


def test_a_capture_without_its_file_is_said(out, cache):
    record = CaptureWriter(out).add_files(*made(cache))
    (out / "kernels" / record / "add.cubin").unlink()
    with pytest.raises(CaptureError, match=r"add\.cubin: cannot read the capture"):
        _ = CaptureFolder.open(out).capture(record).cubin


WHOLE = {
    "format": 1,
    "kernel": "add",
    "hash": "0",
    "arch": "sm_90a",
    "files": {"ptx": "add.ptx"},
    "ptxas": {"path": None, "version": None, "arguments": None},
    "options": {},
    "metadata": {},
    "cache_hit": None,
    "rewritten_from": None,
    "note": None,
}
ODD: list[Any] = [None, 5, "text", [], {}, True, [5], {"a": 5}]


def damaged_notes() -> dict[str, str]:
    """Every way in which one value of capture.json can be missing or odd, and some in which all of it is."""
    texts = {json.dumps(value): json.dumps(value) for value in (None, 5, "text", [], {"format": 1})}
    texts["too deep"] = "[" * 100_000
    texts["no UTF-8"] = "\udcff"
    for name in WHOLE:
        texts[f"no {name}"] = json.dumps({key: value for key, value in WHOLE.items() if key != name})
    for name in ("path", "version", "arguments"):
        texts[f"no ptxas.{name}"] = json.dumps(WHOLE | {"ptxas": {n: None for n in WHOLE["ptxas"] if n != name}})
    for name, value in WHOLE.items():
        for odd in ODD:
            if type(odd) is not type(value) and odd != value and not (value is None and isinstance(odd, (bool, str))):
                texts[f"{name}: {odd!r}"] = json.dumps(WHOLE | {name: odd})
    for odd in ("../add.ptx", "/etc/passwd", "..", "", "a\0b", "\ud800", 5, None):
        texts[f"file {odd!r}"] = json.dumps(WHOLE | {"files": {"ptx": odd}})
    return texts


def test_the_note_that_is_damaged_below_is_whole(tmp_path):
    (tmp_path / "capture.json").write_text(json.dumps(WHOLE))
    assert read_capture(tmp_path).kernel == "add"
    assert read_capture(str(tmp_path)).arch == "sm_90a"


DAMAGED = damaged_notes()


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_note_is_said(tmp_path, text):
    (tmp_path / "capture.json").write_text(text, errors="surrogateescape")
    with pytest.raises(CaptureError, match=r"capture\.json: (damaged: .+; delete its folder|cannot be read|capture f)"):
        read_capture(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"files": []},
            r"damaged: files is \[\], not file names by stage; delete its folder and capture the kernel ag",
        ),
        ({"ptxas": {}}, "damaged: it has no ptxas.path"),
        ({"ptxas": WHOLE["ptxas"] | {"arguments": [5]}}, r"ptxas.arguments is \[5\], not texts or null"),
        ({"options": None}, "damaged: options is null, not an object"),
        ({"kernel": 5}, "damaged: kernel is 5, not a text"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, change, message):
    (tmp_path / "capture.json").write_text(json.dumps(WHOLE | change))
    with pytest.raises(CaptureError, match=message):
        read_capture(tmp_path)


def test_a_damaged_record_is_not_taken_for_the_kernel(out, cache):
    capture, files = made(cache)
    first = CaptureWriter(out).add_files(capture, files)
    for damage in ("null", '{"format": 1, "files": []}', "[" * 100_000):
        (out / "kernels" / first / "capture.json").write_text(damage)
        record = CaptureWriter(out).add_files(capture, files)
        assert record == f"{first}-1"
        assert read_capture(out / "kernels" / record).cubin == b"\x7fELF code"


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

    from rich.console import Console

    from tritonhook.report.json import captures_document
    from tritonhook.report.terminal import render_captures

    document = captures_document(folder)
    assert [kernel["kernel"] for kernel in document["kernels"]] == ["good"]
    assert [(item["record"], "capture.json" in item["error"]) for item in document["damaged"]] == [
        (bad, True),
        (gone, True),
    ]
    # its cubin is no real one either, which costs the number of registers only
    console = Console(width=1000, color_system=None)
    with console.capture() as captured:
        console.print(render_captures(folder))
    text = " ".join(captured.get().split())
    assert "good Triton sm_90a 12.8.93 not known ttir ptx cubin 1 0" in text
    assert f"{bad}/capture.json: damaged: it holds null, not an object" in text
    assert f"{gone}: not a capture: no capture.json" in text


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


@pytest.mark.parametrize("header", ["torn", {}, {"rank": 5}, {"host": [], "pid": {}, "process_ns": None}])
def test_an_odd_header_costs_nothing_else(out, cache, header):
    writer = CaptureWriter(out)
    record = writer.add_files(*made(cache))
    writer.close()
    (index,) = (out / "index").glob("*.jsonl")
    line = header if isinstance(header, str) else json.dumps({"format": 1} | header)
    index.write_text("\n".join([line, *index.read_text().splitlines()[1:]]))
    assert [sighting.record for sighting in CaptureFolder.open(out).sightings] == [record]


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
    # what has no time in its name was not written since any
    assert (folder.since(2).torn, len(folder.since(2).sightings)) == (0, 1)
    assert not folder.since(time.time_ns()).sightings


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_of_indexes_that_may_not_be_listed_is_not_an_empty_one(out, cache):
    CaptureWriter(out).add_files(*made(cache))
    (out / "index").chmod(0)
    try:
        with pytest.raises(CaptureError, match="index: cannot read: Permission denied"):
            CaptureFolder.open(out)
    finally:
        (out / "index").chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_index_that_may_not_be_read_is_said(out, cache):
    CaptureWriter(out).add_files(*made(cache))
    (index,) = (out / "index").glob("*.jsonl")
    index.chmod(0)
    with pytest.raises(CaptureError, match="cannot be read: Permission denied; make it readable"):
        CaptureFolder.open(out)


def test_a_folder_is_opened_by_text_too(out, cache):
    record = CaptureWriter(out).add_files(*made(cache))
    folder = CaptureFolder.open(str(out))
    assert (folder.path, folder.records, folder.capture(record).kernel) == (out, (record,), "add")


def test_two_writers_of_one_process_met_a_kernel_once(out, cache):
    # given a session within a session, both of which write to this folder
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
