"""A child that answers requests, in time or not; and how it is told why one was lost."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tritonhook.device.child import (
    After,
    At,
    Begin,
    Begun,
    Child,
    ContextLost,
    GpuLost,
    Lost,
    Message,
    _line,
    _message,
)
from tritonhook.device.sm_clock import Conditions
from tritonhook.errors import DeviceError, TritonHookError, UsageError
from tritonhook.rename import Rename
from tritonhook.timing.plan import Plan, Prepare, SideImage, Taken
from tritonhook.timing.statistics import REFERENCE, SampleBlock

SERVE = """
import os, sys, time
from tritonhook.device.child import *
from tritonhook.device.child import ContextLost
from tritonhook.errors import *
requests = 0
def carry_out(request):
    global requests
    requests += 1
    {}
    yield Begun(str(requests))
serve(sys.stdin, own_output(), carry_out, Begin)
"""


def child(body: str = "pass", limit_s: float | None = 120.0) -> Child:
    return Child((sys.executable, "-c", SERVE.format(body)), limit_s)


def lost(one: Child, rest_s: float | None = 120.0) -> Lost:
    with pytest.raises(Lost) as found:
        one.ask(Begin(), Begun, rest_s=rest_s)
    assert one._process.returncode is not None, "it has been ended"
    return found.value


def script(*said: Message, then: str, limit_s: float | None = 120.0) -> Child:
    """A child that says these messages to its first request, and goes on with a line of shell."""
    lines = "".join(map(_line, said))
    return Child(("sh", "-c", f'read -r request; printf %s "$1"; {then}', "sh", lines), limit_s)


def test_an_answer_may_come_in_pieces_and_what_follows_it_is_kept() -> None:
    more = _line(Begun("two")).strip()
    one = script(Begun("one"), then=f"printf %s '{more[:9]}'; sleep 0.1; echo '{more[9:]}'; read -r line; exit 4")
    assert [one.ask(Begin(), Begun, rest_s=None).device, one.answer(Begun, rest_s=60).device] == ["one", "two"]
    found = lost(one, rest_s=None)
    assert (found.at, str(found), found.hung) == (None, "the process ended with status 4", False)


def test_a_child_that_does_not_end_with_its_input_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonhook.device.child._LEAVE_S", 0.1)
    one = script(then="exec sleep 9")
    one.finish()
    assert one._process.returncode == -9


def test_requests_are_answered_in_order_and_the_child_ends_with_its_input() -> None:
    one = child("print('for the user')")
    one.begin()
    assert [one.device, one.ask(Begin(), Begun, rest_s=120).device, one.device] == ["1", "2", "1"]
    one.finish()
    assert one._process.returncode == 0


@pytest.mark.parametrize(
    ("body", "text", "hung"),
    [
        ("os._exit(3)", "the process ended with status 3", False),
        ("os.kill(os.getpid(), 11)", "the process was ended by SIGSEGV", False),
        ("raise ContextLost('CUDA_ERROR_ILLEGAL_ADDRESS')", "CUDA_ERROR_ILLEGAL_ADDRESS", False),
        ("time.sleep(60)", "no end within 0.5 s", True),
    ],
)
def test_why_a_child_was_lost_and_where(body: str, text: str, hung: bool) -> None:
    found = lost(child(f"yield At('k'); {body}", 0.5 if hung else 120.0))
    assert (found.at, str(found), found.hung) == ("k", text, hung)
    found = lost(child(f"yield At('k'); yield After(); {body}"), 0.5 if hung else 120.0)
    assert (found.at, str(found), found.hung) == (None, text, hung)


def test_a_child_that_closes_its_output_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonhook.device.child._LEAVE_S", 0.1)
    one = Child((sys.executable, "-c", "import os, time; os.close(1); time.sleep(60)"))
    assert str(lost(one)) == "the process closed its output but did not end"


def test_an_error_arrives_as_what_it_is_and_the_next_request_is_carried_out() -> None:
    one = child("if requests < 4: raise (DeviceError, UsageError, TritonHookError)[requests - 1]('a b')")
    for kind in (DeviceError, UsageError, TritonHookError):
        with pytest.raises(TritonHookError, match="a b") as found:
            one.ask(Begin(), Begun, rest_s=120)
        assert type(found.value) is kind
    assert one.ask(Begin(), Begun, rest_s=120).device == "4"
    one.end()


def test_the_limit_of_a_launch_ends_with_its_request() -> None:
    one = child("if requests == 2: time.sleep(1)\n    yield At('k')", 0.5)
    assert one.ask(Begin(), Begun, rest_s=120).device == "1"
    assert one.ask(Begin(), Begun, rest_s=120).device == "2"
    one.end()


def test_a_child_that_ended_before_it_was_asked_is_lost() -> None:
    one = Child((sys.executable, "-c", "raise SystemExit(5)"))
    one._process.wait()
    assert str(lost(one)) == "the process ended with status 5"


def test_a_terminals_ctrl_c_does_not_reach_it() -> None:
    one = child("yield Begun(str(os.getsid(0) == os.getpid()))")
    one.begin()
    assert one.device == "True"
    one.end()


def through(message: Message, *kinds: type[Message]) -> Any:
    return _message(_line(message), (At, After, GpuLost, *kinds))


def test_values_survive_the_way(tmp_path: Path) -> None:
    images = (SideImage(REFERENCE, "/a", "k", "k"),)
    for plan in (
        Plan("m:f", tmp_path, Rename(strip="x"), None, ("a:b",), rtol=1e-3, path=("/p",)),
        Plan("m:f", tmp_path, images=images, launch=tmp_path / "l.json", rewrites=("tma-cta",), tune_each=True),
        Plan("m:f", Path("no UTF-8 \udc80"), candidate="m:g", check=False, names=("a", "b")),
    ):
        assert through(Prepare(plan), Prepare, Taken) == Prepare(plan)
    conditions = Conditions(1980, 1980.5, 54, 210.584, ("heat",), False, 2)
    taken = Taken((SampleBlock(1, {"a": (1.0, 2.5)}, conditions, {"a": None}, ("a", "a", "a")),))
    assert through(taken, Prepare, Taken) == taken
    assert _line(through(taken, Prepare, Taken)) == _line(taken), "1980 is not 1980.0 in a document"
    assert issubclass(ContextLost, Exception) and not issubclass(ContextLost, TritonHookError)
