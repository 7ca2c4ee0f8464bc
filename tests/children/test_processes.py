"""The processes that `tritonhook run` reaches; many writers at once, a full disk, killed writers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ended import Done, ended, python_ended
from hangs import HANG_S
from repository import ROOT, SUPPORT

from tritonhook.capture.store import CaptureFolder
from tritonhook.children import SITE, environment
from tritonhook.cli import main
from tritonhook.errors import CaptureError

pytestmark = pytest.mark.usefixtures("warm_start")
Go = Callable[..., Done]
_OURS = ("TRITONHOOK", "PYTHON")  # beginnings of variables
BUILD = "from triton_kernels import compile_kernel, add_kernel, multiply_kernel, fused_kernel\n"


@pytest.fixture
def go(tmp_path: Path, triton_cache: Path) -> Go:
    """`tritonhook run` of a script, or of a command, in tmp_path; the captures go to tmp_path/out."""
    pytest.importorskip("triton", minversion="3.6")

    def go(
        script: str = "",
        *,
        command: list[str] | None = None,
        path: tuple[Path, ...] = (),
        check: bool = True,
        **env: str,
    ) -> Done:
        if script:
            (tmp_path / "script.py").write_text(f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\n{script}")
        words = ["run", "--out", str(tmp_path / "out"), *(["--", *command] if command else ["script.py"])]
        found = env | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path)))}
        status = 0 if check else None
        return python_ended("-m", "tritonhook", *words, folder=tmp_path, status=status, without=_OURS, **found)

    return go


def met(tmp_path: Path) -> dict[str, set[str]]:
    """The kernels, and the processes that met each."""
    folder = CaptureFolder.open(tmp_path / "out")
    found: dict[str, set[str]] = {}
    for sighting in folder.sightings:
        found.setdefault(sighting.kernel, set()).add(sighting.process)
    return found


# --- which processes are reached -----------------------------------------------------------------


def test_every_way_of_starting_a_process(go, tmp_path):
    """multiprocessing by fork, spawn and forkserver, a subprocess, and a fork after Triton was imported."""
    go(
        "import multiprocessing, os, subprocess\n"
        "def child(name):\n"
        "    import triton_kernels as kernels\n"
        "    kernels.compile_kernel(getattr(kernels, name))\n"
        "if __name__ == '__main__':\n"
        "    ways = {'fork': 'add_kernel', 'spawn': 'multiply_kernel', 'forkserver': 'fused_kernel'}\n"
        "    for way, name in ways.items():\n"
        "        p = multiprocessing.get_context(way).Process(target=child, args=(name,))\n"
        "        p.start(); p.join(); assert p.exitcode == 0, way\n"
        "    code = 'import triton_kernels as kernels; kernels.compile_kernel(kernels.cutlass_copy_kernel)'\n"
        f"    subprocess.run([sys.executable, '-c', code], check=True, cwd={str(SUPPORT)!r})\n"
        "    child('add_kernel')\n"
        "    if (pid := os.fork()) == 0:\n"
        "        child('multiply_kernel'); os._exit(0)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n",
        TMPDIR="/tmp",  # a forkserver makes a socket there: its path must be short
    )
    found = met(tmp_path)
    assert set(found) == {"add_kernel", "multiply_kernel", "fused_kernel", "cutlass_copy_kernel"}
    # the parent met add_kernel after its first child, and the last fork met multiply_kernel: each has an index
    assert [len(found[name]) for name in ("add_kernel", "multiply_kernel")] == [2, 2]
    assert len(set.union(*found.values())) == 6


CHILD = f"import sys; sys.path.insert(0, {str(SUPPORT)!r}); import triton_kernels as kernels; kernels.compile_kernel()"


@pytest.mark.parametrize(
    ("flag", "reached"),
    [("-s", True), ("-I", False), *(pytest.param(flag, False, marks=pytest.mark.nightly) for flag in ("-E", "-S"))],
)
def test_interpreter_flags(go, tmp_path, flag, reached):
    """-E and -I ignore PYTHONPATH, and -S runs no sitecustomize: these are not reached, and run as usual."""
    done = go(command=[sys.executable, flag, "-c", _with_packages(CHILD)])
    assert ("add_kernel" in met(tmp_path)) is reached
    assert ("0 kernels seen" in done.stderr) is not reached


def _with_packages(code: str) -> str:
    """The code, with this environment's packages under -S too."""
    paths = [entry for entry in sys.path if entry.endswith("-packages")]
    return f"import sys; sys.path += {paths!r}; {code}"


@pytest.fixture(scope="module")
def with_pth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the packages of this one, and with the .pth file."""
    venv = tmp_path_factory.mktemp("with pth") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    folder = environment.site_folder(str(python))
    packages = [entry for entry in sys.path if entry.endswith("-packages")]
    (folder / "borrowed.pth").write_text("\n".join(packages))
    assert main(["run", "--install-startup", str(python)]) == 0
    return python


@pytest.mark.parametrize("flag", ["-I", pytest.param("-E", marks=pytest.mark.nightly)])
def test_a_pth_reaches_what_ignores_pythonpath(go, tmp_path, with_pth, flag):
    go(command=[str(with_pth), flag, "-c", CHILD])
    assert set(met(tmp_path)) == {"add_kernel"}


def test_a_pth_and_pythonpath_together_capture_once(go, tmp_path, with_pth):
    go(command=[str(with_pth), "-c", CHILD])
    folder = CaptureFolder.open(tmp_path / "out")
    assert (len(folder.sightings), len(folder.processes)) == (1, 1)


def test_a_pth_does_nothing_outside_a_run(with_pth, tmp_path):
    code = "import sys; print([m for m in sys.modules if m.startswith('tritonhook')])"
    done = subprocess.run([with_pth, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.usefixtures("cold_start")
def test_the_users_own_startup_files_still_run(go, tmp_path):
    """Ours runs the user's sitecustomize, and Python runs usercustomize; both before the script, after tritonhook."""
    site = tmp_path / "site"
    site.mkdir()
    seen = "import sys; sys.seen = [*getattr(sys, 'seen', ()), {!r}, 'tritonhook.children.bootstrap' in sys.modules]\n"
    (site / "sitecustomize.py").write_text(seen.format("site"))
    (site / "usercustomize.py").write_text(seen.format("user"))
    code = "import site; assert 'torch' not in sys.modules and 'triton' not in sys.modules\nprint(sys.seen)\n"
    done = go(code + "print(site.ENABLE_USER_SITE)", path=(site,))
    users = done.stdout.splitlines()[1] == "True"
    assert done.stdout.splitlines()[0] == str(["site", True, *(["user", True] if users else [])])


def test_two_tritonhooks_begin_once_and_the_users_startup_file_still_runs(tmp_path):
    """One runs the program, and the program's environment has another: each has a sitecustomize."""
    others = [tmp_path / name / "tritonhook" / "children" / "_site" for name in ("one", "two")]
    for other in others:
        shutil.copytree(SITE, other)
    users = tmp_path / "users"
    users.mkdir()
    (users / "sitecustomize.py").write_text("print('users')")
    for path in ([others[0], ROOT, users], [*others, ROOT, SITE, users]):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        done = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("users\n", "")


def test_pytest_workers_are_reached(go, tmp_path):
    pytest.importorskip("xdist", reason="needs pytest-xdist")
    (tmp_path / "test_some.py").write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\n{BUILD}"
        "import os, pytest\n"
        "@pytest.mark.parametrize('kernel', [add_kernel, multiply_kernel, fused_kernel])\n"
        "def test_one(kernel):\n"
        "    assert 'PYTEST_XDIST_WORKER' in os.environ\n"
        "    compile_kernel(kernel)\n"
    )
    words = ["-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "test_some.py"]
    done = go(command=[sys.executable, *words])
    assert "3 passed" in done.stdout
    assert set(met(tmp_path)) == {"add_kernel", "multiply_kernel", "fused_kernel"}


# --- ranks ---------------------------------------------------------------------------------------

LAUNCHER = (
    "import os, subprocess\n"
    "code = 'import os, triton_kernels as k; k.compile_kernel(); "
    'k.compile_kernel([k.multiply_kernel, k.fused_kernel][int(os.environ["RANK"])])\'\n'
    "world = [subprocess.Popen([sys.executable, '-c', code],\n"
    f"    cwd={str(SUPPORT)!r}, env=os.environ | dict(RANK=r, LOCAL_RANK=r, WORLD_SIZE='2')) for r in '01']\n"
    "assert [p.wait() for p in world] == [0, 0]\n"
)


def test_ranks_are_told_apart(go, tmp_path, capsys, monkeypatch):
    go(LAUNCHER)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["show", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("  ranks") for line in lines)  # the last column; two blanks or more between columns
    ranks = {line.split()[1]: line.rpartition("  ")[2].split() for line in lines if "_kernel" in line}
    assert ranks == {"add_kernel": ["0", "1"], "multiply_kernel": ["0"], "fused_kernel": ["1"]}
    assert main(["show", "--rank", "1", "--json", str(tmp_path / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {k["kernel"] for k in document["kernels"]} == {"add_kernel", "fused_kernel"}
    assert {s["rank"] for k in document["kernels"] for s in k["seen"]} == {"1"}
    assert [p["rank"] for p in document["processes"]] == ["1"]
    with pytest.raises(CaptureError, match="rank 7; the ranks here are 0, 1"):
        CaptureFolder.open(tmp_path / "out").of_rank("7")


def test_torchrun(go, tmp_path):
    pytest.importorskip("torch", reason="needs torch, e.g. its CPU build")
    (tmp_path / "train.py").write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\n{BUILD}"
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "compile_kernel([add_kernel, multiply_kernel][dist.get_rank()])\n"
        "dist.destroy_process_group()\n"
    )
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    go(command=[sys.executable, *words])
    folder = CaptureFolder.open(tmp_path / "out")
    assert sorted((s.rank, s.kernel) for s in folder.sightings) == [("0", "add_kernel"), ("1", "multiply_kernel")]


# --- many writers, full disks, killed writers ----------------------------------------------------

WRITER = """
import os, sys, time
from pathlib import Path
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureWriter

out, cache, number, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
writer = CaptureWriter(out)
for index in range(count):
    # every second kernel is the same for all processes
    name = f"kernel_{index}" if index % 2 else f"kernel_{index}_{number}"
    files = {}
    for stage in (Stage.TTIR, Stage.PTX, Stage.CUBIN):
        path = cache / f"{number}-{index}.{stage.value}"
        path.write_bytes(name.encode() * 100)
        files[stage] = str(path)
    hash = f"{index:064x}"
    writer.add_files(Capture(name, hash, "sm_90a", dict.fromkeys(files, ""), Assembler(), cache_hit=False), files)
writer.close()
"""


def writers(tmp_path: Path, processes: int, count: int) -> list[subprocess.Popen[str]]:
    """Processes that wait for a line, and then write at once."""
    (tmp_path / "cache").mkdir()
    words = [sys.executable, "-c", WRITER, str(tmp_path / "out"), str(tmp_path / "cache")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [*words, str(number), str(count)],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(processes)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return started


def finish(started: list[subprocess.Popen[str]]) -> list[int]:
    codes = [process.wait(timeout=HANG_S) for process in started]
    for process in started:
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
    return codes


def assert_whole(folder: CaptureFolder) -> None:
    """Check that every record is complete and holds its kernel."""
    for record in folder.records:
        capture = folder.capture(record)
        assert {len(data) for data in capture.artifacts.values()} == {100 * len(capture.kernel)}, record
        assert capture.cubin == capture.kernel.encode() * 100


def test_8_processes_lose_and_tear_nothing(tmp_path):
    assert finish(writers(tmp_path, 8, 200)) == [0] * 8
    folder = CaptureFolder.open(tmp_path / "out")
    assert (folder.torn, len(folder.processes), len(folder.sightings)) == (0, 8, 8 * 200)
    assert len(folder.records) == 100 + 8 * 100
    assert {folder.capture(record).kernel for record in folder.records} == {s.kernel for s in folder.sightings}
    assert_whole(folder)
    assert not list((tmp_path / "out" / "kernels").glob(".*"))


def test_killed_writers_leave_a_readable_store(tmp_path):
    """After SIGKILL while writing, all records are whole, and the next process goes on."""
    started = writers(tmp_path, 4, 100_000)
    kernels = tmp_path / "out" / "kernels"
    while not kernels.exists() or len(list(kernels.iterdir())) < 100:
        assert all(process.poll() is None for process in started)
        time.sleep(0.02)
    for pause, process in enumerate(started):
        time.sleep(0.02 * pause)
        process.send_signal(signal.SIGKILL)
    assert finish(started) == [-signal.SIGKILL] * 4
    folder = CaptureFolder.open(tmp_path / "out")
    assert len(folder.records) > 50
    assert folder.torn <= 4
    assert_whole(folder)
    shutil.rmtree(tmp_path / "cache")
    before = len(folder.records)
    assert finish(writers(tmp_path, 1, 10)) == [0]
    assert len(CaptureFolder.open(tmp_path / "out").records) >= before


@pytest.mark.machine
def test_a_full_disk_costs_the_capture_only(go, tmp_path):
    """A real file system of 128 KiB that fills up while the script compiles."""
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs unshare and user namespaces, to mount a small file system")
    (tmp_path / "out").mkdir()
    script = tmp_path / "many.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\n{BUILD}"
        "for block in (32, 64, 128, 256, 512, 1024):\n"
        "    print(compile_kernel(block=block).name)\n"
    )
    here, python = shlex.quote(str(tmp_path)), shlex.quote(sys.executable)
    inner = (
        f"cd {here} && mount -t tmpfs -o size=128k tmpfs out && {python} -m tritonhook run --out out many.py; code=$?; "
        "cp -r out kept; df out; exit $code"
    )
    done = ended([*own, "sh", "-c", inner], tmp_path, os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.splitlines()[:6] == ["add_kernel"] * 6
    assert done.stderr.count("No space left on device") <= 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    kept = CaptureFolder.open(tmp_path / "kept")
    assert 0 < len(kept.records) < 6
    for record in kept.records:
        assert kept.capture(record).cubin.startswith(b"\x7fELF")
