"""Pins of a policy: Triton's Autotuner takes them and measures nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from triton.runtime.autotuner import Autotuner
from triton_kernels import Tensor, add_kernel, fresh

import tritonhook
from tritonhook.capture.policy.model import Pin, from_json, read_blocks, read_policy, to_json, write_policy
from tritonhook.capture.selection import Kernel, kernels_in
from tritonhook.capture.store import CaptureFolder

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 128) for warps in (2, 4)]


def tuner(fastest: int, measured: list[str]) -> Any:
    """A fresh autotuned kernel whose clock likes one configuration."""

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        measured.append("once")
        return [1.0 if len(measured) % len(CONFIGS) == fastest else 2.0] * 3

    return triton.autotune(CONFIGS, key=["n"], do_bench=bench)(fresh(add_kernel))


def run(kernel: Any, n: int = 1000) -> str:
    x = Tensor()
    kernel[(1,)](x, x, x, n)
    return str(kernel.best_config)


@pytest.fixture
def pin(driver: Any, tmp_path: Path) -> Pin:
    """A pin of the configuration that a capture folder knows as the slowest."""
    with tritonhook.session(tmp_path / "before"):
        run(tuner(1, []))
    (found,) = CaptureFolder.open(tmp_path / "before").configurations
    worst = next(text for record, text in found.by_record.items() if record != found.chosen)
    return Pin(found.function, "sm_90a", found.key, worst)


def policy(tmp_path: Path, *pins: Pin) -> Path:
    path = tmp_path / "tritonhook.toml"
    write_policy(path, (), pins)
    return path


def test_a_pinned_configuration_is_taken_and_nothing_is_measured(pin: Pin, out: Path, tmp_path: Path) -> None:
    """Two processes whose clocks like different configurations get the same one."""
    for fastest in (1, 2):
        measured: list[str] = []
        kernel = tuner(fastest, measured)
        with tritonhook.session(out, policy=policy(tmp_path, pin)) as session:
            assert run(kernel) == pin.config
            run(tuner(fastest, []), n=4096)
        assert measured == [] and not session.notes
    records = CaptureFolder.open(out).records
    assert len(records) == 1 + len(CONFIGS), "of the pinned key one was compiled; of the other key all"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"function": "g"}, None),
        ({"arch": "sm_80"}, None),
        ({"key": ("n=7",)}, None),
        ({"source": "0123456789abcdef"}, "the source of add_kernel has changed since it was pinned"),
        ({"config": "BLOCK: 3"}, "add_kernel has no configuration 'BLOCK: 3' any more"),
    ],
)
def test_a_pin_that_does_not_fit_is_left_and_named(
    pin: Pin, out: Path, tmp_path: Path, change: dict[str, Any], note: str | None
) -> None:
    measured: list[str] = []
    with tritonhook.session(out, policy=policy(tmp_path, replace(pin, **change))) as session:
        run(tuner(1, measured))
    assert len(measured) == len(CONFIGS)
    assert len(session.notes) == (note is not None) and (note is None or note in session.notes[0])


@pytest.mark.parametrize(("gpu", "is_first"), [("A100", True), ("H100", False), ("H200", True), ("", True)])
def test_a_gpu_without_a_pin_of_its_own_gets_the_first_ones(
    pin: Pin, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str, is_first: bool
) -> None:
    """All ranks run the same code, also where the policy has no pin of their GPU."""
    monkeypatch.setattr("tritonhook.device.cuda_driver.gpu_name", lambda: gpu)
    first, last = (replace(pin, gpu=name, config=str(CONFIGS[n])) for n, name in enumerate(("A100", "H100")))
    with tritonhook.session(out, policy=policy(tmp_path, first, last)):
        assert run(tuner(2, [])) == (first if is_first else last).config


def test_the_innermost_sessions_pin_counts_and_the_autotuner_is_given_back(pin: Pin, out: Path, tmp_path: Path) -> None:
    names = ("prune_configs", "_bench", "run")
    before = [Autotuner.__dict__[name] for name in names]
    other = replace(pin, config=next(text for text in map(str, CONFIGS) if text != pin.config))
    with tritonhook.session(out / "outer", policy=policy(tmp_path, other)):
        with tritonhook.session(out / "inner", policy=policy(tmp_path, pin)):
            assert run(tuner(1, [])) == pin.config
        assert run(tuner(1, [])) == other.config
    assert [Autotuner.__dict__[name] for name in names] == before


def test_pins_are_kept_in_the_file_and_for_child_processes(pin: Pin, tmp_path: Path) -> None:
    path = policy(tmp_path, pin)
    assert read_blocks(path).pins == (pin,) and "format = 2" in path.read_text()
    found = read_policy(path)
    assert found.pins == (pin,) == from_json(to_json(found)).pins and found.key == ""
    with_lever = Pin(pin.function, pin.arch, pin.key, pin.config, ptx="1" * 64)
    write_policy(path, (), (with_lever,))
    assert read_blocks(path).pins == (with_lever,) and read_policy(path).pins == (), "its lever is not here"
    write_policy(path, ())
    assert "format = 1" in path.read_text() and read_blocks(path).pins == ()


def test_what_was_captured_under_a_pin_is_a_kernel_without_siblings(pin: Pin, out: Path, tmp_path: Path) -> None:
    with tritonhook.session(out, policy=policy(tmp_path, pin)):
        run(tuner(1, []))
    folder = CaptureFolder.open(out)
    assert folder.configurations == () and not [one for one in kernels_in(folder) if isinstance(one, Kernel)]
