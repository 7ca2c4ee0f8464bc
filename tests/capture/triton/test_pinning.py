"""Pins of a policy: Triton's Autotuner takes them and measures nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from triton.runtime.autotuner import Autotuner
from triton_kernels import Tensor, add_kernel, fresh

import tritonhook
from tritonhook.capture.policy.model import Pin, Policy, from_json, read_pins, read_policy, to_json, write_policy
from tritonhook.capture.selection import Kernel, kernels_in
from tritonhook.capture.store import CaptureFolder
from tritonhook.capture.triton.autotuner import source_hash
from tritonhook.capture.triton.pinning import Pinning, key_of

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


def test_a_later_launch_does_not_ask_again(pin: Pin, out: Path, tmp_path: Path, monkeypatch: Any) -> None:
    kernel = tuner(1, [])
    with tritonhook.session(out, policy=policy(tmp_path, pin)):
        run(kernel)
        monkeypatch.setattr(Policy, "pin_for", lambda *_: pytest.fail("asked again"))
        assert run(kernel) == pin.config


def test_a_pin_that_does_not_fit_is_named_and_left(pin: Pin, out: Path, tmp_path: Path) -> None:
    gone = Pin(pin.function, pin.arch, pin.key, "BLOCK: 3")
    measured: list[str] = []
    with tritonhook.session(out, policy=policy(tmp_path, gone)) as session:
        run(tuner(1, measured))
    assert len(measured) == len(CONFIGS)
    (note,) = session.notes
    assert "add_kernel has no configuration 'BLOCK: 3' any more" in note
    for other in (Pin("f", *_rest(pin)), Pin(pin.function, "sm_80", pin.key, pin.config)):
        measured.clear()
        with tritonhook.session(out, policy=policy(tmp_path, other)) as session:
            run(tuner(1, measured))
        assert len(measured) == len(CONFIGS) and session.notes == []


def _rest(pin: Pin) -> tuple[str, tuple[str, ...], str]:
    return pin.arch, pin.key, pin.config


def test_the_autotuner_is_given_back(pin: Pin, out: Path, tmp_path: Path) -> None:
    names = ("prune_configs", "_bench", "run")
    before = [Autotuner.__dict__[name] for name in names]
    with tritonhook.session(out, policy=policy(tmp_path, pin)):
        assert Autotuner.__dict__["prune_configs"] is not before[0] and Autotuner.__dict__["run"] is before[2]
    assert [Autotuner.__dict__[name] for name in names] == before
    with tritonhook.session(out, policy=policy(tmp_path)):
        assert Autotuner.__dict__["prune_configs"] is before[0], "a policy without pins costs nothing"


def test_pins_are_kept_in_the_file_and_for_child_processes(pin: Pin, tmp_path: Path) -> None:
    path = policy(tmp_path, pin)
    assert read_pins(path) == (pin,) and "format = 2" in path.read_text()
    found = read_policy(path)
    assert found.pins == (pin,) == from_json(to_json(found)).pins and found.key == ""
    with_lever = Pin(pin.function, pin.arch, pin.key, pin.config, ptx="1" * 64)
    write_policy(path, (), (with_lever,))
    assert read_pins(path) == (with_lever,) and read_policy(path).pins == (), "its lever is not here"
    write_policy(path, ())
    assert "format = 1" in path.read_text() and read_pins(path) == ()


def test_what_was_captured_under_a_pin_is_a_kernel_without_siblings(pin: Pin, out: Path, tmp_path: Path) -> None:
    with tritonhook.session(out, policy=policy(tmp_path, pin)):
        run(tuner(1, []))
    folder = CaptureFolder.open(out)
    assert folder.configurations == () and not [one for one in kernels_in(folder) if isinstance(one, Kernel)]


# --- with stand-ins for tuners and sessions ------------------------------------------------------


class Session:
    """As a session with these pins: what it was told."""

    def __init__(self, *pins: Pin) -> None:
        self.told: list[Any] = []
        found = Policy((), "p.toml", pins=pins) if pins else None
        self.settings = SimpleNamespace(policy=found, pin_for=lambda *given: found.pin_for(*given) if found else None)

    def note(self, text: str) -> None:
        self.told.append(text)

    def contain(self, doing: str, error: Exception) -> None:
        self.told.append((doing, type(error)))


def a_tuner(**arguments: Any) -> Any:
    function = SimpleNamespace(__name__="f", src="source")
    return SimpleNamespace(base_fn=function, fn=function, keys=["m", "n"], arg_names=["x", "n", "m"], nargs=arguments)


def test_a_call_has_the_key_that_its_tuner_makes() -> None:
    x, y = SimpleNamespace(dtype="fp32"), SimpleNamespace(dtype="fp16")
    assert key_of(a_tuner(x=x, n=2), {"m": 1, "other": y}) == (1, 2, "fp32")
    assert key_of(a_tuner(x=x, n=2), {"n": 3, "x": y}) == (3, "fp16")


def test_the_innermost_sessions_pin_is_the_only_configuration(driver: Any) -> None:
    pin = Pin("f", "sm_90a", ("m=1", "n=2"), "B", source=source_hash(a_tuner()))
    ours, first = Pinning(), Session(pin, replace(pin, function="g"))
    other, broken = Session(replace(pin, config="C", source=None)), Session(pin)
    broken.settings.pin_for = lambda *given: given[9]
    prune = ours._pruning(lambda tuner, named, *rest: ["A", "B", "C", *rest])
    bench = ours._bench(lambda tuner, *given, config, **meta: (given, config, meta))
    tuner, named = a_tuner(n=2), {"m": 1}
    assert prune(tuner, named, "D") == ["A", "B", "C", "D"] and not ours.has(None)
    ours.sessions = (first, broken, Session())  # type: ignore[assignment]
    assert prune(tuner, named) == ["B"] and (first.told, broken.told[0][1]) == ([], IndexError)
    assert ours.has("B") and not ours.has("A")
    assert bench(tuner, 1, config="A", m=2) == ((1,), "A", {"m": 2})
    assert bench(tuner, 1, config="B", m=2) == [0.0] * 3, "it is not measured, once"
    assert bench(tuner, 1, config="B", m=2) == ((1,), "B", {"m": 2})
    ours.sessions = (first, other)  # type: ignore[assignment]
    assert prune(tuner, named) == ["C"] and prune(tuner, {"m": 7}) == ["A", "B", "C"]
    assert not ours.has("C") and first.told == other.told == []


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"function": "g"}, None),
        ({"arch": "sm_80"}, None),
        ({"key": ("m=2",)}, None),
        ({"source": "another"}, "p.toml: the source of f has changed"),
        ({"config": "gone"}, "p.toml: f has no configuration 'gone' any more"),
    ],
)
def test_a_pin_for_another_call_or_source_is_left(driver: Any, change: dict[str, Any], note: str | None) -> None:
    session, ours = Session(replace(Pin("f", "sm_90a", ("m=1", "n=2"), "B"), **change)), Pinning()
    ours.sessions = (session,)  # type: ignore[assignment]
    assert ours._pruning(lambda *_: ["A", "B"])(a_tuner(n=2), {"m": 1}) == ["A", "B"]
    assert len(session.told) == (note is not None) and (note is None or session.told[0].startswith(note))


def test_the_autotuner_is_patched_while_a_session_has_pins() -> None:
    own = Autotuner.__dict__["prune_configs"], Autotuner.__dict__["_bench"]
    now = lambda: (Autotuner.__dict__["prune_configs"], Autotuner.__dict__["_bench"])  # noqa: E731
    ours = Pinning()
    first: Any = Session()
    second: Any = Session()
    for session in (first, second):
        ours.attach(session)
    patched = now()
    assert not set(patched) & set(own) and ours.sessions == (first, second)
    ours.detach(first)
    assert now() == patched and ours.sessions == (second,)
    ours.detach(second)
    assert now() == own and ours._patches == []
