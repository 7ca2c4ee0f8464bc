"""Triton's hook slots hold one object each: other tools put theirs in and take them out, in any order, and tritonhook
captures and rewrites all the same."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton import knobs
from triton.runtime import jit
from triton_kernels import add_kernel, compile_kernel, fresh, launch
from triton_sessions import RELEASE, entries

import tritonhook
from tritonhook.capture.session import Session
from tritonhook.capture.settings import make_settings
from tritonhook.capture.triton import rewriting

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


class Listener:
    """Another tool's listener. It calls the previous one if it is given that."""

    def __init__(self, previous: Any = None, error: Exception | None = None) -> None:
        self.events: list[tuple[str, bool]] = []
        self.previous, self.error = previous, error

    def __call__(self, **event: Any) -> None:
        self.events.append((event["metadata"]["name"], event["cache_hit"]))
        if self.previous is not None:
            self.previous(**event)
        if self.error is not None:
            raise self.error


class StagesHook:
    """Another tool's stages hook, for Triton 3.7 on: it counts calls, and adds a comment to the PTX."""

    def __init__(self, previous: Any = None, error: Exception | None = None) -> None:
        self.calls = 0
        self.previous, self.error = previous, error

    def __call__(self, *arguments: Any) -> Any:
        if not arguments:
            key, digest = self.previous() if self.previous is not None else ("", "")
            return f"theirs{key}", hashlib.sha256(f"theirs{digest}".encode()).hexdigest()
        self.calls += 1
        if self.error is not None:
            raise self.error
        _, stages, _, _, _ = arguments
        make_ptx = stages["ptx"]
        stages["ptx"] = lambda source, metadata: f"{make_ptx(source, metadata)}\n// theirs\n"
        if self.previous is not None:
            self.previous(*arguments)
        return None


class StagesHook36(StagesHook):
    """The same for Triton 3.6: always with five arguments."""

    def __call__(self, backend: Any, stages: Any, options: Any, language: Any, capability: Any) -> Any:
        return super().__call__(backend, stages, options, language, capability)


THEIRS = StagesHook36 if RELEASE < (3, 7) else StagesHook


@pytest.fixture
def listener_slot(monkeypatch):
    """Empties the slot after the test."""
    yield
    knobs.compilation.listener = None


@pytest.fixture
def hook_slot():
    yield
    knobs.runtime.add_stages_inspection_hook = None


# --- the listener --------------------------------------------------------------------------------


def test_the_listener_before_us_hears_everything(out, listener_slot):
    theirs = knobs.compilation.listener = Listener()
    with tritonhook.session(out) as session:
        compile_kernel()
        compile_kernel()
    assert theirs.events == [("add_kernel", False), ("add_kernel", True)]
    assert len(session.seen) == 1
    assert knobs.compilation.listener is theirs
    assert not session.notes


ORDERS = [(begins, ends) for begins in ("ours, theirs", "theirs, ours") for ends in ("ours, theirs", "theirs, ours")]


@pytest.mark.parametrize(
    "chains", [False, True], ids=["overwrites and empties the slot", "calls what was there before"]
)
@pytest.mark.parametrize("begins, ends", ORDERS)
def test_a_listener_that_begins_and_ends_before_or_after_us(out, listener_slot, begins, ends, chains):
    theirs = Listener()

    def begin(who: str) -> None:
        if who == "ours":
            tritonhook.enable(out, rename="cutlass_")
        else:
            theirs.previous = knobs.compilation.listener if chains else None
            knobs.compilation.listener = theirs

    def end(who: str) -> None:
        if who == "ours":
            ended.append(tritonhook.disable())
        else:
            assert knobs.compilation.listener is theirs  # as a tool checks that asks whether it is still there
            knobs.compilation.listener = theirs.previous

    ended: list[Any] = []
    first, last = begins.split(", ")
    begin(first)
    begin(last)
    compile_kernel()
    compile_kernel()
    first, last = ends.split(", ")
    end(first)
    compile_kernel(block=256)
    end(last)
    compile_kernel(block=512)
    (session,) = ended
    assert theirs.events[:2] == [("cutlass_add_kernel", False), ("cutlass_add_kernel", True)]
    assert len(theirs.events) == (3 if first == "ours" else 2)
    assert len(session.seen) == (1 if first == "ours" else 2)
    assert not session.notes
    assert knobs.compilation.listener is None


def test_sessions_that_leave_in_any_order_leave_the_slots_empty(tmp_path, listener_slot, hook_slot):
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]):
        sessions = [Session(make_settings(tmp_path / str(number), rename=f"p{number}_")) for number in range(3)]
        for session in sessions:
            session.install()
        expected = ["p2_p1_p0_add_kernel"]
        names = [entries(compile_kernel())[0]]
        for number in order:
            sessions[number].uninstall()
            expected.append(expected[-1].replace(f"p{number}_", ""))
            names.append(entries(compile_kernel())[0])
        assert names == expected
        assert knobs.compilation.listener is None
        assert knobs.runtime.add_stages_inspection_hook is None
        assert not any(session.notes for session in sessions)


def test_an_error_of_their_listener_is_theirs(out, listener_slot):
    knobs.compilation.listener = Listener(error=KeyError("theirs"))
    with tritonhook.session(out) as session, pytest.raises(KeyError, match="theirs"):
        compile_kernel()
    assert len(session.seen) == 1 and not session.notes


# --- the stages hook -----------------------------------------------------------------------------


def test_the_stages_hook_before_us_is_called_and_its_key_counts(out, hook_slot):
    plain = compile_kernel()
    theirs = knobs.runtime.add_stages_inspection_hook = THEIRS()
    with tritonhook.session(out, rename="cutlass_") as session:
        both = compile_kernel()
    assert theirs.calls == 1
    assert entries(both) == ("cutlass_add_kernel",)
    assert both.asm["ptx"].endswith("// theirs\n")
    assert knobs.runtime.add_stages_inspection_hook is theirs
    assert not session.notes
    if RELEASE >= (3, 7):  # in 3.6 their hook alone poisons the cache, also without us
        alone = compile_kernel()
        assert len({plain.hash, both.hash, alone.hash}) == 3
        assert entries(alone) == ("add_kernel",)
        assert "// theirs" in alone.asm["ptx"]
    knobs.runtime.add_stages_inspection_hook = None
    assert compile_kernel().hash == plain.hash
    assert "// theirs" not in compile_kernel().asm["ptx"]


@pytest.mark.parametrize("chains", [False, True], ids=["overwrites the slot", "calls what was there before"])
def test_their_stages_hook_that_comes_after_us_and_stays(out, hook_slot, driver, chains):
    kernel = fresh(add_kernel)
    with tritonhook.session(out, rename="cutlass_") as session:
        before = knobs.runtime.add_stages_inspection_hook if chains else None
        theirs = knobs.runtime.add_stages_inspection_hook = THEIRS(before)
        assert launch(kernel).asm["ptx"].endswith("// theirs\n")
    assert theirs.calls == 1
    assert knobs.runtime.add_stages_inspection_hook is theirs
    launch(kernel)
    knobs.runtime.add_stages_inspection_hook = None
    launch(kernel, block=256)
    with tritonhook.session(out, rename="cutlass_"):
        launch(kernel)
    assert driver.launched == ["cutlass_add_kernel", "add_kernel", "add_kernel", "cutlass_add_kernel"]
    assert not session.notes


class Shortcut:
    """Another tool's stages hook that makes the cubin in one stage. Its key is empty, so that Triton 3.9, too, stores
    its kernels under the key of those without it."""

    def __call__(self, *arguments: Any) -> Any:
        if not arguments:
            return "", ""
        stages = arguments[1]
        make_ptx, make_cubin = stages.pop("ptx"), stages.pop("cubin")
        stages["cubin"] = lambda source, metadata: make_cubin(make_ptx(source, metadata), metadata)
        return None


def test_a_kernel_that_our_stages_did_not_make_is_not_found_under_our_key(out, hook_slot, triton_cache):
    with tritonhook.session(out, rename="cutlass_") as session:
        knobs.runtime.add_stages_inspection_hook = Shortcut()
        for _ in range(2):
            kernel = compile_kernel()
            assert (kernel.name, "ptx" in kernel.asm) == ("add_kernel", False)
        knobs.runtime.add_stages_inspection_hook = None
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)
    assert session.notes == [f"1 kernel not rewritten (add_kernel): {rewriting.REPLACED}"]
    assert entries(compile_kernel()) == ("add_kernel",)
    # and Triton had its files from a folder without a key
    assert len(list(triton_cache.glob("not-rewritten-*"))) == 2


def test_an_error_of_their_stages_hook_is_theirs(out, hook_slot):
    knobs.runtime.add_stages_inspection_hook = THEIRS(error=KeyError("theirs"))
    with tritonhook.session(out, rename="cutlass_") as session, pytest.raises(KeyError, match="theirs"):
        compile_kernel()
    assert not session.seen and not session.notes


@pytest.mark.parametrize("name", ["compute_cache_key", "get_cache_key"])
def test_other_tools_wrap_the_functions_we_wrap(out, monkeypatch, name):
    tritons = jit.compute_cache_key
    with tritonhook.session(out, rename="cutlass_"):
        ours = getattr(jit, name)
        monkeypatch.setattr(jit, name, lambda *a, **k: ours(*a, **k))
        theirs = getattr(jit, name)
    assert getattr(jit, name) is theirs
    # and they give ours back, which only passes calls on now
    monkeypatch.undo()
    assert getattr(jit, name) is ours
    assert entries(compile_kernel()) == ("add_kernel",)
    jit.compute_cache_key = tritons


# --- knobs.*.scope() -----------------------------------------------------------------------------


def test_scopes_inside_a_session(out, driver):
    kernel = fresh(add_kernel)
    with tritonhook.session(out, rename="cutlass_") as session:
        with knobs.runtime.scope(), knobs.compilation.scope():
            knobs.compilation.always_compile = True
            launch(kernel)
        launch(kernel, block=256)
    launch(kernel)
    assert driver.launched == ["cutlass_add_kernel", "cutlass_add_kernel", "add_kernel"]
    assert len(session.seen) == 2 and not session.notes


def test_enable_inside_a_scope_that_ends_first(out, driver):
    kernel = fresh(add_kernel)
    with knobs.runtime.scope(), knobs.compilation.scope():
        tritonhook.enable(out, rename="cutlass_")
        launch(kernel)
    launch(kernel, block=256)  # the scope has put back both slots; the session goes on
    session = tritonhook.disable()
    launch(kernel)
    assert driver.launched == ["cutlass_add_kernel", "cutlass_add_kernel", "add_kernel"]
    assert session is not None and len(session.seen) == 2 and not session.notes


def test_disable_inside_a_scope(out, driver):
    kernel = fresh(add_kernel)
    tritonhook.enable(out, rename="cutlass_")
    launch(kernel)
    with knobs.runtime.scope(), knobs.compilation.scope():
        session = tritonhook.disable()
        launch(kernel)
    launch(kernel)
    launch(kernel, block=256)
    assert driver.launched == ["cutlass_add_kernel", "add_kernel", "add_kernel", "add_kernel"]
    assert session is not None and len(session.seen) == 1
    assert knobs.compilation.listener is None
    assert knobs.runtime.add_stages_inspection_hook is None


# --- status --------------------------------------------------------------------------------------


def test_status_says_who_holds_what(out, listener_slot):
    assert set(tritonhook.status().values()) == {"free"}
    with tritonhook.session(out):
        assert tritonhook.status()["cache keys"] == "free"
    knobs.compilation.listener = Listener()
    with tritonhook.session(out, rename="cutlass_"):
        held = tritonhook.status()
    assert held["compilation.listener"] == f"tritonhook, then {__name__}.Listener"
    assert held["runtime.add_stages_inspection_hook"] == held["runtime.launch_enter_hook"] == "free"
    assert held["cache keys"] == "tritonhook"
    assert tritonhook.status()["compilation.listener"] == f"{__name__}.Listener"
