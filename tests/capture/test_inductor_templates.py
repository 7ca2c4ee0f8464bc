"""Which template a matrix product of torch.compile gets: recorded, pinned, given back. Without a GPU, by made-up clocks
(tests/support/gemm_program.py), in two processes: one that measures, and one with pins and another clock."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ended import python_ended
from repository import ROOT, SUPPORT

pytest.importorskip("torch", minversion="2.13", reason="needs torch 2.13, e.g. its CPU build")
pytest.importorskip("triton", minversion="3.6")

from tritonhook.capture.inductor_templates import key_of_pins
from tritonhook.capture.model import Capture
from tritonhook.capture.policy.model import Pin, Policy, read_pins, write_policy
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli.run import pins_of
from tritonhook.tuning.policy_check import State, pins_against


@dataclass(frozen=True)
class Step:
    """What one session of the program captured, and had to say. asked: how often something was measured."""

    folder: CaptureFolder
    notes: list[str]
    asked: int

    @property
    def kernels(self) -> dict[str, Any]:
        """The warps of each kernel."""
        captures = [capture for capture in self.folder.captures().values() if isinstance(capture, Capture)]
        return {capture.kernel: capture.options["num_warps"] for capture in captures}

    @property
    def pin(self) -> Pin:
        (pin,) = pins_of(self.folder, "")
        return pin


Program = Callable[..., dict[str, Step]]
ALL = "NIGHTLY" in os.environ  # also with the choice made before fusions are tried, and of a library
TEMPLATES = ["fused", pytest.param("template", marks=pytest.mark.nightly)]
LIBRARIES = [pytest.param(name, marks=pytest.mark.nightly) for name in ("library", "library, fused")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Run the program, under `tritonhook run` with these options if there are any. steps: by name."""
    base = tmp_path_factory.mktemp("gemm")
    path = os.pathsep.join([str(ROOT), str(SUPPORT)])

    def run(steps: dict[str, dict[str, Any]], *options: str) -> dict[str, Step]:
        for name, step in steps.items():
            if "pins" in step:
                write_policy(base / f"{name}.toml", (), step.pop("pins"))
                step["policy"] = str(base / f"{name}.toml")
        words = ["-m", "tritonhook", "run", *options] if options else []
        told = json.dumps([step | {"out": str(base / name)} for name, step in steps.items()])
        done = python_ended(
            *(*words, str(SUPPORT / "gemm_program.py"), told),
            folder=base,
            without=("TRITON", "TORCH", "PTXAS"),
            PYTHONPATH=path,
            TRITON_CACHE_DIR=str(base / "cache"),
        )
        heard = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[{")))
        opened = (CaptureFolder.open(base / name) for name in steps)
        return {name: Step(folder, **each) for name, folder, each in zip(steps, opened, heard, strict=True)}

    return run


@pytest.fixture(scope="module")
def measured(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Step]:
    """A process whose clock favours 8 warps, or a library."""
    path = tmp_path_factory.mktemp("pins") / "pins.toml"
    steps: dict[str, dict[str, Any]] = {}
    if ALL:
        steps |= {name: {"warps": 0, "until_fused": "fused" in name} for name in ("library", "library, fused")}
        steps |= {"template": {"warps": 8}}
    steps |= {"fused": {"warps": 8, "until_fused": True}}
    found = program(steps, "--out", "run", "--pin", str(path))
    assert read_pins(path)[0].config == found["fused"].pin.config  # the process chose it last
    return found


@pytest.fixture(scope="module")
def pinned(program: Program, measured: dict[str, Step]) -> dict[str, Step]:
    """A process whose clock favours 2 warps, with pins of the other one."""
    pins = {name: [step.pin] for name, step in measured.items()}
    pin = measured["fused"].pin
    pins |= {
        "gone": [replace(pin, config="mm: gone")],
        "changed": [replace(pin, source="0" * 16)],
        "elsewhere": [replace(pin, arch="sm_100a"), replace(pin, key=("input=other", *pin.key[1:]))],
    }
    return program(
        {f"pinned {name}": {"warps": 2, "pins": p, "until_fused": "fused" in name} for name, p in pins.items()}
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_winner_is_recorded(measured: dict[str, Step], name: str) -> None:
    step = measured[name]
    (selection,) = step.folder.selections
    assert (selection.operation, selection.arch, step.notes, step.asked) == ("mm", "sm_90a", [], 1)
    assert "num_warps=8" in selection.chosen and selection.chosen in selection.among and "mm" in selection.among
    assert selection.source and selection.key[0].startswith("input=cuda torch.float16 256 128")
    assert list(step.kernels.values()) == [8]


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_won_is_recorded(measured: dict[str, Step], name: str) -> None:
    assert (measured[name].pin.config, measured[name].pin.source) == ("mm", None)


@pytest.mark.parametrize("name", [*TEMPLATES, *LIBRARIES])
def test_a_process_with_another_clock_gets_the_same_code(
    measured: dict[str, Step], pinned: dict[str, Step], name: str
) -> None:
    step = pinned[f"pinned {name}"]
    assert (step.asked, step.notes, step.folder.selections) == (0, [], ())
    assert step.folder.records == measured[name].folder.records and len(step.kernels) == 1
    assert ("tem" in next(iter(step.kernels))) == (not name.startswith("library"))


def test_a_pin_that_does_not_fit_is_named_and_ignored(pinned: dict[str, Step]) -> None:
    for name, words in (("gone", "mm has no choice 'mm: gone' any more"), ("changed", "has changed; pin it again")):
        step = pinned[f"pinned {name}"]
        (note,) = step.notes
        assert words in note and step.asked == 1 and list(step.kernels.values()) == [2]
    step = pinned["pinned elsewhere"]
    assert (step.notes, step.asked, list(step.kernels.values())) == ([], 1, [2])


def test_winners_that_changed_are_named(measured: dict[str, Step], pinned: dict[str, Step], tmp_path: Path) -> None:
    write_policy(tmp_path / "pins.toml", (), [measured["fused"].pin])
    folders = measured["fused"].folder, pinned["pinned elsewhere"].folder
    (same,), (changed,) = (pins_against(tmp_path / "pins.toml", folder) for folder in folders)
    assert (same.state, changed.state) == (State.APPLIES, State.STALE)
    assert "num_warps=2" in changed.reason and changed.reason.endswith("wins now")


def test_graphs_of_a_pin_are_kept_under_keys_of_their_own(measured: dict[str, Step]) -> None:
    pin = measured["fused"].pin
    keys = {key_of_pins(Policy((), pins=pins)) for pins in ((), (pin,), (replace(pin, config="mm"),))}
    assert len(keys) == 3
