"""`tritonhook run`: a user's script and its children, cold and warm; exit codes, signals, sitecustomize."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from ended import ended
from hangs import HANG_S

from tritonhook.cli import main

pytest.importorskip("triton", reason="needs triton")

SCRIPT = """
import sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def copy_block(a, b, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(b + o, tl.load(a + o, mask=o < n), mask=o < n)

@triton.jit
def add(a, b, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(b + o, tl.load(a + o, mask=o < n) + 1, mask=o < n)

@triton.jit
def total(a, b, n, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float32)
    for i in range(0, n, B):
        acc += tl.load(a + i + tl.arange(0, B))
    tl.store(b + tl.arange(0, B), acc)

def build(fn, arch):
    signature = dict(a="*fp32", b="*fp32", n="i32", B="constexpr")
    source = ASTSource(fn=fn, signature=signature, constexprs={"B": 128})
    return triton.compile(source, target=GPUTarget("cuda", arch, 32))

if __name__ == "__main__":
    for arch in (90, 100):
        for fn in (copy_block, add, total):
            print(build(fn, arch).metadata.name, arch)
    sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
KERNELS = {"copy_block", "add", "total"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def command(place: Path, *words: str, **environment: str) -> tuple[list[str], dict]:
    base = {k: v for k, v in os.environ.items() if not k.startswith(("TRITONHOOK_", "PYTHONPATH"))}
    base |= {"TRITON_CACHE_DIR": str(place / "cache"), "TRITONHOOK_OUT": str(place / "out")} | environment
    options = {"cwd": place, "env": base, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return [sys.executable, "-m", "tritonhook", *words], options


def tritonhook(place: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    line, options = command(place, *words, **environment)
    return ended(line, place, options["env"], status=None)


def shown(place: Path) -> list[dict]:
    done = tritonhook(place, "show", "out", "--all", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["kernels"]


def test_cold_and_warm_cache_list_the_same_kernels(place: Path) -> None:
    cold = tritonhook(place, "run", "script.py")
    warm = tritonhook(place, "run", "--out", "out2", "script.py")
    assert (cold.returncode, warm.returncode) == (0, 0)
    assert "6 kernels seen, 0 from cache" in cold.stderr
    assert "6 kernels seen, 6 from cache" in warm.stderr
    for folder, hit in (("out", False), ("out2", True)):
        document = json.loads(tritonhook(place, "show", folder, "--json").stdout)
        assert {(k["kernel"], k["arch"]) for k in document["kernels"]} == {
            (name, arch) for name in KERNELS for arch in ("sm_90a", "sm_100a")
        }
        assert all([s["cache_hit"] for s in k["seen"]] == [hit] for k in document["kernels"])
        assert all({"ttir", "ttgir", "llir", "ptx", "cubin"} <= set(k["stages"]) for k in document["kernels"])
    # The script's own output is untouched.
    assert (
        cold.stdout == warm.stdout == "".join(f"{n} {a}\n" for a in (90, 100) for n in ("copy_block", "add", "total"))
    )


def test_renaming_reaches_the_script_and_leaves_its_cache_clean(place: Path) -> None:
    renamed = tritonhook(place, "run", "--prefix", "cutlass_", "--only", "^(add|total)$", "script.py")
    assert renamed.stdout.split()[::2] == ["copy_block", "cutlass_add", "cutlass_total"] * 2
    plain = subprocess.run([sys.executable, "script.py"], check=True, **command(place)[1])
    assert plain.stdout.split()[::2] == ["copy_block", "add", "total"] * 2
    origins = {k["kernel"]: k["rewritten_from"] for k in shown(place)}
    assert origins == {"cutlass_add": "add", "cutlass_total": "total"}


def test_children_are_reached(place: Path) -> None:
    (place / "parent.py").write_text(
        "import multiprocessing, subprocess, sys\n"
        "import script\n"
        "def child(arch): script.build(script.add, arch)\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn'):\n"
        "        arch = 80 if method == 'fork' else 90\n"
        "        p = multiprocessing.get_context(method).Process(target=child, args=(arch,))\n"
        "        p.start(); p.join(); assert p.exitcode == 0\n"
        "    code = 'import script; script.build(script.total, 80)'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    done = tritonhook(place, "run", "parent.py")
    assert done.returncode == 0, done.stderr
    assert "3 kernels seen, 0 from cache" in done.stderr
    seen = {(k["kernel"], k["arch"]): k["seen"][0]["process"] for k in shown(place)}
    assert set(seen) == {("add", "sm_80"), ("add", "sm_90a"), ("total", "sm_80")}
    assert len(set(seen.values())) == 3  # an index of its own for each process


def test_a_program_and_a_module(place: Path) -> None:
    program = tritonhook(place, "run", "--", sys.executable, "script.py")
    module = tritonhook(place, "run", "-m", "script")
    assert "6 kernels seen, 0 from cache" in program.stderr
    assert "6 kernels seen, 6 from cache" in module.stderr


def test_programs_find_the_wrapper_of_ptxas_first(place: Path, monkeypatch, capfd) -> None:
    own = place / "bin" / "ptxas"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TRITONHOOK_CACHE", str(place / "cache"))
    assert main(["run", "--out", str(place / "out"), "--", "sh", "-c", "command -v ptxas"]) == 0
    assert Path(capfd.readouterr().out.strip()).is_relative_to(place / "cache" / "toolkits")


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_status_is_the_scripts(place: Path, code: int) -> None:
    (place / "ends.py").write_text(f"import sys; sys.exit({code})")
    assert tritonhook(place, "run", "ends.py").returncode == code


def test_the_status_of_a_killed_script(place: Path) -> None:
    (place / "dies.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert tritonhook(place, "run", "dies.py").returncode == 128 + signal.SIGKILL


def started(place: Path, script: str, **options: object) -> subprocess.Popen:
    """`tritonhook run` of a script, once that has written the file `started`."""
    (place / "waits.py").write_text(script)
    line, usual = command(place, "run", "waits.py")
    process = subprocess.Popen(line, **(usual | options))
    for _ in range(1200):
        if (place / "started").exists() and (place / "started").read_text():
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the script did not start")


WAITS = "import os, time; open('started', 'w').write(str(os.getpid())); time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_run_ends_its_script(place: Path, number: signal.Signals) -> None:
    process = started(place, WAITS, start_new_session=True)  # no terminal, whoever runs this test
    process.send_signal(number)
    process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(int((place / "started").read_text()), 0)


def test_a_terminals_interrupt_reaches_the_script_once(place: Path) -> None:
    counts = (
        "import signal, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "open('started', 'w').write('yes')\n"
        "while not seen: time.sleep(0.1)\n"
        "time.sleep(1)  # for a second one\n"
        "open('count', 'w').write(str(len(seen)))\n"
    )
    master, terminal = pty.openpty()

    def own_terminal() -> None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    try:
        process = started(place, counts, stdin=terminal, start_new_session=True, preexec_fn=own_terminal)
        os.write(master, b"\x03")
        process.communicate(timeout=HANG_S)
    finally:
        os.close(master)
        os.close(terminal)
    assert (process.returncode, (place / "count").read_text()) == (0, "1")


def test_what_nohup_ignores_stays_ignored(place: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = started(place, WAITS.replace("60", "1"), start_new_session=True, preexec_fn=ignore)
    os.killpg(process.pid, signal.SIGHUP)
    process.communicate(timeout=HANG_S)
    assert process.returncode == 0


@pytest.mark.usefixtures("cold_start")
def test_the_users_sitecustomize_still_runs(place: Path) -> None:
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text("import builtins; builtins.USERS_OWN = 'ran'")
    (place / "asks.py").write_text("import sys; print(USERS_OWN, sys.modules['sitecustomize'].__file__)")
    done = tritonhook(place, "run", "asks.py", PYTHONPATH=str(place / "site"))
    assert done.stdout.split() == ["ran", str(place / "site" / "sitecustomize.py")]


@pytest.mark.usefixtures("cold_start")
def test_a_script_without_triton_loads_nothing_of_it(place: Path) -> None:
    (place / "small.py").write_text(
        "import sys; print('triton' in sys.modules, 'tritonhook.ptx_capture' in sys.modules)"
    )
    done = tritonhook(place, "run", "small.py")
    assert done.stdout.split() == ["False", "False"]
    assert "0 kernels seen" in done.stderr
    assert "after `tritonhook run --install-startup`" in done.stderr
    failed = tritonhook(place, "run", "-m", "no_such_module")
    assert "--install-startup" not in failed.stderr, "a program that failed needs no other reason"


@pytest.mark.usefixtures("cold_start")
def test_asking_for_triton_before_importing_it(place: Path) -> None:
    # torch looks for triton's spec long before it imports it.
    (place / "asks.py").write_text(
        "import importlib.util\n"
        "for _ in range(2): assert importlib.util.find_spec('triton')\n"
        "import script; script.build(script.add, 80)\n"
    )
    assert "1 kernel seen, 0 from cache" in tritonhook(place, "run", "asks.py").stderr


@pytest.mark.usefixtures("cold_start")
def test_trouble_in_a_child_is_reported_and_breaks_nothing(place: Path) -> None:
    (place / "old").mkdir()
    (place / "old" / "triton.py").write_text("__version__ = '3.4.0'")
    (place / "uses.py").write_text("import triton; print(triton.__version__)")
    done = tritonhook(place, "run", "uses.py", PYTHONPATH=str(place / "old"))
    assert (done.returncode, done.stdout) == (0, "3.4.0\n")
    assert "not enabled in process" in done.stderr
    assert "triton 3.6 or newer" in done.stderr


def test_strip_is_a_flag_before_the_script(place: Path) -> None:
    (place / "named.py").write_text(
        SCRIPT.replace("def add(", "def cutlass_add(").replace("(copy_block, add, total)", "(cutlass_add,)")
    )
    done = tritonhook(place, "run", "--strip", "named.py", "3")
    assert done.returncode == 3, done.stderr
    assert done.stdout.split()[0] == "add"


def test_the_document_is_a_file_of_its_own(place: Path) -> None:
    done = tritonhook(place, "run", "--save", "seen.json", "--to", "add=plus", "--to", "nosuch=x", "script.py", "7")
    assert (done.returncode, done.stdout.count("\n")) == (7, 6)  # the script's words and nothing else
    document = json.loads((place / "seen.json").read_text())
    assert {k["kernel"] for k in document["kernels"]} == {"copy_block", "plus", "total"}
    sentence = "--to nosuch=x: no kernel of that name was seen"
    assert sentence in document["notes"]
    assert sentence in done.stderr
    assert "--to add=plus" not in done.stderr
    again = tritonhook(place, "run", "--save", "seen.json", "script.py")
    assert (again.returncode, again.stdout) == (2, "")  # said before the script runs
    assert "seen.json: exists; pass --force" in again.stderr
    (place / "small.py").write_text("")
    assert tritonhook(place, "run", "--save", "seen.json", "--force", "small.py").returncode == 0
    assert json.loads((place / "seen.json").read_text())["processes"] == []
    missing = tritonhook(place, "run", "--save", "nowhere/seen.json", "small.py")
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)


def test_a_report_that_fails_leaves_the_scripts_status(place: Path) -> None:
    (place / "odd.py").write_text("import sys; open('out/index/odd.jsonl', 'w').write('[]'); sys.exit(7)")
    done = tritonhook(place, "run", "odd.py")
    assert done.returncode == 7
    (place / "odd.py").write_text("import shutil, sys; shutil.rmtree('out'); sys.exit(7)")
    done = tritonhook(place, "run", "odd.py")
    assert (done.returncode, done.stderr.count("\n")) == (7, 1)
    assert done.stderr.startswith("tritonhook run, after the script: out: no such file or folder")


def test_a_report_that_nobody_reads_leaves_the_scripts_status(place: Path) -> None:
    line, options = command(place, "run", "script.py", "7")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert subprocess.run(line, check=False, **(options | {"stderr": writer})).returncode == 7
    finally:
        os.close(writer)
