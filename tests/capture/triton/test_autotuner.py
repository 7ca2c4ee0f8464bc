"""Autotuning: configurations are told apart and the winner is marked. CUDA graphs: capturing never calls the driver."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from fake_driver import FakeDriver
from triton.runtime import driver as active_driver
from triton.runtime.autotuner import Autotuner
from triton_kernels import Tensor, add_kernel, fresh, launch, multiply_kernel

import tritonhook
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.triton import autotuner
from tritonhook.capture.triton.autotuner import choices_of
from tritonhook.cli import main

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 128) for warps in (2, 4)]


def tuned(best: tuple[int, int]) -> Any:
    """A fresh autotuned kernel of which one (BLOCK, num_warps) is the fastest, by a fake clock."""
    seen: list[Any] = []

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        config = CONFIGS[len(seen) % len(CONFIGS)]
        seen.append(config)
        time = 1.0 if (config.kwargs["BLOCK"], config.num_warps) == best else 2.0
        return [time] * 3

    return triton.autotune(CONFIGS, key=["n"], do_bench=bench)(fresh(add_kernel))


def run(kernel: Any, n: int = 1000) -> None:
    x = Tensor()
    kernel[(1,)](x, x, x, n)


def won(folder: CaptureFolder) -> list[tuple[int, int]]:
    options = [folder.capture(tuning.winner).options for tuning in folder.tunings]
    return [(o["constants"]["BLOCK"], o["num_warps"]) for o in options]


def test_the_winner_is_marked_among_what_was_tried(driver, out):
    kernel = tuned((128, 2))
    with tritonhook.session(out) as session:
        run(kernel)
    folder = CaptureFolder.open(out)
    assert won(folder) == [(128, 2)]
    assert set(folder.tunings[0].among) == set(session.records)
    assert len(folder.records) == len(CONFIGS)
    assert folder.torn == 0


def test_a_warm_disk_cache_and_a_second_problem(driver, out, tmp_path):
    run(tuned((64, 2)))
    with tritonhook.session(out):
        kernel = tuned((64, 4))
        run(kernel)
        run(kernel, n=1024)  # n is part of the key; as a multiple of 16 it also gives other code
        run(kernel)
    assert won(CaptureFolder.open(out)) == [(64, 4), (64, 4)]


def test_a_session_within_a_session_and_a_rename(driver, out, tmp_path):
    with tritonhook.session(out), tritonhook.session(tmp_path / "inner", rename="cutlass_"):
        run(tuned((128, 4)))
    for folder in (CaptureFolder.open(out), CaptureFolder.open(tmp_path / "inner")):
        assert won(folder) == [(128, 4)]
        assert folder.capture(folder.tunings[0].winner).kernel == "cutlass_add_kernel"


def test_winners_are_known_where_each_side_has_choices_of_its_own(driver, out, tmp_path):
    kernel = tuned((128, 2))
    for name, prefix in (("reference", None), ("candidate", "cutlass_")):
        with choices_of({}, {}), tritonhook.session(tmp_path / name, rename=prefix):
            run(kernel)
        folder = CaptureFolder.open(tmp_path / name)
        assert won(folder) == [(128, 2)]
        assert len(folder.lost) == len(CONFIGS) - 1
    assert kernel.cache == {}


def test_the_autotuner_is_given_back(driver, out):
    before = Autotuner.__dict__["_bench"]
    with tritonhook.session(out):
        assert Autotuner.__dict__["_bench"] is not before
    assert Autotuner.__dict__["_bench"] is before
    run(tuned((64, 2)))


def test_show_tells_configurations_apart(driver, out, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with tritonhook.session(out):
        run(tuned((128, 2)))
        launch(fresh(multiply_kernel))
    assert main(["show", str(out)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "_kernel" in line]
    results = [line.split()[-1] for line in lines if "add_" in line]
    assert sorted(results) == ["tried", "tried", "tried", "won"]
    assert sum("[BLOCK=128,num_warps=2]" in line and line.endswith("won") for line in lines) == 1
    (other,) = [line for line in lines if "multiply_" in line]
    assert "BLOCK" not in other  # there is one of this name


# --- rounds, with stand-ins for tuners and sessions ----------------------------------------------


class Heard:
    """As a session: what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def configured(self, *given: Any) -> None:
        self.told.append(("configured", *given))

    def tuned(self, *given: Any) -> None:
        self.told.append(("tuned", *given))

    def contain(self, doing: str, error: Exception) -> None:
        self.told.append(("contained", type(error)))


def a_tuner(**more: Any) -> Any:
    function = SimpleNamespace(__name__="f")
    source = SimpleNamespace(src="source")
    return SimpleNamespace(base_fn=function, fn=SimpleNamespace(fn=source), cache={}, keys=["n", "m"], **more)


def test_a_tuning_is_named_by_function_source_and_key() -> None:
    tuner = a_tuner()
    assert autotuner.function_name(tuner) == "f"
    assert autotuner.function_name(SimpleNamespace(base_fn="a text")) == "a text"
    assert autotuner.source_hash(tuner) == hashlib.sha256(b"source").hexdigest()[:16]
    assert autotuner.source_hash(SimpleNamespace(fn=None)) is None
    assert autotuner.source_hash(SimpleNamespace(fn=SimpleNamespace(src=5))) is None
    assert autotuner.key_texts(tuner, (1, 2, "fp32", "fp16")) == ("n=1", "m=2", "fp32", "fp16")
    assert autotuner.key_texts(tuner, (1,)) == ("n=1",)
    assert autotuner.key_texts(SimpleNamespace(), 7) == ("7",)


def test_a_round_is_reported_once_its_tuner_has_decided() -> None:
    ours, tuner = autotuner.Autotuning(), a_tuner()
    session: Any = Heard()
    assert (ours.sessions, ours._rounds, ours._patch) == ((), {}, None)
    ours.sessions = (session,)
    tuner.cache["before"] = "A"
    bench = ours._wrap(lambda tuner, *given, config, **meta: ours.met(meta["hash"]) or (given, config, meta))  # type: ignore[func-returns-value]
    for config in "AB":
        assert bench(tuner, 1, config=config, hash=f"h{config}") == ((1,), config, {"hash": f"h{config}"})
    ours.met("another kernel")
    assert session.told == [] and len(ours._rounds) == 1, "it has not decided"
    tuner.cache[1, 2, "fp32"] = "B"
    ours.met("another kernel")
    function = "f", ("n=1", "m=2", "fp32"), "hB", {"hA": "A", "hB": "B"}, autotuner.source_hash(tuner)
    name = f"{os.getpid()}-{id(tuner)}-(1, 2, 'fp32')"
    expected = [("configured", *function), ("tuned", name, "Triton", "hB", ("hA", "hB"))]
    assert session.told == expected and ours._rounds == {}
    ours.conclude()
    assert session.told == expected
    for keys, configs in (((1,), "A"), ((1, 2), "AB")):
        session.told.clear()
        for config in configs:
            bench(tuner, config=config, hash=f"h{config}")
        tuner.cache[keys] = configs[0]
        for config in "CD":  # the next round of the same tuner reports this one
            bench(tuner, config=config, hash=f"h{config}")
        assert [told[0] for told in session.told] == (["configured", "tuned"] if len(configs) > 1 else [])
        tuner.cache[(*keys, "next")] = "unknown"
        ours.conclude()
        assert len(session.told) == (2 if len(configs) > 1 else 0), "the winner was not met"


def test_an_error_of_ours_leaves_the_tuner_alone(monkeypatch) -> None:
    ours = autotuner.Autotuning()
    session: Any = Heard()
    ours.sessions = (session,)
    bench = ours._wrap(lambda tuner, config: "measured")
    assert bench(SimpleNamespace(), config="A") == "measured"
    assert session.told == [("contained", AttributeError)]
    with pytest.raises(ValueError):
        ours._wrap(lambda tuner, config: int(config))(a_tuner(), config="x")
    assert ours._trial.current is None


def test_the_patch_is_there_while_there_are_sessions() -> None:
    ours, own = autotuner.Autotuning(), Autotuner.__dict__["_bench"]
    first: Any = Heard()
    second: Any = Heard()
    for session in (first, second):
        ours.attach(session)
    patched = Autotuner.__dict__["_bench"]
    assert patched is not own and ours.sessions == (first, second)
    ours._round(a_tuner())
    ours.detach(first)
    ours.detach(first)
    assert Autotuner.__dict__["_bench"] is patched and ours.sessions == (second,)
    ours.detach(second)
    assert Autotuner.__dict__["_bench"] is own and (ours._patch, ours._rounds) == (None, {})


def test_each_side_of_a_comparison_has_its_own_choices(monkeypatch) -> None:
    seen: list[Any] = []

    def run(tuner: Any, *given: Any, **named: Any) -> str:
        seen.append((tuner.cache, getattr(tuner, "cache_results", None), given, named))
        tuner.best_config = f"best {len(seen)}"
        if "wrong" in named:
            raise ValueError
        return "ran"

    monkeypatch.setattr(Autotuner, "run", run)
    both: Any = Autotuner
    for kept in (True, None):
        seen.clear()
        tuner = a_tuner() if kept is None else a_tuner(cache_results=kept)
        cache, side, own = tuner.cache, dict[str, str](), dict[int, Any]()
        with choices_of(side, own):
            assert both.run(tuner, 1, a=2) == both.run(tuner) == "ran"
            with pytest.raises(ValueError):
                both.run(tuner, wrong=1)
        assert side == {"f": "best 2"} and own == {id(tuner): (tuner, {})}
        assert [one[0] is own[id(tuner)][1] for one in seen] == [True] * 3
        assert [one[1:] for one in seen[:2]] == [(False, (1,), {"a": 2}), (False, (), {})]
        assert tuner.cache is cache and tuner.cache_results is bool(kept)
        with choices_of(side):
            both.run(tuner)
        assert seen[3][0] is cache and seen[3][1] is bool(kept) and side == {"f": "best 4"}
    assert Autotuner.run is run


# --- CUDA graphs ---------------------------------------------------------------------------------


class Recording:
    """Passes every call on to a driver, and keeps a list of the calls."""

    def __init__(self, inner: Any, calls: list[str]) -> None:
        self.__dict__.update(inner=inner, calls=calls)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name == "utils":
            return Recording(value, self.calls)
        if name != "target":
            self.calls.append(name)
        return value


@contextlib.contextmanager
def recording() -> Iterator[list[str]]:
    before, calls = active_driver._active, []
    active_driver.set_active(Recording(FakeDriver(), calls))
    try:
        yield calls
    finally:
        active_driver._active = before or FakeDriver()


@pytest.mark.parametrize("rename", [None, "cutlass_"])
def test_tritonhook_never_calls_the_driver(triton_cache, tmp_path: Path, monkeypatch, rename):
    """While a stream is captured into a graph, the driver gets the same calls in the same order as without tritonhook:
    for a compile, a kernel from the disk cache, a second launch, and an autotuning.
    """

    alive: list[Any] = []

    def program(cache: str) -> list[str]:
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / cache))
        kernels = [fresh(add_kernel), fresh(add_kernel), tuned((64, 4))]
        alive.append(kernels)
        gc.collect()  # unloading makes calls as well, when the garbage collector runs
        with recording() as calls:
            for kernel in kernels[:2]:
                launch(kernel)
                launch(kernel)
            run(kernels[2])
        return calls

    gc.disable()
    try:
        plain = program("plain")
        with tritonhook.session(tmp_path / "out", rename=rename) as session:
            hooked = program("hooked")
    finally:
        gc.enable()
    assert "load_binary" in plain
    assert hooked == plain
    assert len(session.records) == 1 + len(CONFIGS) - 1  # one of the configurations is the first kernel
