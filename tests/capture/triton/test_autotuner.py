"""Autotuning: configurations are told apart and the winner is marked. CUDA graphs: capturing never calls the driver."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
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


def test_each_side_of_a_comparison_has_its_own_choices(driver):
    kernel, own = tuned((64, 2)), [dict[int, Any](), dict[int, Any]()]
    for side in own:
        chosen: dict[str, str] = {}
        with choices_of(chosen, side):
            run(kernel)
        assert list(chosen) == ["add_kernel"] and chosen["add_kernel"] == str(CONFIGS[0]) and not kernel.cache
    assert all(side[id(kernel)][1] for side in own)


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
