"""Triton's Autotuner in a dry run, in this process, with stand-ins for the tuner and for forked processes."""

from __future__ import annotations

import io
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton.runtime.autotuner import Autotuner

from tritonhook._util.variables import EMULATE
from tritonhook.capture.dry_run import autotuner
from tritonhook.capture.dry_run.autotuner import choosing, compile_ahead, tuners
from tritonhook.capture.dry_run.gpu import ALL, FIRST, PINNED, Notes
from tritonhook.capture.launches.recorder import recorder
from tritonhook.capture.triton.listener import listening

INF = float("inf")


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """No tuner of this thread has found anything; the remarks, of which there are none yet."""
    for name, value in vars(autotuner.Tuners()).items():
        monkeypatch.setattr(tuners, name, value)
    assert (tuners.trying, tuners.found, tuners.arguments) == (False, set(), ())
    notes = Notes()
    monkeypatch.setattr(autotuner, "notes", notes)
    return notes


class Tuner:
    """As an Autotuner, as far as a dry run looks at it. Configurations above `fits` fit no GPU."""

    cache_results = True

    def __init__(self, fits: int = 9) -> None:
        self.base_fn: Any = SimpleNamespace(__name__="add")
        self.fits = fits
        self.compiled: list[Any] = []

    def bench(self, *arguments: Any, config: int) -> list[float]:
        assert tuners.trying
        self.compiled.append((*arguments, config))
        if config > self.fits:
            return [INF] * 3
        return vars(self)["do_bench"](lambda: None, quantiles=(0.5, 0.2, 0.8))  # type: ignore[no-any-return]


def tried(monkeypatch: pytest.MonkeyPatch, autotune: str, tuner: Any) -> list[list[float]]:
    """What `_bench` gives for the configurations 1 to 3, in a run of the tuner."""
    monkeypatch.setattr(Autotuner, "_bench", Tuner.bench)
    with choosing(autotune):
        return [Autotuner._bench(tuner, "x", config=config) for config in (1, 2, 3)]


@pytest.mark.parametrize("autotune", [FIRST, ALL, PINNED])
def test_the_first_that_fits_is_compiled_or_all(monkeypatch, nothing_found, autotune) -> None:
    tuner = Tuner()
    times = tried(monkeypatch, autotune, tuner)
    every = autotune == ALL
    assert times == [[0.0] * 3, *([[0.0] * 3 if every else [INF] * 3] * 2)]
    assert tuner.compiled == [("x", config) for config in ((1, 2, 3) if every else (1,))]
    assert [note.partition(":")[0] for note in nothing_found] == (["add"] if autotune == PINNED else [])
    assert "do_bench" not in vars(tuner) and tuners.trying is False


def test_what_does_not_fit_is_passed_over(monkeypatch) -> None:
    tuner = Tuner(fits=0)
    vars(tuner)["do_bench"] = own = object()
    assert tried(monkeypatch, FIRST, tuner) == [[INF] * 3] * 3 and len(tuner.compiled) == 3
    assert vars(tuner)["do_bench"] is own, "the tuner's own clock is given back"
    monkeypatch.setattr(tuners, "trying", True)  # a tuner within a tuner
    assert tried(monkeypatch, FIRST, tuner)[0] == [INF] * 3 and tuners.trying is True


def test_a_run_uses_no_cache_on_disk_and_knows_its_arguments(monkeypatch) -> None:
    seen: list[Any] = []

    def run(tuner: Any, *arguments: Any, **named: Any) -> str:
        seen.append((tuner.cache_results, tuners.arguments, arguments, named))
        if "wrong" in named:
            raise ValueError
        return "result"

    monkeypatch.setattr(Autotuner, "run", run)
    monkeypatch.setattr(tuners, "arguments", ("outer",))
    tuner: Any = Tuner()
    bare: Any = SimpleNamespace()
    with choosing(FIRST):
        assert Autotuner.run(tuner, 1, 2, grid=3) == Autotuner.run(bare, 1, 2, grid=3) == "result"
        with pytest.raises(ValueError):
            Autotuner.run(tuner, wrong=True)
    assert Autotuner.run is run
    assert seen == [(False, (1, 2), (1, 2), {"grid": 3})] * 2 + [(False, (), (), {"wrong": True})]
    assert (tuner.cache_results, bare.cache_results, tuners.arguments) == (True, False, ("outer",))


@pytest.mark.parametrize("autotune", [FIRST, ALL])
def test_what_the_pruning_leaves_is_tried_anew(monkeypatch, autotune) -> None:
    ahead: list[Any] = []
    monkeypatch.setattr(autotuner, "compile_ahead", lambda *given: ahead.append(given))
    monkeypatch.setattr(Autotuner, "prune_configs", lambda tuner, named, *rest: (n for n in (1, 2, named, *rest)))
    tuner: Any = Tuner()
    monkeypatch.setattr(tuners, "found", {id(tuner), 7})
    monkeypatch.setattr(tuners, "arguments", ("x",))
    with choosing(autotune):
        assert Autotuner.prune_configs(tuner, "named", 3) == [1, 2, "named", 3]
    assert tuners.found == {7}
    assert ahead == ([(tuner, ("x",), "named", [1, 2, "named", 3])] if autotune == ALL else [])


# --- all configurations, on all cores ------------------------------------------------------------


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand-ins for processes on a machine of two cores: what was shown, and which were waited for."""
    calls: list[Any] = []
    children = iter(range(100, 200))
    monkeypatch.delenv(EMULATE, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(os, "fork", lambda: next(children))
    monkeypatch.setattr(os, "waitpid", lambda *given: calls.append(given))
    monkeypatch.setattr(autotuner, "_show", lambda name, count, done: calls.append((name, count, done.read(1))))
    return calls


def test_workers_are_shown_and_waited_for(forks) -> None:
    compile_ahead(Tuner(), (), {}, [1, 2, 3])
    assert forks == [("add", 3, b""), (100, 0), (101, 0)]


@pytest.mark.parametrize(
    ("cores", "configs", "threads", "emulated"),
    [(1, 3, 1, False), (None, 3, 1, False), (2, 2, 1, False), (2, 3, 2, False), (2, 3, 1, True)],
)
def test_one_process_compiles_where_others_are_not_worth_it(forks, monkeypatch, cores, configs, threads, emulated):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    if emulated:
        monkeypatch.setenv(EMULATE, "")
    compile_ahead(Tuner(), (), {}, range(configs))
    assert forks == []


def test_each_worker_compiles_its_part_and_captures_nothing(forks, monkeypatch) -> None:
    class Ended(BaseException):
        pass

    def end(status: int) -> None:
        raise Ended(status)

    children = iter([100, 0])  # this is the second worker
    monkeypatch.setattr(os, "fork", lambda: next(children))
    monkeypatch.setattr(os, "_exit", end)
    reading, writing = os.pipe()
    parents = os.dup(reading)
    monkeypatch.setattr(os, "pipe", lambda: (reading, writing))
    monkeypatch.setattr(listening, "sessions", ("a session",))
    monkeypatch.setattr(recorder, "sessions", ("a session",))
    compiled: list[Any] = []

    def bench(*arguments: Any, config: int, **named: Any) -> None:
        compiled.append((arguments, config, named))
        if config == 2:
            raise ValueError("the parent meets it too")

    tuner: Any = SimpleNamespace(base_fn="add", _bench=bench)
    with pytest.raises(Ended, match="0"):
        compile_ahead(tuner, ("x", "y"), {"n": 7}, [1, 2, 3, 4])
    assert compiled == [(("x", "y"), config, {"n": 7}) for config in (2, 4)]
    assert (listening.sessions, recorder.sessions, forks) == ((), (), [])
    with pytest.raises(OSError, match="Bad file descriptor"):  # the worker has no use for it
        os.fstat(reading)
    os.close(writing)
    assert os.read(parents, 9) == b".."
    os.close(parents)


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_shown_on_a_terminal_only(monkeypatch, terminal) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    parts = iter([b"..", b".", b""])
    monkeypatch.setattr(sys, "stderr", Stream())
    pipe: Any = SimpleNamespace(read=lambda size: next(parts))
    autotuner._show("add", 5, pipe)
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    lines = [f"\radd: {'#' * done:<20} {count} of 5 compiled" for done, count in ((8, 2), (12, 3))]
    assert shown == ("".join(lines) + "\r\033[K" if terminal else "")
