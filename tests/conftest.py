"""Fixtures: a Triton cache of its own for each test, a fake driver, other processes."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ran_somewhere
import warm
from ended import python_ended
from repository import ROOT, SUPPORT

_FOREIGN = ("TRITON", "PTXAS", "DISABLE_PTXAS_OPT", "CUDA_HOME", "CUDA_PATH", "RANK", "SLURM", "OMPI", "PMI")

# The same inputs on every machine, and none is too slow on a busy one. Other conftests begin with these settings.
with suppress(ImportError):
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow]
    settings.register_profile("tests", derandomize=True, deadline=None, database=None, suppress_health_check=slow)
    settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files again instead of comparing them")


def pytest_configure(config: pytest.Config) -> None:
    """Undo what the developer's shell decides: the width of output; and the signals that its background and nohup make
    pytest ignore, as the programs that the tests start must not. Tests side by side take one thread of torch each."""
    os.environ.pop("COLUMNS", None)
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":  # mutmut looks for its settings in each process that has it
        del os.environ["MUTANT_UNDER_TEST"]
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    elif "TESTS_RAN" in os.environ:
        config.pluginmanager.register(ran_somewhere)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are no garbage: looking for it takes a third of the time in which they are collected."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = _no_gpu()
    for item in items:
        if reason and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
        if "NIGHTLY" not in os.environ and item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.skip(reason="takes long: `make test-nightly`"))


def _no_gpu() -> str | None:
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:
        return "needs an NVIDIA GPU: there is no libcuda.so.1"
    return f"needs an NVIDIA GPU: cuInit says {code}" if code else None


@pytest.fixture(autouse=True, scope="session")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder of every test: no test reads what lies where pytest starts."""
    start = Path.cwd()
    empty = tmp_path_factory.mktemp("current")
    os.chdir(empty)
    yield empty
    os.chdir(start)


@pytest.fixture(autouse=True)
def nothing_left(empty_folder: Path) -> Iterator[None]:
    """A test that writes to the current folder makes a folder of its own first: `monkeypatch.chdir(tmp_path)`."""
    yield
    left = sorted(empty_folder.iterdir())
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not left, f"left in the current folder: {', '.join(path.name for path in left)}"


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a quick verb may take long enough to say what it does: tests of standard error would see it."""
    from tritonhook.cli import _progress

    monkeypatch.setattr(_progress, "DELAY_S", 3600.0)


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a search that ends after some seconds would find less."""
    monkeypatch.setattr("tritonhook.compare.names.MAX_DRAW_SECONDS", 3600.0)
    monkeypatch.setattr("tritonhook.tuning.engine._RACE_S", 3600.0)


@pytest.fixture(scope="session")
def warm_server(disassembled_once: Path) -> Iterator[str]:
    with warm.served(disassembled_once) as server:
        yield server


@pytest.fixture(scope="module")
def warm_start(warm_server: str) -> Iterator[None]:
    """In a module with this fixture, scripts that verbs run and Pythons of `ended` are forked from a warm process."""
    from tritonhook.cli import _programs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(warm.SERVER, warm_server)
        patch.setattr(_programs, "subprocess", SimpleNamespace(Popen=warm.start))
        yield


@pytest.fixture
def cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of this test start as a user's do."""
    monkeypatch.delenv(warm.SERVER, raising=False)


@pytest.fixture(autouse=True, scope="session")
def disassembled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Each code is disassembled by one run of nvdisasm for all tests; where `make` names a cache, for all runs of a
    month."""
    from known_disassembly import folder_in, remembering

    from tritonhook.ptxas import toolchain

    base = tmp_path_factory.getbasetemp()
    of_make = os.environ.get("XDG_CACHE_HOME")
    folder = folder_in(Path(of_make) if of_make else base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolchain, "run_tool", remembering(toolchain.run_tool, folder))
        yield folder


@pytest.fixture(autouse=True)
def gpu_left_whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test on a GPU: its kernels' errors are its own, and other processes' tests can have its memory."""
    yield
    torch = sys.modules.get("torch")
    if request.node.get_closest_marker("gpu") and torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


@pytest.fixture
def triton_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for Triton, and none of the user's settings."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN):
            monkeypatch.delenv(name)
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    return cache


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where captures go."""
    return tmp_path / "captures"


@pytest.fixture
def screens(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Any:
    """Golden screens of 80 columns: `check(name, draw)`, `check_command(name, *words)`."""
    from screens import golden_screens

    return golden_screens(request.config.getoption("--update"), monkeypatch, capsys)


@pytest.fixture
def driver(triton_cache: Path) -> Iterator[Any]:
    """The fake driver, active."""
    from fake_driver import active

    with active() as fake:
        yield fake


@pytest.fixture
def run_python(
    tmp_path: Path, triton_cache: Path, warm_server: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run code in another process that shares this test's Triton cache; returns what it printed last, from JSON.

    The code sees json, kernels, fake_driver and tritonhook. Its stderr is in `.stderr` of the function. `.forked(code,
    environments)` runs it once in each environment, in processes that one forks after its imports.
    """
    monkeypatch.setenv(warm.SERVER, warm_server)

    def run(code: str, **env: str) -> Any:
        prelude = "import json, os, sys, triton_kernels as kernels, fake_driver, tritonhook\n"
        paths = [str(SUPPORT), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), "TRITONHOOK_QUIET": "1"} | env
        done = python_ended("-c", prelude + code, folder=tmp_path, **environment)
        run.stderr = done.stderr  # type: ignore[attr-defined]
        lines = done.stdout.splitlines()
        return json.loads(lines[-1]) if lines else None

    def forked(code: str, environments: Sequence[Mapping[str, str]]) -> Any:
        seen = "json=json, os=os, kernels=kernels, fake_driver=fake_driver, tritonhook=tritonhook"
        return run(
            f"from forked import said_by\nsaid = []\nfor environment in {list(environments)!r}:\n"
            "    os.environ.update(environment)\n"
            f"    said += said_by({{'it': {code!r}}}, {seen})['it'].splitlines()[-1:]\n"
            "print(json.dumps([json.loads(line) for line in said]))"
        )

    run.forked = forked  # type: ignore[attr-defined]
    return run


@pytest.fixture
def time_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The clock of tritonhook.ptxas.limits stands still; call this, and the time of all that runs is over."""
    from tritonhook.ptxas import limits

    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(limits, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def over() -> None:
        clock.now += 1e6

    return over


@pytest.fixture(scope="session")
def tools() -> Any:
    """ptxas 12.8.93, which the pinned sizes were seen with, and nvdisasm."""
    from at_hand import toolchain_at_hand

    return toolchain_at_hand("12.8.93")
