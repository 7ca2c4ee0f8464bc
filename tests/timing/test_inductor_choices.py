"""torch.compile's autotuner in a timed comparison, and its launcher while launches are recorded: with stand-ins that
have what triton_heuristics and static_triton_launcher have."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_tensors import Storage, Tensor

from tritonhook.capture.launches import recorder as launch_recorder
from tritonhook.capture.launches.recorder import Recorder
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


def test_the_static_launcher_is_wrapped_while_launches_are_wanted(monkeypatch) -> None:
    class Base:
        name, arg_tys, num_warps, shared, hash = "triton_red", "Oi", 4, 0, "h"
        has_global_scratch = has_profile_scratch = False
        launched = 0

        def run(self, x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
            type(self).launched += 1

    plain = Base.__dict__["run"]
    module: Any = ModuleType(launch_recorder._LAUNCHERS[0])
    module.StaticallyLaunchedCudaKernel = type("StaticallyLaunchedCudaKernel", (Base,), {})
    monkeypatch.setitem(sys.modules, launch_recorder._LAUNCHERS[0], module)
    kept: list[Any] = []
    session = SimpleNamespace(
        settings=SimpleNamespace(launches="shapes"),
        record_of=lambda hash: "record" if hash == "h" else None,
        keep_launch=lambda record, key, launch, contents: kept.append((record, launch)),
        note=kept.append,
        contain=lambda doing, error: kept.append(error),
    )
    recorder = Recorder()
    recorder.sessions = (*recorder.sessions, session)
    recorder.look_again()
    recorder.look_again()
    module.StaticallyLaunchedCudaKernel().run(3, 1, 1, 0, Tensor(Storage(1 << 20, 512)), 7)
    ((record, launch),) = kept
    assert (record, launch.grid, launch.parameters[1].value) == ("record", (3, 1, 1), 7)
    recorder.detach(session)
    assert Base.__dict__["run"] is plain
    module.StaticallyLaunchedCudaKernel().run(3, 1, 1, 0)
    assert module.StaticallyLaunchedCudaKernel.launched == 2
    assert len(kept) == 1
