"""torch.compile's autotuner in a timed comparison, and its launcher while launches are recorded: with stand-ins that
have what triton_heuristics and static_triton_launcher have."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.timing.inductor_choices import HEURISTICS, inductor_choices


class Tuner:
    """As CachingAutotuner: measures its launchers and keeps the fastest."""

    def __init__(self, times: dict[str, float]) -> None:
        self.fn, self.size_hints = SimpleNamespace(__name__="triton_red_0"), {"x": 64}
        self.times = times
        self.launchers = [SimpleNamespace(config=config) for config in times]

    def bench(self, launcher: Any, *arguments: Any) -> float:
        return self.times[launcher.config]

    def autotune_to_one_config(self, *arguments: Any) -> None:
        self.launchers = [min(self.launchers, key=lambda launcher: self.bench(launcher, *arguments))]


@pytest.fixture
def tuner_class(monkeypatch: pytest.MonkeyPatch) -> type[Tuner]:
    own = type("CachingAutotuner", (Tuner,), dict(vars(Tuner)))
    monkeypatch.setitem(sys.modules, HEURISTICS, SimpleNamespace(CachingAutotuner=own))
    return own


def chosen(tuner: Any) -> str:
    tuner.autotune_to_one_config()
    return str(tuner.launchers[0].config)


def test_a_side_takes_the_references_configuration(tuner_class) -> None:
    reference: dict[str, str] = {}
    candidate: dict[str, str] = {}
    with inductor_choices(reference):
        assert chosen(tuner_class({"a": 2.0, "b": 1.0})) == "b"
    with inductor_choices(candidate, reference):
        assert chosen(tuner_class({"a": 2.0, "b": 3.0})) == "b", "fixed: though a would be faster"
    assert reference == candidate == {"triton_red_0 {'x': 64}": "b"}
    with inductor_choices(candidate):
        assert chosen(tuner_class({"a": 2.0, "b": 3.0})) == "a"
    with inductor_choices(candidate, {"another kernel": "b"}):
        assert chosen(tuner_class({"a": 2.0, "b": 3.0})) == "a"
    assert tuner_class.bench is vars(Tuner)["bench"], "all is given back"
