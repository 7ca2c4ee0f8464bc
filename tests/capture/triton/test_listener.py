"""What the listener tells sessions of a kernel, with stand-ins for sessions and Triton's events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton import knobs

from tritonhook.capture.triton.listener import Listening


class Told:
    """As a session, which fails if it is to."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.calls: list[Any] = []

    def read(self, *given: Any) -> None:
        self.calls.append(given)
        if self.fails:
            raise KeyError("wrong")

    def contain(self, doing: str, error: Exception) -> None:
        self.calls.append(("contained", type(error)))


SOURCE = SimpleNamespace(fn=SimpleNamespace(arg_names=["x", "BLOCK"]), constants={(1,): 64, ("x", 1): 2})
TIMES = SimpleNamespace(ir_initialization=1, lowering_stages=[("ttir", 2), ("ptx", 3)], store_results=4)
MICROSECONDS = {"ir": 1, "ttir": 2, "ptx": 3, "store": 4}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"src": SOURCE, "cache_hit": 0, "times": TIMES}, (False, {"BLOCK": 64, "x.1": 2}, MICROSECONDS)),
        ({"src": SOURCE, "cache_hit": True, "times": TIMES}, (True, {"BLOCK": 64, "x.1": 2}, {})),
        ({"cache_hit": False}, (False, None, {})),
    ],
)
def test_sessions_hear_of_a_kernel_and_then_the_holder_of_the_slot(event, told) -> None:
    ours, heard = Listening(), list[Any]()
    sessions: list[Any] = [Told(), Told(fails=True), Told()]
    ours.sessions = tuple(sessions)
    event = event | {"metadata": {"name": "k"}, "metadata_group": {"k.ptx": "path"}}
    ours._and_then(lambda **given: heard.append(given))(**event)
    ours._and_then(None)(**event)
    call = ({"name": "k"}, {"k.ptx": "path"}, *told)
    assert sessions[0].calls == sessions[2].calls == [call] * 2
    assert sessions[1].calls == [call, ("contained", KeyError)] * 2
    assert heard == [event]


def test_an_event_without_what_is_needed_is_contained() -> None:
    ours, session = Listening(), Told()
    ours.sessions = (session,)  # type: ignore[assignment]
    ours._and_then(None)(metadata={})
    assert session.calls == [("contained", KeyError)]


def test_the_slot_is_a_property_while_a_session_listens() -> None:
    owner = type(knobs.compilation)
    own = vars(owner)["listener"]
    assert "listener" not in vars(knobs.compilation)
    ours = Listening()
    first: Any = Told()
    second: Any = Told()
    assert (ours.sessions, ours._patch) == ((), None)
    ours.attach(first)
    ours.attach(second)
    assert isinstance(vars(owner)["listener"], property) and ours.sessions == (first, second)
    theirs: list[Any] = []
    knobs.compilation.listener = theirs.append
    asked = {"__name__": "triton.compiler.compiler", "knobs": knobs}
    assert knobs.compilation.listener == theirs.append, "others see what they set"
    assert eval("knobs.compilation.listener", asked) != theirs.append, "triton.compile gets ours in front"
    del knobs.compilation.listener
    with pytest.raises(AttributeError, match="listener"):
        del knobs.compilation.listener
    assert knobs.compilation.listener is own
    ours.detach(second)
    ours.detach(second)
    assert isinstance(vars(owner)["listener"], property)
    ours.detach(first)
    assert vars(owner)["listener"] is own and ours._patch is None
    ours.attach(first)  # and again
    ours.detach(first)
    assert vars(owner)["listener"] is own
