"""Files that are no files, or have no end: every verb refuses to read them, and replaces none of them."""

from __future__ import annotations

import os
import shlex
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import outcome
from hangs import HANG_S
from repository import GOLDEN

from tests.abuse.test_captures import CAPTURE, folder
from tritonhook._util.files import read_regular, write_given, write_whole
from tritonhook.cli import main

PTX = str(GOLDEN / "triton.sm_90.ptx")
CUBIN = shlex.quote(str(GOLDEN / "sm_90a.exp.plain.cubin"))
READERS = [
    "show {}",
    "diff {} " + CUBIN,
    "diff " + CUBIN + " {}",
    "rename {} --strip",
    "check {}",
    "mem predict {} --gpu H100",
    "lab probe {}",
    "bisect {} --good 12.8.93 --bad 13.5.37 --at-hand",
    "diff --rename {}",
    "ab --from {}",
    "verify --known {}",
    "tune --check -o {}",
    "run --policy {} script.py",
    "tune {} --assemble-only",
    "lock {}",
]


def _device(path: Path) -> None:
    """A device of our own, as /dev/zero; for root only."""
    if os.geteuid():
        pytest.skip("only root makes devices")
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))


def _endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no space


def _link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "link to a pipe": _link_to_pipe,
    "device": _device,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "too large": _endless,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").touch()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("line", READERS, ids=lambda line: line.split(" {}")[0].replace(CUBIN, "CUBIN"))
def test_no_verb_reads_what_is_no_file(line: str, odd: str) -> None:
    ODD[odd](Path("odd"))
    code, shown = outcome(*shlex.split(line.format("odd")))
    assert code == 2 and "odd" in shown


def test_the_message_has_the_number() -> None:
    _endless(Path("odd"))
    assert (
        "odd: cannot read: 1,099,511,627,776 bytes, more than the 4,294,967,296 that are read"
        in outcome("rename", "odd", "--strip")[1]
    )


@pytest.mark.parametrize("odd", ODD)
def test_what_a_launch_names_is_read_with_a_limit(odd: str) -> None:
    ODD[odd](Path("odd"))
    with pytest.raises(OSError, match="not a file|more than the|a link"):
        read_regular("odd")


@pytest.mark.parametrize("odd", ["too large"])
def test_a_stage_without_end_is_named(odd: str) -> None:
    record = folder(Path("c"))
    (record / CAPTURE["files"]["ptx"]).unlink()
    ODD[odd](record / CAPTURE["files"]["ptx"])
    assert "more than the 134,217,728 that are read" in outcome("diff", "--rename", str(record))[1]


# --- writing

WRITERS = [
    "lock c -o {} --force",
    f"rename {shlex.quote(PTX)} --prefix x_ -o {{}} --force",
    "show c --html {} --force",
    "show c --save {} --force",
    "tune c -o {}",
]
IDS = [line.split()[0] + line.rpartition("{}")[0][-8:].strip() for line in WRITERS]


@pytest.mark.parametrize("line", WRITERS, ids=IDS)
@pytest.mark.parametrize("odd", ["pipe", "link to a pipe", "device"])
def test_nothing_is_replaced_that_is_no_file(line: str, odd: str) -> None:
    """A pipe that nobody reads is not waited for; a device stays one, written to or not."""
    folder(Path("c"))
    ODD[odd](Path("odd"))
    before = os.lstat("odd")
    code, shown = outcome(*shlex.split(line.format("odd")))
    after = os.lstat("odd")
    assert (before.st_ino, before.st_mode, before.st_rdev) == (after.st_ino, after.st_mode, after.st_rdev)
    assert code in (0, 1) if odd == "device" and "lock" not in line and "tune" not in line else code == 2, shown
    assert not Path("odd.d").exists()


@pytest.mark.parametrize("line", [line for line in WRITERS if "tune" not in line], ids=IDS[:-1])
def test_a_link_is_followed_and_stays(line: str) -> None:
    folder(Path("c"))
    Path("elsewhere").mkdir()
    Path("odd").symlink_to("elsewhere/file")
    assert outcome(*shlex.split(line.format("odd")))[0] in (0, 1)
    assert Path("odd").is_symlink() and Path("elsewhere/file").stat().st_size > 100


def test_a_pipe_that_is_read_gets_all_of_it() -> None:
    os.mkfifo("pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe").read_bytes()))
    handle = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)  # so that the writer finds a reader at once
    reader.start()
    write_given("pipe", b"x" * 1_000_000)
    reader.join(HANG_S)
    os.close(handle)
    assert len(got[0]) == 1_000_000


def test_a_folder_and_a_dash_are_refused() -> None:
    folder(Path("c"))
    assert "c: a folder; name a file in it" in outcome("lock", "c", "-o", "c")[1]
    assert "-: standard output" in outcome("lock", "c", "-o", "-")[1]


def test_a_dash_is_standard_output_for_what_is_written_there_anyway(capsys: pytest.CaptureFixture) -> None:
    assert main(["rename", PTX, "--prefix", "x_", "-o", "-"]) == 0
    assert ".visible .entry x_add(" in capsys.readouterr().out and not Path("-").exists()


def test_the_writer_of_captures_replaces_no_pipe() -> None:
    os.mkfifo("pipe")
    with pytest.raises(OSError, match="not a file"):
        write_whole("pipe", "text")
    assert Path("pipe").is_fifo()
