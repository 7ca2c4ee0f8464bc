"""The ptxas wrapper as its callers see it, which is not at all, and what it keeps of a call."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_ptxas import SCRIPT, make_ptx, make_ptxas

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.ptxas_wrapper.install import find_target, install
from tritonhook.capture.ptxas_wrapper.linked_toolkit import WrapperHome, path_environment
from tritonhook.capture.ptxas_wrapper.script import PROGRAM, troubles
from tritonhook.capture.store import CaptureFolder
from tritonhook.ptxas.command_line import read_command


class World:
    """A fake ptxas, the wrapper around it, and a folder to call it in, with a blank in every name."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder = folder / "a build"
        self.folder.mkdir()
        self.real = make_ptxas(folder / "tool kit")
        home = WrapperHome(folder / "wrappers here" / "toolkits", python)
        environment = path_environment({"PATH": str(self.real.parent)}, home)
        self.wrapper = Path(environment["PATH"].split(":")[0]) / "ptxas"
        self.log = folder / "wrappers here" / "ptxas-wrapper.log"
        self.out = folder / "captures"

    def settings(self, **settings: object) -> dict[str, str]:
        return {"TRITONHOOK_RUN": json.dumps({"out": str(self.out), "only": None, "rename": None} | settings)}

    def call(self, *words: str, through: Path | None = None, **options: object) -> subprocess.CompletedProcess:
        environment = {"PATH": "/usr/bin:/bin"} | options.pop("env", self.settings())  # type: ignore[operator]
        line = [str(through or self.wrapper), *words]
        usual = {"cwd": self.folder, "env": environment, "capture_output": True, "check": False, "timeout": 60}
        return subprocess.run(line, **usual | options)  # type: ignore[call-overload]

    @property
    def captures(self) -> dict[str, Capture]:
        folder = CaptureFolder.open(self.out)
        return {capture.kernel: capture for capture in map(folder.capture, folder.records)}

    @property
    def trouble(self) -> list[str]:
        return [json.loads(line)["what"] for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return World(tmp_path)


# --- as the caller sees it -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_streams_status_and_output_are_those_of_ptxas(world: World, code: int) -> None:
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


def test_arguments_and_environment_arrive_as_they_are(world: World) -> None:
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
def test_death_by_signal_is_passed_on(world: World, number: signal.Signals) -> None:
    make_ptx(world.folder / "a.ptx")
    done = world.call("-arch=sm_90a", "a.ptx", env=world.settings() | {"FAKE_DO": f"kill -{int(number)} $$"})
    assert (done.returncode, done.stdout, done.stderr) == (-number, b"", b"")
    assert not (world.folder / "core").exists()
    if number in (signal.SIGTERM, signal.SIGINT):  # somebody ended the build; ptxas did not crash
        assert CaptureFolder.open(world.out).crashes == ()
        return
    (crash,) = CaptureFolder.open(world.out).crashes
    note = json.loads(crash.read_text())
    assert (note["signal"], note["kernel"], note["front_end"]) == (number.name, "add", "ptxas")
    assert (crash.parent / "kernel.ptx").read_text() == (world.folder / "a.ptx").read_text()


def begun(world: World, do: str) -> subprocess.Popen:
    (world.folder / "pid").unlink(missing_ok=True)
    make_ptx(world.folder / "a.ptx")
    environment = {"PATH": "/usr/bin:/bin", "FAKE_DO": f"{do}"} | world.settings()
    process = subprocess.Popen([str(world.wrapper), "a.ptx"], cwd=world.folder, env=environment)
    for _ in range(400):
        if (world.folder / "pid").exists() and (world.folder / "pid").read_text().strip():
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError("ptxas did not start")


WAIT = "echo $$ > pid; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_to_the_wrapper_reaches_ptxas(world: World, number: signal.Signals) -> None:
    process = begun(world, WAIT)
    process.send_signal(number)
    assert process.wait(timeout=20) == -number
    handles = begun(world, f"trap 'exit 3' {int(number)}; {WAIT}")
    handles.send_signal(number)
    assert handles.wait(timeout=20) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_standard_input_is_still_open(world: World, number: signal.Signals) -> None:
    environment = {"PATH": "/usr/bin:/bin"} | world.settings()
    process = subprocess.Popen([str(world.wrapper), "-"], cwd=world.folder, env=environment, stdin=subprocess.PIPE)
    time.sleep(0.5)  # whatever it has come to, it waits for its input
    process.send_signal(number)
    assert process.wait(timeout=20) == -number
    process.stdin.close()  # type: ignore[union-attr]


def test_a_killed_wrapper_takes_ptxas_with_it(world: World) -> None:
    # A caller with a time limit kills what it started; its pipes would stay open with ptxas.
    process = begun(world, WAIT)
    pid = int((world.folder / "pid").read_text())
    process.kill()
    process.wait(timeout=20)
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("ptxas outlived the wrapper")


@pytest.mark.parametrize("through_sh", [True, False])  # some shells put it right, and some do not
def test_a_caller_that_ignores_its_children(world: World, through_sh: bool) -> None:
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


def test_no_python_on_path_and_an_empty_environment(world: World) -> None:
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
    world = World(tmp_path, str(python))
    make_ptx(world.folder / "a.ptx")
    assert world.call("a.ptx").returncode == 0
    assert set(world.captures) == {"add"}


def test_outside_a_run_the_linked_wrapper_keeps_nothing(world: World) -> None:
    # CMake remembers the nvcc of the toolkit of links; later builds go through it.
    make_ptx(world.folder / "a.ptx")
    assert world.call("a.ptx", env={}).returncode == 0
    assert sorted(p.name for p in world.folder.iterdir()) == ["a.ptx", "elf.o"]
    assert world.call("a.ptx", env=world.settings() | {"TRITONHOOK_PTXAS_WRAPPER": "off"}).returncode == 0
    assert not world.out.exists()


# --- what it keeps -------------------------------------------------------------------------------


def test_a_call_is_kept_with_all_that_made_it(world: World) -> None:
    make_ptx(world.folder / "a.ptx", extra="// comment\n")
    words = ["-arch", "sm_90a", "-m64", "--opt-level", "3", "a.ptx", "-o", "x.cubin"]
    assert world.call(*words).returncode == 0
    capture = world.captures["add"]
    assert capture.front_end == "ptxas"
    assert capture.arch == "sm_90a"
    assert capture.artifacts[Stage.PTX] == (world.folder / "a.ptx").read_text()
    assert capture.cubin == (world.folder / "x.cubin").read_bytes()
    assert capture.assembler.path == str(world.real)
    assert capture.assembler.version == "12.8.93"
    assert capture.assembler.arguments == ("-m64", "--opt-level", "3", "--gpu-name=sm_90a")
    assert capture.metadata["command"] == [str(world.real), *words]
    assert capture.metadata["folder"] == str(world.folder)
    # again: the same record, another sighting
    world.call(*words)
    folder = CaptureFolder.open(world.out)
    assert len(folder.records) == 1
    assert len(folder.seen(folder.records[0])) == 2
    assert not [p.name for p in world.out.iterdir() if p.name not in ("kernels", "index")]


def test_every_kernel_of_a_module_is_listed_and_stored_once(world: World) -> None:
    make_ptx(world.folder / "a.ptx", extra=make_ptx(world.folder / "b", "mul").read_text().partition("64\n")[2])
    world.call("-arch=sm_90a", "a.ptx")
    captures = world.captures
    assert set(captures) == {"add", "mul"}
    inodes = {p.stat().st_ino for p in (world.out / "kernels").glob("*/*.cubin")}
    assert len(inodes) == 1
    only = world.settings(only="^m", out=str(world.out) + "2")
    world.call("-arch=sm_90a", "a.ptx", env=only)
    assert [r.partition("-")[0] for r in CaptureFolder.open(str(world.out) + "2").records] == ["mul"]


@pytest.mark.parametrize("way", ["-optf f", "--options-file=f", "-optf g", "-optf empty,f"])
def test_options_files(world: World, way: str) -> None:
    make_ptx(world.folder / "in put.ptx")
    (world.folder / "f").write_text('-arch=sm_90a -o "o ut.cubin"\n in\\ put.ptx')
    (world.folder / "g").write_text("--options-file f")
    (world.folder / "empty").write_text("")
    (world.folder / "o ut.cubin").write_bytes(b"\x7fELF from the file")  # the fake reads no options file
    assert world.call(*way.split()).returncode == 0
    assert world.captures["add"].cubin == b"\x7fELF from the file"
    assert world.captures["add"].arch == "sm_90a"


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_input(world: World, kind: str) -> None:
    text = make_ptx(world.folder / "a.ptx").read_text() + "// " + "x" * 100_000  # more than a pipe holds
    (world.folder / "a.ptx").write_text(text)
    if kind == "file":
        with (world.folder / "a.ptx").open("rb") as file:
            done = world.call("-", "-o", "x", stdin=file)
    else:
        done = world.call("-", "-o", "x", input=text.encode())
    assert done.returncode == 0
    assert world.captures["add"].artifacts[Stage.PTX] == text
    assert text.encode() in (world.folder / "x").read_bytes()  # ptxas read all of it too


def test_text_on_the_command_line_and_several_inputs(world: World) -> None:
    text = make_ptx(world.folder / "a.ptx").read_text()
    make_ptx(world.folder / "b.ptx", "mul")
    world.call("-ias", text, "b.ptx", "-o", "x")
    captures = world.captures
    assert set(captures) == {"add", "mul"}
    assert captures["add"].artifacts[Stage.PTX] == text


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-arch=compute_90", "a.ptx"], "a check of PTX that makes no code"),
        (["--gpu-name", "lto_90", "a.ptx"], "no code"),
        (["a.txt"], "no PTX"),
        ([], "no input"),
    ],
)
def test_what_is_no_kernel(world: World, words: list[str], what: str) -> None:
    make_ptx(world.folder / "a.ptx")
    (world.folder / "a.txt").write_text("hello")
    assert world.call(*words).returncode == 0
    assert not world.out.exists() or CaptureFolder.open(world.out).records == (), what
    assert world.trouble == []


def test_a_fix_is_for_triton_and_that_is_said(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    world.call("-arch=sm_90a", "a.ptx", env=world.settings(fixes=["tma-cta"]))
    assert len(world.captures) == 1
    said = "ptxas, called directly: kernels stay as they are under tma-cta, which is for Triton's"
    assert CaptureFolder.open(world.out).notes == (said,)


def test_a_failed_call_is_no_capture(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    world.call("a.ptx", env=world.settings() | {"FAKE_DO": "exit 1"})
    folder = CaptureFolder.open(world.out)
    assert (folder.records, folder.crashes) == ((), ())


def test_a_cubin_that_cannot_be_read_back(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    done = world.call("a.ptx", "-o", "/dev/stdout")
    assert done.stdout.startswith(b"\x7fELF")
    assert list(world.captures["add"].artifacts) == [Stage.PTX]
    assert "cannot be read back" in (world.captures["add"].note or "")


def test_an_output_that_ptxas_did_not_write(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    world.call("a.ptx", "-o=x")  # which this ptxas does not know
    assert list(world.captures["add"].artifacts) == [Stage.PTX]
    assert world.trouble == []


def test_files_that_the_caller_deletes_are_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_ptx(tmp_path / "a.ptx")
    (tmp_path / "host.o").write_bytes(b"\x7fELF")
    command = read_command(["-arch", "sm_100a", "a.ptx", "--nv-host=host.o", "-uumn", "-o", "x.bin"])
    assert command.options == ("-uumn",)
    assert command.left_out == ("--nv-host=host.o",)
    assert (command.output, command.target, command.makes_code) == ("x.bin", "sm_100a", True)


def test_a_named_pipe_is_left_to_ptxas(world: World) -> None:
    os.mkfifo(world.folder / "pipe.ptx")
    text = make_ptx(world.folder / "a.ptx").read_text()
    writer = subprocess.Popen(["sh", "-c", "cat a.ptx > pipe.ptx"], cwd=world.folder)
    done = world.call("pipe.ptx", env=world.settings() | {"FAKE_DO": "cat pipe.ptx"})
    assert writer.wait(timeout=20) == 0
    assert done.stdout == text.encode()


# --- plain files ---------------------------------------------------------------------------------


def test_plain_dumps(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    make_ptx(world.folder / "b.ptx", "mul")
    target = find_target(str(world.real))
    install(target)
    for words in (["a.ptx"], ["b.ptx"], ["a.ptx", "-o", "other"]):  # the second time nothing new
        assert world.call(*words, through=world.real, env={}).returncode == 0
    dumps = sorted((world.folder / "ptx_dumps").iterdir())
    assert [p.name.partition("-")[0] for p in dumps] == ["add", "mul"]
    assert dumps[0].read_text() == (world.folder / "a.ptx").read_text()
    world.call("a.ptx", through=world.real, env={"PTX_DUMP_DIR": "else/where"})
    assert len(list((world.folder / "else" / "where").iterdir())) == 1
    # under a run it keeps captures, and plain files only where asked
    shutil.rmtree(world.folder / "ptx_dumps")
    world.call("a.ptx", through=world.real)
    assert set(world.captures) == {"add"}
    assert world.captures["add"].assembler.path == str(target.real)
    assert not (world.folder / "ptx_dumps").exists()
    world.call("a.ptx", env=world.settings() | {"PTX_DUMP_DIR": "both"})
    assert len(list((world.folder / "both").iterdir())) == 1


def test_a_dump_folder_that_cannot_be_written(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    (world.folder / "file").touch()
    done = world.call("a.ptx", env={"PTX_DUMP_DIR": "file/x"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert "NotADirectoryError" in world.trouble[0]


# --- faults --------------------------------------------------------------------------------------


def test_a_capture_folder_that_cannot_be_written(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    world.out.touch()
    done = world.call("a.ptx")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert "cannot keep captures there" in world.trouble[0]
    (text,) = troubles(world.log, world.out)
    assert text.startswith("1 call of ptxas not kept: ")
    assert troubles(world.log, world.folder) == []


def test_a_file_size_limit_costs_the_capture_only(world: World) -> None:
    text = make_ptx(world.folder / "a.ptx").read_text() + "// " + "x" * 200_000
    (world.folder / "a.ptx").write_text(text)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    done = world.call("a.ptx", "-o", "x", preexec_fn=limit)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (world.folder / "x").exists()
    assert CaptureFolder.open(world.out).records == ()
    assert "File too large" in world.trouble[0]
    assert not list((world.out / "kernels").iterdir())


def test_a_full_disk_costs_the_capture_only(world: World) -> None:
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
        assert set(world.captures) == {"mul"}  # what failed left no rubbish that fills the disk
    finally:
        subprocess.run(["umount", str(world.out)], check=True)


def test_a_compiler_called_by_its_full_path_is_told_of(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    line = [sys.executable, "-m", "tritonhook", "run", "--out", str(world.out), "--"]
    environment = os.environ | {"PATH": f"{world.real.parent}:{os.environ['PATH']}"}
    for program, is_told in ((str(world.real.parent / "ptxas"), True), ("ptxas", False)):
        done = subprocess.run(
            [*line, program, "a.ptx", "-o", "x"], cwd=world.folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0
        assert ("meets no wrapper" in done.stderr) is is_told, done.stderr


def test_a_run_says_what_was_lost_and_ends_as_its_program(world: World) -> None:
    # Given a build in which one module is too large for what may be written, and one is not.
    large = make_ptx(world.folder / "large.ptx", "large")
    large.write_text(large.read_text() + "// " + "x" * 200_000)
    make_ptx(world.folder / "small.ptx", "small")
    build = "ulimit -f 100; ptxas large.ptx -o l && ptxas -arch=sm_90a small.ptx -o s; exit 3"
    line = [sys.executable, "-m", "tritonhook", "run", "--out", str(world.out), "--", "sh", "-c", build]
    environment = os.environ | {"PATH": f"{world.real.parent}:{os.environ['PATH']}"}
    # When it runs
    done = subprocess.run(line, cwd=world.folder, env=environment, capture_output=True, text=True, check=False)
    # Then the other kernel is there, and the loss is said once.
    assert done.returncode == 3
    assert set(world.captures) == {"small"}
    assert "1 kernel seen" in done.stderr
    assert done.stderr.count("1 call of ptxas not kept: OSError: [Errno 27] File too large") == 1


def test_a_parallel_build_loses_nothing(world: World) -> None:
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


def test_kills_of_the_build_leave_no_half_record(world: World) -> None:
    make_ptx(world.folder / "a.ptx")
    chance = random.Random(4)
    for _ in range(30):
        process = subprocess.Popen(
            [str(world.wrapper), "a.ptx"], cwd=world.folder, env={"PATH": "/usr/bin:/bin"} | world.settings()
        )
        time.sleep(chance.uniform(0, 0.08))
        process.kill()
        process.wait(timeout=20)
    world.call("a.ptx")
    folder = CaptureFolder.open(world.out)
    assert [folder.capture(record).kernel for record in folder.records] == ["add"]


# --- renaming ------------------------------------------------------------------------------------


@pytest.fixture
def renaming(world: World) -> dict[str, str]:
    return world.settings(rename={"prefix": "cutlass_", "strip": "", "mapping": [], "entry": None})


def real_world(world: World, tools: object) -> World:
    """The same with ptxas 12.8.93 itself."""
    home = WrapperHome(world.folder.parent / "wrappers here" / "toolkits", sys.executable)
    folder = world.folder.parent / "real"
    folder.mkdir()
    (folder / "ptxas").symlink_to(tools.ptxas.path)  # type: ignore[attr-defined]
    world.real = folder / "ptxas"
    world.wrapper = Path(path_environment({"PATH": str(folder)}, home)["PATH"].split(":")[0]) / "ptxas"
    return world


def test_a_renamed_form_is_kept_beside_the_programs_own(world: World, renaming: dict[str, str], tools: object) -> None:
    from tritonhook.cubin.image import Cubin

    world = real_world(world, tools)
    make_ptx(world.folder / "a.ptx")
    plain = world.call("-arch=sm_90a", "a.ptx", "-o", "plain", through=world.real)
    done = world.call("-arch=sm_90a", "a.ptx", "-o", "x", env=renaming)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    assert (world.folder / "x").read_bytes() == (world.folder / "plain").read_bytes()  # the program gets its own
    captures = world.captures
    assert {name: capture.rewritten_from for name, capture in captures.items()} == {"add": None, "cutlass_add": "add"}
    assert Cubin.from_bytes(captures["cutlass_add"].cubin, "x").kernels == ("cutlass_add",)
    assert captures["cutlass_add"].ptx.entries == ("cutlass_add",)
    (note,) = CaptureFolder.open(world.out).notes
    assert "kernels keep their names in the program" in note
    assert world.trouble == []


def test_a_crash_under_the_new_name_is_kept_and_costs_nothing(world: World, renaming: dict[str, str]) -> None:
    make_ptxas(
        world.real.parent, SCRIPT + 'for word; do grep -q cutlass_ "$word" 2>&- && kill -SEGV $$; done; exit 0\n'
    )
    make_ptx(world.folder / "a.ptx")
    done = world.call("a.ptx", "-o", "x", env=renaming)
    assert (done.returncode, done.stderr) == (0, b"")
    folder = CaptureFolder.open(world.out)
    assert set(world.captures) == {"add"}
    (crash,) = folder.crashes
    assert json.loads(crash.read_text())["signal"] == "SIGSEGV"
    assert "no renamed form: ptxas 12.8.93 died with SIGSEGV" in folder.notes[0]


def test_several_inputs_are_not_renamed_and_it_is_said(world: World, renaming: dict[str, str]) -> None:
    make_ptx(world.folder / "a.ptx")
    make_ptx(world.folder / "b.ptx", "mul")
    world.call("a.ptx", "b.ptx", "-o", "x", env=renaming)
    assert set(world.captures) == {"add", "mul"}
    assert "several inputs: no renamed form" in CaptureFolder.open(world.out).notes[0]


def test_a_rejected_module_leaves_nothing_behind(world: World, renaming: dict[str, str], tmp_path: Path) -> None:
    make_ptx(world.folder / "a.ptx")
    (tmp_path / "tmp").mkdir()
    done = world.call("a.ptx", env=renaming | {"FAKE_DO": "exit 1", "TMPDIR": str(tmp_path / "tmp")})
    assert done.returncode == 1
    assert list((tmp_path / "tmp").iterdir()) == []
    assert CaptureFolder.open(world.out).crashes == ()


def test_a_new_name_that_is_taken_costs_the_renamed_form_only(world: World) -> None:
    make_ptx(world.folder / "a.ptx", extra=make_ptx(world.folder / "b", "cutlass_add").read_text().partition("64\n")[2])
    rename = {"prefix": "", "strip": "", "mapping": [["add", "cutlass_add"]], "entry": None}
    world.call("a.ptx", env=world.settings(rename=rename))
    assert set(world.captures) == {"add", "cutlass_add"}
    assert CaptureFolder.open(world.out).notes[0].startswith("add: no renamed form: ")
    assert world.trouble == []
