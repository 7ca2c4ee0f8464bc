"""The ptxas wrapper as its callers see it: like the real ptxas."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ended import ended
from fake_ptxas import make_ptx
from hangs import HANG_S
from wrapped_ptxas import WrappedPtxas

from tritonhook.capture.ptxas_wrapper.install import find_target, install
from tritonhook.capture.ptxas_wrapper.script import PROGRAM, troubles
from tritonhook.capture.store import CaptureFolder

# --- as the caller sees it -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_streams_status_and_output_are_those_of_ptxas(world: WrappedPtxas, code: int) -> None:
    make_ptx(world.folder / "in put.ptx")
    do = f"printf 'out\\000\\377\\n'; printf 'err\\377' >&2; exit {code}"
    results = []
    for through in (world.real, world.wrapper):
        done = world.call(
            "-arch=sm_90a", "in put.ptx", "-o", "x y.cubin", through=through, env=world.settings() | {"FAKE_DO": do}
        )
        results.append((done.returncode, done.stdout, done.stderr, (world.folder / "x y.cubin").read_bytes()))
        (world.folder / "x y.cubin").unlink()
    assert results[0] == results[1]
    assert results[0][:3] == (code, b"out\0\xff\n", b"err\xff")
    assert world.trouble == []


def test_arguments_and_environment_arrive_as_they_are(world: WrappedPtxas) -> None:
    words = ["", "a b", "new\nline", "$HOME `x` 'q' \"p\" \\", os.fsdecode(b"\xff\xfe"), "*", "-arch=sm_90a"]
    show = "env -0 > $FAKE_ENV"
    seen = []
    for through in (world.real, world.wrapper):
        files = {"FAKE_ARGS": str(world.folder / "args"), "FAKE_ENV": str(world.folder / "env"), "FAKE_DO": show}
        world.call(*words, through=through, env=world.settings() | files)
        environment = set((world.folder / "env").read_bytes().split(b"\0")) - {b"TRITONHOOK_PTXAS_WRAPPER=off"}
        seen.append(((world.folder / "args").read_bytes(), {e for e in environment if not e.startswith(b"_=")}))
    assert seen[0] == seen[1]
    assert seen[0][0] == b"".join(os.fsencode(word) + b"\0" for word in words)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_death_by_signal_is_passed_on(world: WrappedPtxas, number: signal.Signals) -> None:
    make_ptx(world.folder / "a.ptx")
    done = world.call("-arch=sm_90a", "a.ptx", env=world.settings() | {"FAKE_DO": f"kill -{int(number)} $$"})
    assert (done.returncode, done.stdout, done.stderr) == (-number, b"", b"")
    assert not (world.folder / "core").exists()
    if number in (signal.SIGTERM, signal.SIGINT):  # these end a build; ptxas did not crash
        assert CaptureFolder.open(world.out).crashes == ()
        return
    (crash,) = CaptureFolder.open(world.out).crashes
    note = json.loads(crash.read_text())
    assert (note["signal"], note["kernel"], note["front_end"]) == (number.name, "add", "ptxas")
    assert (crash.parent / "kernel.ptx").read_text() == (world.folder / "a.ptx").read_text()


def begun(world: WrappedPtxas, do: str) -> subprocess.Popen:
    (world.folder / "pid").unlink(missing_ok=True)
    make_ptx(world.folder / "a.ptx")
    environment = {"PATH": "/usr/bin:/bin", "FAKE_DO": f"{do}"} | world.settings()
    process = subprocess.Popen([str(world.wrapper), "a.ptx"], cwd=world.folder, env=environment)
    for _ in range(50 * HANG_S):
        if (world.folder / "pid").exists() and (world.folder / "pid").read_text().strip():
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError("ptxas did not start")


WAIT = "echo $$ > pid; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_to_the_wrapper_reaches_ptxas(world: WrappedPtxas, number: signal.Signals) -> None:
    process = begun(world, WAIT)
    process.send_signal(number)
    assert process.wait(timeout=HANG_S) == -number
    handles = begun(world, f"trap 'exit 3' {int(number)}; {WAIT}")
    handles.send_signal(number)
    assert handles.wait(timeout=HANG_S) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_standard_input_is_still_open(world: WrappedPtxas, number: signal.Signals) -> None:
    environment = {"PATH": "/usr/bin:/bin"} | world.settings()
    process = subprocess.Popen([str(world.wrapper), "-"], cwd=world.folder, env=environment, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"//" * (1 << 16))
    process.stdin.flush()  # it is reading its input now: a pipe holds less than this
    process.send_signal(number)
    assert process.wait(timeout=HANG_S) == -number
    process.stdin.close()


def test_a_killed_wrapper_takes_ptxas_with_it(world: WrappedPtxas) -> None:
    # A caller with a time limit kills the wrapper; a ptxas that went on would keep the caller's pipes open.
    process = begun(world, WAIT)
    pid = int((world.folder / "pid").read_text())
    process.kill()
    process.wait(timeout=HANG_S)
    for _ in range(50 * HANG_S):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # it ends before it is opened, or before it is read
            return
        if state == "Z":
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("ptxas outlived the wrapper")


@pytest.mark.parametrize("through_sh", [True, False])  # some shells reset the signal, and some do not
def test_a_caller_that_ignores_its_children(world: WrappedPtxas, through_sh: bool) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    line = [str(world.wrapper), "a.ptx"]
    if not through_sh:
        line = [sys.executable, "-I", "-S", str(PROGRAM), str(world.real), "", "0", "0", str(world.log)]
        line += ["linked", "a.ptx"]
    make_ptx(world.folder / "a.ptx")
    environment = {"PATH": "/usr/bin:/bin", "FAKE_DO": "exit 5"} | world.settings()
    done = subprocess.run(line, cwd=world.folder, env=environment, check=False, preexec_fn=ignore)
    assert done.returncode == 5


def test_no_python_on_path_and_an_empty_environment(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    line = ["env", "-i", f"TRITONHOOK_RUN={world.settings()['TRITONHOOK_RUN']}", str(world.wrapper), "a.ptx"]
    done = subprocess.run(line, cwd=world.folder, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(world.captures) == {"add"}
    # and an environment made for another Python
    hostile = {"PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere", "PYTHONSTARTUP": "/nowhere"}
    assert world.call("a.ptx", env=world.settings() | hostile).stderr == b""


def test_an_interpreter_with_a_blank_and_a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / ("a long name " * 15)
    folder.mkdir()
    python = folder / "python 3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    world = WrappedPtxas(tmp_path, str(python))
    make_ptx(world.folder / "a.ptx")
    assert world.call("a.ptx").returncode == 0
    assert set(world.captures) == {"add"}


def test_outside_a_run_the_linked_wrapper_keeps_nothing(world: WrappedPtxas) -> None:
    # CMake remembers the nvcc of the linked toolkit, and later builds use it.
    make_ptx(world.folder / "a.ptx")
    assert world.call("a.ptx", env={}).returncode == 0
    assert sorted(p.name for p in world.folder.iterdir()) == ["a.ptx", "elf.o"]
    assert world.call("a.ptx", env=world.settings() | {"TRITONHOOK_PTXAS_WRAPPER": "off"}).returncode == 0
    assert not world.out.exists()


# --- plain files ---------------------------------------------------------------------------------


def test_plain_dumps(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    make_ptx(world.folder / "b.ptx", "mul")
    target = find_target(str(world.real))
    install(target)
    for words in (["a.ptx"], ["b.ptx"], ["a.ptx", "-o", "other"]):  # the last call has the PTX of the first
        assert world.call(*words, through=world.real, env={}).returncode == 0
    dumps = sorted((world.folder / "ptx_dumps").iterdir())
    assert [p.name.partition("-")[0] for p in dumps] == ["add", "mul"]
    assert dumps[0].read_text() == (world.folder / "a.ptx").read_text()
    world.call("a.ptx", through=world.real, env={"PTX_DUMP_DIR": "else/where"})
    assert len(list((world.folder / "else" / "where").iterdir())) == 1
    # under a run it keeps captures, and plain files only if PTX_DUMP_DIR is set
    shutil.rmtree(world.folder / "ptx_dumps")
    world.call("a.ptx", through=world.real)
    assert set(world.captures) == {"add"}
    assert world.captures["add"].assembler.path == str(target.real)
    assert not (world.folder / "ptx_dumps").exists()
    world.call("a.ptx", env=world.settings() | {"PTX_DUMP_DIR": "both"})
    assert len(list((world.folder / "both").iterdir())) == 1


# --- faults --------------------------------------------------------------------------------------


def test_a_capture_folder_that_cannot_be_written(world: WrappedPtxas) -> None:
    make_ptx(world.folder / "a.ptx")
    world.out.touch()
    done = world.call("a.ptx")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert "cannot keep captures there" in world.trouble[0]
    (text,) = troubles(world.log, world.out)
    assert text.startswith("1 call of ptxas not kept: ")
    assert troubles(world.log, world.folder) == []


@pytest.mark.machine
def test_a_full_disk_costs_the_capture_only(world: WrappedPtxas) -> None:
    world.out.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(world.out)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        text = make_ptx(world.folder / "a.ptx").read_text() + "// " + "x" * 200_000
        (world.folder / "a.ptx").write_text(text)
        done = world.call("a.ptx", "-o", "x")
        assert (done.returncode, done.stderr) == (0, b"")
        assert CaptureFolder.open(world.out).records == ()
        assert "No space left on device" in world.trouble[0]
        small = make_ptx(world.folder / "b.ptx", "mul")
        assert world.call(str(small), "-o", "y").returncode == 0
        assert set(world.captures) == {"mul"}  # the failed call left no files that fill the disk
    finally:
        subprocess.run(["umount", str(world.out)], check=True)


def test_a_compiler_called_by_its_full_path_is_told_of(world: WrappedPtxas, warm_start: None) -> None:
    make_ptx(world.folder / "a.ptx")
    line = [sys.executable, "-m", "tritonhook", "run", "--out", str(world.out), "--"]
    environment = os.environ | {"PATH": f"{world.real.parent}:{os.environ['PATH']}"}
    for program, is_told in ((str(world.real.parent / "ptxas"), True), ("ptxas", False)):
        done = ended([*line, program, "a.ptx", "-o", "x"], world.folder, environment)
        assert ("bypasses the wrapper" in done.stderr) is is_told, done.stderr


def test_a_run_says_what_was_lost_and_ends_as_its_program(world: WrappedPtxas, warm_start: None) -> None:
    # given a build with one module that is larger than a file may be, and one that is not
    large = make_ptx(world.folder / "large.ptx", "large")
    large.write_text(large.read_text() + "// " + "x" * 200_000)
    make_ptx(world.folder / "small.ptx", "small")
    build = "ulimit -f 100; ptxas large.ptx -o l && ptxas -arch=sm_90a small.ptx -o s; exit 3"
    line = [sys.executable, "-m", "tritonhook", "run", "--out", str(world.out), "--", "sh", "-c", build]
    environment = os.environ | {"PATH": f"{world.real.parent}:{os.environ['PATH']}"}
    # when it runs
    done = ended(line, world.folder, environment, status=3)
    # then the other kernel is captured, and the loss is reported once
    assert set(world.captures) == {"small"}
    assert "1 kernel seen" in done.stderr
    assert done.stderr.count("1 call of ptxas not kept: OSError: [Errno 27] File too large") == 1


def test_a_parallel_build_loses_nothing(world: WrappedPtxas) -> None:
    names = [f"kernel_{number}" for number in range(24)]
    for name in names:
        make_ptx(world.folder / f"{name}.ptx", name)
    rule = "%.cubin: %.ptx\n\t@ptxas -arch=sm_90a $< -o $@\n"
    (world.folder / "Makefile").write_text(f"all: {' '.join(f'{name}.cubin' for name in names)}\n{rule}")
    environment = world.settings() | {"PATH": f"{world.wrapper.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["make", "-j8"], cwd=world.folder, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    captures = world.captures
    assert set(captures) == set(names)
    folder = CaptureFolder.open(world.out)
    assert (folder.torn, world.trouble) == (0, [])
    for name in names:
        assert captures[name].cubin == (world.folder / f"{name}.cubin").read_bytes()
