"""Signals and scripts that fail: what a verb writes after them, what the script gets, and what stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tritonhook.capture.launches.record import Buffer, Launch, Pointer, to_document
from tritonhook.capture.policy.model import Pin, read_blocks
from tritonhook.cli import main

LIMIT_S = 300
KERNELS = """
import os, sys, time
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
@triton.jit
def first(x, C: tl.constexpr):
    tl.store(x, C)
@triton.jit
def second(x, C: tl.constexpr):
    tl.store(x, C + 1)
def made(kernel):
    source = ASTSource(kernel, {"x": "*i32", "C": "constexpr"}, {(1,): 5})
    compile(source, target=GPUTarget("cuda", 90, 32))
made(first)
if "WAIT" in os.environ:
    open("reached", "w").close()
    try:
        time.sleep(300)
    except KeyboardInterrupt:
        if os.environ["WAIT"] == "caught":
            sys.exit(0)
        raise
sys.exit(int(os.environ["FAIL"])) if "FAIL" in os.environ else None
made(second)
"""
# Counts the signals that it gets, and says so by its exit code.
COUNTS = """
import signal, sys
numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
open("reached", "w").close()
signal.sigwait(numbers)
open("seen", "w").close()
more = 0
while signal.sigtimedwait(numbers, 1): more += 1
sys.exit(11 + more)
"""
WAITS = "import time\nopen('reached', 'w').close()\ntime.sleep(300)\n"


@pytest.fixture
def here(tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "k.py").write_text(KERNELS)
    return tmp_path


def verb(*words: str, **environment: str) -> subprocess.Popen[str]:
    """A verb in a process group of its own, without a terminal."""
    command = [sys.executable, "-m", "tritonhook", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, start_new_session=True, env={**os.environ, **environment}
    )


def reached(process: subprocess.Popen[str]) -> None:
    """Wait until its script is where it waits."""
    end = time.monotonic() + LIMIT_S
    while not Path("reached").exists():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.05)
    Path("reached").unlink()
    time.sleep(0.2)  # it opens the file just before it waits


Send = Callable[[int, int], None]


@pytest.mark.parametrize(
    ("send", "number", "wait"),
    [
        (os.killpg, signal.SIGINT, "raised"),
        (os.killpg, signal.SIGINT, "caught"),  # the script ends well, but not to its end
        (os.kill, signal.SIGTERM, "raised"),
        pytest.param(os.kill, signal.SIGHUP, "raised", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupted_run_leaves_the_lock_and_no_folder(here: Path, send: Send, number: int, wait: str) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    Path("t.lock").write_text("what was there")
    process = verb("lock", "k.py", "--arch", "sm_90a,sm_100a", "-o", "t.lock", "--force", WAIT=wait)
    reached(process)
    send(process.pid, number)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert Path("t.lock").read_text() == "what was there" and not Path("t.lock.d").exists()
    assert list(Path("temporary").iterdir()) == []


SLOW_PTXAS = """#!/bin/sh
case "$*" in
  *--version*) echo "Cuda compilation tools, release 12.8, V12.8.93";;
  *) touch reached; exec sleep 300;;
esac
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_verb_clears_its_folders_and_processes_away(here: Path, plain: Path, number: int) -> None:
    """Two signals, as `timeout` sends them: the second one comes while the folders go away."""
    Path("ptxas").write_text(SLOW_PTXAS)
    Path("ptxas").chmod(0o755)
    process = verb("diff", str(plain), str(plain), "--ptxas", str(here / "ptxas"))
    reached(process)
    assert list(Path("temporary").iterdir())
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number and list(Path("temporary").iterdir()) == []


VERBS = {
    "lock": ("lock", "k.py", "--arch", "sm_90a", "-o", "new.lock"),
    "check": ("check", "t.lock", "--ptxas", "./slow"),
    "verify": ("verify", "--cpu", "plain.ptx", "--args", "launch.json", "--ptxas", "./slow"),
    "diff": ("diff", "plain.ptx", "--rename", "--ptxas", "./slow"),
}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, marks=() if n % 2 == of else pytest.mark.nightly)
        for n, name in enumerate(VERBS)
        for of, number in enumerate((signal.SIGTERM, signal.SIGINT))
    ],
)
def test_a_signal_to_the_verb_alone_ends_the_tools_of_its_threads(
    here: Path, plain: Path, name: str, number: int
) -> None:
    """The tools would take an hour: nothing of the process group is left, and no folder."""
    Path("slow").write_text(SLOW_PTXAS.replace("300", "3600"))
    Path("slow").chmod(0o755)
    slow = {}
    if name in ("lock", "check"):
        pytest.importorskip("triton", reason="needs Triton")
        slow = {"TRITONHOOK_NVDISASM": str(here / "slow")} if name == "lock" else {}
        assert name == "lock" or main(["lock", "k.py", "--arch", "sm_90a", "-o", "t.lock"]) == 0
    elif name == "verify":
        pointers = tuple(Pointer(name, number, dtype="float32") for number, name in enumerate("ab"))
        launch = Launch("work", (1, 1, 1), (32, 1, 1), pointers, (Buffer(64, "float32"), Buffer(64, "float32")))
        Path("launch.json").write_text(json.dumps(to_document(launch)))
    process = verb(*VERBS[name], **slow)
    reached(process)
    process.send_signal(number)
    process.communicate(timeout=100)  # a ptxas of `verify` has 120 s
    assert process.returncode == 128 + number and list(Path("temporary").iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_script_that_fails_leaves_the_lock_and_gives_its_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    assert main(["lock", "k.py", "--arch", "sm_90a", "-o", "t.lock"]) == 0
    before = Path("t.lock").read_text()
    for status, of_check in ((5, 2), (1, 2), (137, 137)):
        monkeypatch.setenv("FAIL", str(status))
        assert main(["lock", "k.py", "--arch", "sm_90a", "-o", "t.lock", "--force"]) == status
        assert main(["check", "t.lock", "k.py", "--arch", "sm_90a", "--update"]) == of_check
        assert Path("t.lock").read_text() == before
    assert before.count("[[kernel]]") == 2


@pytest.mark.parametrize(
    ("send", "number"),
    [
        (os.kill, signal.SIGTERM),
        (os.killpg, signal.SIGINT),
        (os.kill, signal.SIGHUP),
        *(
            pytest.param(*it, marks=pytest.mark.nightly)
            for it in ((os.kill, signal.SIGINT), (os.killpg, signal.SIGTERM), (os.killpg, signal.SIGHUP))
        ),
    ],
)
def test_a_signal_reaches_the_script_once(here: Path, send: Send, number: int) -> None:
    Path("s.py").write_text(COUNTS)
    process = verb("run", "--out", "o", "s.py")
    reached(process)
    process.send_signal(signal.SIGSTOP)  # two signals that the script gets at once are one
    send(process.pid, number)
    end = time.monotonic() + LIMIT_S
    while send is os.killpg and not Path("seen").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 11


def test_a_script_that_left_the_group_gets_the_groups_signal(here: Path) -> None:
    Path("s.py").write_text("import os\nos.setsid()\n" + COUNTS)
    process = verb("run", "--out", "o", "s.py")
    reached(process)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 11


def test_watch_outlives_a_script_that_is_away(here: Path) -> None:
    """As in a checkout. Then the script is a folder, and then it waits when SIGTERM comes."""
    Path("s.py").write_text("import helper\nprint('run', helper.X, flush=True)\n")
    Path("helper.py").write_text("X = 1\n")
    process = verb("run", "--watch", "--out", "o", "s.py")
    assert process.stderr is not None and process.stdout is not None

    def until(text: str) -> None:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if text in line:
                return
        raise AssertionError("".join(lines))

    try:
        until("waiting for a change")
        Path("s.py").rename("away")
        Path("s.py").mkdir()
        os.utime("s.py", ns=(1, 1))
        until("s.py: a folder, not a script")
        until("waiting for a change")
        Path("s.py").rmdir()
        Path("away").rename("s.py")
        until("waiting for a change")
        Path("s.py").write_text(WAITS)
        reached(process)
        process.terminate()
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == 128 + signal.SIGTERM
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


PINS = """
import sys
import tritonhook.cli.run as run
from pathlib import Path
from tritonhook.capture.policy.model import Pin
run.gpu_name = lambda: "NVIDIA H100"
for number in range(10):
    pin = Pin(f"k_{sys.argv[1]}_{number}", "sm_90a", ("n=1",), "B: 64", None, "NVIDIA H100", "2026-11-25", None)
    run.pins_of = lambda folder, gpu: [pin]
    run.keep_pins(Path("pins.toml"), None)
"""


def test_pins_of_several_processes_are_all_kept(here: Path) -> None:
    """Through a link, too: the file is the same."""
    Path("real").mkdir()
    Path("pins.toml").symlink_to("real/pins.toml")
    started = [subprocess.Popen([sys.executable, "-c", PINS, str(number)]) for number in range(4)]
    assert [process.wait(LIMIT_S) for process in started] == [0] * 4
    pins = read_blocks(Path("pins.toml")).pins
    assert len(pins) == 40 and all(isinstance(pin, Pin) for pin in pins)


def test_names_that_are_no_utf_8_are_locked_and_checked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from command_line import EXP, TARGET

    from tritonhook.ptxas.tool import find_ptxas
    from tritonhook.ptxas.toolchain import toolchain_of

    name = os.fsdecode(b"\xff.cubin")
    Path("d").mkdir()
    cubin = toolchain_of(find_ptxas()).assemble_or_raise(EXP.ptx("work", **TARGET)).cubin
    Path("d", name).write_bytes(cubin.data)
    lock = os.fsdecode(b"\xfe.lock")
    for words in (("d", "-o", "a.lock"), (f"d/{name}", "-o", "b.lock"), ("d", "-o", lock)):
        assert main(["lock", *words]) == 0
    assert main(["check", "a.lock", "d"]) == main(["check", lock, "d"]) == 0
    assert main(["check", "a.lock", "d", "--update"]) == 0
    assert "internal error" not in capsys.readouterr().err
