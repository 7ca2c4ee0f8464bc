"""Damaged and hostile capture folders: every verb that takes one shows what is whole, and says what is not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from damage import ODD_VALUES, damaged_bytes, damaged_json, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import GOLDEN

from tritonhook.capture.launches.schema import from_json
from tritonhook.capture.store import CaptureFolder, read_capture
from tritonhook.capture.store.reader import read_launches
from tritonhook.errors import CaptureError

from .conftest import ABUSE

FEWER = settings(ABUSE, max_examples=ABUSE.max_examples // 2)  # each of these runs four commands
RECORD = "foo-0123456789abcdef"
CAPTURE: dict[str, Any] = {
    "format": 1,
    "kernel": "foo",
    "hash": "0123456789abcdef",
    "arch": "sm_90a",
    "files": {"ttir": "foo.ttir", "ptx": "foo.ptx", "cubin": "foo.cubin"},
    "ptxas": {"path": "/opt/ptxas", "version": "12.8.93", "arguments": ["-v", "-lineinfo"]},
    "options": {"fp_fusion": True, "num_warps": 4, "maxnreg": None, "constants": {"BLOCK": 128}},
    "metadata": {"front_end": "nvcc", "command": ["nvcc", "x.cu"], "target": {"arch": 90}, "shared": 0},
    "cache_hit": False,
    "rewritten_from": "bar",
    "note": "a note",
    "source_stat": [1, 2],
}
INDEX: list[dict[str, Any]] = [
    {"format": 1, "host": "h", "rank": "0", "pid": 5, "process_ns": 7, "argv": ["x.py"], "python": "3.11.7"},
    {"record": RECORD, "kernel": "foo", "cache_hit": False, "time_ns": 9},
    {"winner": RECORD, "among": [RECORD, "other-0"], "tuning": "t", "by": "Triton"},
    {"launch": "abc", "of": RECORD, "count": 3},
    {"notes": ["a note"]},
]
LAUNCH: dict[str, Any] = {
    "format": 1,
    "kernel": "foo",
    "grid": [4, 1, 1],
    "block": [128],
    "cluster": [1, 1, 1],
    "shared": 0,
    "cooperative": False,
    "pdl": False,
    "buffers": [{"size": 64, "dtype": "float32", "values": "abc.0"}],
    "parameters": [
        {"kind": "pointer", "name": "x", "buffer": 0, "offset": 16, "dtype": "float32", "shape": [4], "stride": [1]},
        {"kind": "scalar", "name": "n", "type": "i32", "value": 5},
        {"kind": "scalar", "name": "a", "type": "fp32", "value": "inf"},
        {"kind": "scratch", "size": 0},
    ],
}


def folder(place: Path) -> Path:
    """A capture folder with one record, anew."""
    shutil.rmtree(place, ignore_errors=True)
    record = place / "kernels" / RECORD
    (record / "launches").mkdir(parents=True)
    (place / "index").mkdir()
    (record / "capture.json").write_text(json.dumps(CAPTURE))
    (record / "foo.ttir").write_text("module {}\n")
    shutil.copy(GOLDEN / "sm_90a.module.cubin", record / "foo.cubin")
    (record / "foo.ptx").write_text(".version 8.0\n.target sm_90a\n.visible .entry foo(){ret;}\n")
    (record / "launches" / "abc.json").write_text(json.dumps(LAUNCH))
    (place / "index" / "h-0-5-9.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in INDEX))
    return record


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures") / "c"


def try_all(place: Path, record: Path) -> None:
    """The verbs that read a folder and start no other program."""
    outcome("show", str(place))
    outcome("show", str(place), "--json")
    outcome("show", str(record), "--json")
    outcome("mem", "predict", str(place), "--gpu", "H100")


def test_what_is_damaged_below_is_whole(place: Path) -> None:
    record = folder(place)
    assert [capture.kernel for capture in CaptureFolder.open(place).captures().values()] == ["foo"]
    assert outcome("show", str(record))[0] == outcome("mem", "predict", str(place), "--gpu", "H100")[0] == 0


@settings(FEWER)
@given(damaged_json(CAPTURE))
def test_a_damaged_record_is_shown_or_named(place: Path, data: bytes) -> None:
    record = folder(place)
    (record / "capture.json").write_bytes(data)
    try_all(place, record)
    code, shown = outcome("show", str(record))
    assert code == 0 or str(record) in shown  # the file, or one that it names


@settings(FEWER)
@given(st.lists(st.sampled_from(INDEX).flatmap(damaged_json) | st.binary(max_size=40), max_size=6))
def test_a_damaged_index_loses_nothing_else(place: Path, lines: list[bytes]) -> None:
    record = folder(place)
    index = place / "index" / "h-0-5-9.jsonl"
    index.write_bytes(index.read_bytes() + b"\n".join(lines) + b"\n")
    try:
        assert RECORD in CaptureFolder.open(place).records
    except CaptureError as error:
        assert "capture format" in str(error)  # a line that says it is a newer format
    try_all(place, record)


@settings(ABUSE, max_examples=3 * ABUSE.max_examples)
@given(damaged_json(LAUNCH, most=2))
def test_a_damaged_launch_is_read_or_named(data: bytes) -> None:
    try:
        launch = from_json(data, "launch.json")
    except CaptureError as error:
        assert str(error).startswith("launch.json: not a recorded launch: ")
    else:
        assert launch.key and launch.summary and launch.bytes >= 0


@pytest.mark.parametrize("name", ["foo.cubin", "foo.ptx", "foo.ttir"])
def test_a_damaged_artifact_is_shown_or_named(name: str, place: Path) -> None:
    whole = (folder(place) / name).read_bytes()

    @settings(FEWER)
    @given(damaged_bytes(whole))
    def holds(data: bytes) -> None:
        record = folder(place)
        (record / name).write_bytes(data)
        try_all(place, record)

    holds()


ODD_FILES = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "link out": lambda path: path.symlink_to("/etc/passwd"),
    "link in a circle": lambda path: path.symlink_to(path),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "empty": lambda path: path.touch(),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("odd", ODD_FILES)
@pytest.mark.parametrize("name", ["capture.json", "foo.cubin", "foo.ptx", "foo.ttir", "launches/abc.json", "index"])
def test_odd_files_are_named_and_never_waited_for(odd: str, name: str, place: Path) -> None:
    record = folder(place)
    path = place / "index" / "h-0-5-9.jsonl" if name == "index" else record / name
    path.unlink()
    ODD_FILES[odd](path)
    try_all(place, record)
    if name == "foo.ptx":
        outcome("diff", str(record), "--rename", "--ptxas", "12.8.93")


@pytest.mark.parametrize("raw", ODD_VALUES, ids=lambda raw: raw[:20])
@pytest.mark.parametrize("field", ["options", "note", "ptxas"])
def test_each_odd_value_in_each_field(field: str, raw: str, place: Path) -> None:
    record = folder(place)
    text = json.dumps(CAPTURE | {field: "damaged here"}).replace('"damaged here"', raw)
    (record / "capture.json").write_text(text)
    code, shown = outcome("show", str(record))
    assert code == 0 or "capture.json: damaged" in shown or "capture format" in shown


@pytest.mark.parametrize("raw", ["[[]]", '{"a": [[[{}]]]}', "1e308", "9" * 400, '"\\u0000"'])
def test_an_odd_option_is_shown(raw: str, place: Path) -> None:
    record = folder(place)
    text = json.dumps(CAPTURE | {"options": {"fp_fusion": "x"}}).replace('"x"', raw)
    (record / "capture.json").write_text(text)
    assert read_capture(record).options
    assert outcome("show", str(record))[0] == 0


def test_documents_of_a_folder_are_read_up_to_a_size(tmp_path: Path) -> None:
    record = folder(tmp_path / "c")
    (record / "launches").mkdir(exist_ok=True)
    for name in ("launches/0.json", "capture.json"):
        with (record / name).open("wb") as sparse:
            sparse.truncate((1 << 25) + 1)
        with pytest.raises(CaptureError, match="33,554,433 bytes, more than the 33,554,432 that are read"):
            read_launches(record) if "launches" in name else read_capture(record)
    assert "33,554,433 bytes" in outcome("show", str(tmp_path / "c"))[1]


def test_an_index_of_very_many_lines_is_refused(tmp_path: Path) -> None:
    folder(tmp_path / "c")
    (index,) = (tmp_path / "c" / "index").iterdir()
    index.write_bytes(b"\n" * 300_000)
    code, shown = outcome("show", str(tmp_path / "c"))
    assert code == 2 and "300,000 lines, but the limit is 262,144" in " ".join(shown.split())
