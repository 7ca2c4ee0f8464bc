"""`tritonhook run --pin`: the winners of autotunings are kept, given back, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from repository import SUPPORT

from tritonhook.capture.policy.model import Pin, Policy, read_blocks, write_policy
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli import main
from tritonhook.cli.run import keep_pins

# A tuner whose clock likes the configuration with as many warps as CLOCK says.
PROGRAM = f"""
import os, sys
sys.path.insert(0, {str(SUPPORT)!r})
import triton, fake_driver
from triton_kernels import Tensor, add_kernel, fresh

running, measured = [], []
class Config(triton.Config):
    def all_kwargs(self):
        running[:] = [self.num_warps]
        return super().all_kwargs()

def bench(call, quantiles):
    call()
    measured.append(1)
    return [1.0 if running == [int(os.environ["CLOCK"])] else 2.0] * 3

configs = [Config({{"BLOCK": 64}}, num_warps=warps) for warps in (2, 4)]
kernel = triton.autotune(configs, key=["n"], do_bench=bench)(fresh(add_kernel))

def launch():
    x = Tensor()
    kernel[(1,)](x, x, x, 1000)
    print(kernel.best_config.num_warps, len(measured))
"""
ON_A_GPU = "with fake_driver.active():\n    launch()\n"


@pytest.fixture
def program(tmp_path: Path, triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Run the program; what it printed: the warps it took, and how often it measured."""
    monkeypatch.chdir(tmp_path)

    def run(clock: int, *words: str, launch: str = ON_A_GPU, capfd: Any) -> list[str]:
        Path("program.py").write_text(PROGRAM + launch)
        monkeypatch.setenv("CLOCK", str(clock))
        capfd.readouterr()
        assert main(["run", *words, "program.py"]) == 0
        return capfd.readouterr().out.split()

    return run


def test_processes_with_opposite_clocks_get_the_same_code(program: Any, capfd: pytest.CaptureFixture) -> None:
    assert program(2, "--out", "a", capfd=capfd) == ["2", "2"]
    assert program(4, "--out", "b", "--pin", "pins.toml", capfd=capfd) == ["4", "2"]
    (pin,) = read_blocks(Path("pins.toml")).pins
    assert "num_warps: 4" in pin.config and pin.source and pin.key[0] == "n=1000"
    taken = [program(clock, "--out", f"{clock}", "--policy", "pins.toml", capfd=capfd) for clock in (2, 4)]
    assert taken == [["4", "0"]] * 2
    codes = [CaptureFolder.open(name).captures().values() for name in ("2", "4")]
    assert len({capture.hash for captures in codes for capture in captures}) == 1


def test_a_dry_run_compiles_what_is_pinned(program: Any, capfd: pytest.CaptureFixture) -> None:
    program(4, "--out", "b", "--pin", "pins.toml", capfd=capfd)
    dry = ("--arch", "sm_90a", "--autotune", "pinned", "--policy", "pins.toml")
    assert program(2, "--out", "dry", *dry, launch="launch()\n", capfd=capfd) == ["4", "0"]
    assert len(CaptureFolder.open("dry").records) == 1
    (pin,) = read_blocks(Path("pins.toml")).pins
    write_policy(Path("pins.toml"), (), [replace(pin, function="other")])
    program(2, "--out", "none", *dry, launch="launch()\n", capfd=capfd)
    assert any("add_kernel: the policy pins no configuration" in note for note in CaptureFolder.open("none").notes)


def test_winners_that_changed_are_named(program: Any, capfd: pytest.CaptureFixture) -> None:
    program(4, "--out", "b", "--pin", "pins.toml", capfd=capfd)
    program(2, "--out", "a", capfd=capfd)
    assert main(["tune", "--check", "-o", "pins.toml", "b"]) == 0
    capfd.readouterr()
    assert main(["tune", "--check", "-o", "pins.toml", "a", "--json"]) == 1
    (pin,) = json.loads(capfd.readouterr().out)["pins"]
    assert pin["state"] == "stale" and "num_warps: 2" in pin["reason"] and "wins now" in pin["reason"]
    assert main(["tune", "--check", "-o", "pins.toml"]) == 0
    said = capfd.readouterr().out
    assert "1 configuration pinned" in said and "n=1000" in said
    (kept,) = read_blocks(Path("pins.toml")).pins
    for other, why in ((replace(kept, source="0" * 16), "source"), (replace(kept, config="BLOCK: 3"), "no such")):
        write_policy(Path("pins.toml"), (), [other])
        assert main(["tune", "--check", "-o", "pins.toml", "b"]) == 1
        assert why in capfd.readouterr().out
    write_policy(Path("pins.toml"), (), [replace(kept, source="0" * 16)])
    assert program(2, "--out", "c", "--policy", "pins.toml", capfd=capfd) == ["2", "2"]
    assert any("source of add_kernel has changed" in note for note in CaptureFolder.open("c").notes)


def test_a_winner_replaces_the_pin_of_its_key_and_keeps_the_others(
    program: Any, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    program(4, "--out", "b", "--pin", "pins.toml", capfd=capfd)
    (kept,) = read_blocks(Path("pins.toml")).pins
    other = replace(kept, function="other")
    write_policy(Path("pins.toml"), (), [replace(kept, config="BLOCK: 3"), other])
    assert "1 winner of autotuning pinned, 1 of them changed" in keep_pins(Path("pins.toml"), folder("b"))
    assert set(read_blocks(Path("pins.toml")).pins) == {kept, other}


def folder(name: str) -> CaptureFolder:
    return CaptureFolder.open(name)


def test_the_pin_of_the_gpu_comes_before_that_of_another_one() -> None:
    pins = tuple(Pin("f", "sm_90a", ("n=1",), f"config {gpu}", gpu=gpu) for gpu in ("H100", "H200"))
    policy = Policy((), pins=pins)
    assert policy.pin_for("f", "sm_90a", ("n=1",), lambda: "H200") == pins[1]
    assert policy.pin_for("f", "sm_90a", ("n=1",), lambda: "GH200") == pins[0]
    assert policy.pin_for("f", "sm_90a", ("n=2",), lambda: "H200") is None
