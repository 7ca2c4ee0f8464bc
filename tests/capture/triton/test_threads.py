"""A compile belongs to the sessions under which its cache key was made, whatever begins or ends meanwhile.

So each key leads to its own kernel, and no session is left behind, with several threads and with forks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from triton.backends.nvidia import compiler as backend
from triton.compiler import ASTSource, compiler
from triton.runtime import jit
from triton.runtime._async_compile import AsyncCompileMode
from triton.runtime.cache import FileCacheManager
from triton_kernels import Tensor, add_kernel, compile_kernel, fresh, launch
from triton_sessions import entries

import tritonhook
from tritonhook.capture.session import Session
from tritonhook.capture.triton import rewriting
from tritonhook.ptx.module import Ptx

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")

PLAIN, RENAMED = ("add_kernel",), ("cutlass_add_kernel",)

# Where a compile is, from its key to its end: the function that it calls there.
PLACES = {
    "cache entry": (compiler, "get_cache_manager"),
    "stages": (backend.CUDABackend, "add_stages"),
    "source": (ASTSource, "make_ir"),
    "ttir": (backend.CUDABackend, "make_ttir"),
    "ttgir": (backend.CUDABackend, "make_ttgir"),
    "llir": (backend.CUDABackend, "make_llir"),
    "ptx": (backend.CUDABackend, "make_ptx"),
    "cubin": (backend.CUDABackend, "make_cubin"),
    "storing": (FileCacheManager, "put_group"),
}


AT_NIGHT = ("source", "ttir", "ttgir", "llir", "cubin")  # as the stage before, or the one after it
ALL_PLACES = [pytest.param(place, marks=pytest.mark.nightly if place in AT_NIGHT else ()) for place in PLACES]


def once_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, happens: Callable[[], Any]) -> list[Any]:
    """Let something happen before the next call of a function; returns a list that gets its result."""
    happened: list[Any] = []
    there = vars(owner)[name]
    original = there.__func__ if isinstance(there, staticmethod) else there

    def call(*arguments: Any, **named: Any) -> Any:
        if not happened:
            happened.append(None)
            happened[0] = happens()
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, staticmethod(call) if isinstance(there, staticmethod) else call)
    return happened


def in_another_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(function()))
        thread.start()
        thread.join()
        return results[0]

    return run


def check_keys(out: Path) -> None:
    """Each key leads to its own kernel, on disk."""
    assert entries(compile_kernel()) == PLAIN
    with tritonhook.session(out / "checked", rename="cutlass_"):
        assert entries(compile_kernel()) == RENAMED
    assert entries(compile_kernel()) == PLAIN


@pytest.mark.parametrize("place", ALL_PLACES)
def test_a_session_that_ends_during_a_compile(out, monkeypatch, place):
    tritonhook.enable(out, rename="cutlass_")
    with monkeypatch.context() as patch:
        happened = once_before(patch, *PLACES[place], in_another_thread(tritonhook.disable))
        assert entries(compile_kernel()) == RENAMED
        assert isinstance(happened[0], Session)
    check_keys(out)


@pytest.mark.parametrize("place", ALL_PLACES)
def test_a_session_that_begins_during_a_compile(out, monkeypatch, place):
    with monkeypatch.context() as patch:
        happened = once_before(patch, *PLACES[place], lambda: tritonhook.enable(out, rename="cutlass_"))
        assert entries(compile_kernel()) == PLAIN
    # then the session says what it missed
    assert happened[0].notes == [f"1 kernel not rewritten (add_kernel): {rewriting.LATE}"]
    assert entries(compile_kernel()) == RENAMED
    tritonhook.disable()
    check_keys(out)


# --- launches ------------------------------------------------------------------------------------

LAUNCH_PLACES = {"before the compile": (jit.JITFunction, "_pack_args")} | PLACES


@pytest.mark.parametrize("place", ["before the compile", *ALL_PLACES])
@pytest.mark.parametrize("first", ["enable", "disable"])
def test_a_session_that_begins_or_ends_during_a_launch(out, driver, monkeypatch, place, first):
    kernel = fresh(add_kernel)
    begin = lambda: tritonhook.enable(out, rename="cutlass_")  # noqa: E731
    if first == "disable":
        begin()
    with monkeypatch.context() as patch:
        once_before(patch, *LAUNCH_PLACES[place], begin if first == "enable" else tritonhook.disable)
        launch(kernel)
    if first == "disable":
        begin()
    launch(kernel)
    tritonhook.disable()
    launch(kernel)
    assert driver.launched[1:] == ["cutlass_add_kernel", "add_kernel"]
    check_keys(out)


def test_the_first_session_of_a_process_begins_during_a_launch(run_python):
    # given a launch that is past the function that the session wraps
    code = """
from triton import knobs
kernel = kernels.fresh(kernels.add_kernel)
begin = lambda **_: tritonhook.enable("captures", rename="cutlass_") and None
with fake_driver.active() as driver:
    knobs.runtime.jit_cache_hook = begin
    kernels.launch(kernel)
    knobs.runtime.jit_cache_hook = None
    kernels.launch(kernel)
    tritonhook.disable()
    kernels.launch(kernel)
print(json.dumps(driver.launched))
"""
    assert run_python(code) == ["add_kernel", "cutlass_add_kernel", "add_kernel"]


def test_a_session_that_ends_in_another_thread_while_a_compile_waits_in_the_pool(out, driver):
    kernel, tensor, gate = fresh(add_kernel), Tensor(), threading.Event()
    tritonhook.enable(out, rename="cutlass_")
    with ThreadPoolExecutor(1) as pool, AsyncCompileMode(pool):
        pool.submit(gate.wait)
        kernel.warmup(tensor, tensor, tensor, 1000, BLOCK=128, grid=(1,))
        in_another_thread(tritonhook.disable)()
        gate.set()
    launch(kernel)
    with tritonhook.session(out / "later", rename="cutlass_"):
        launch(kernel)
    assert driver.launched == ["add_kernel", "cutlass_add_kernel"]


# --- what is not stored --------------------------------------------------------------------------


def override(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Triton this PTX of add_kernel under another name, from its override folder."""
    source = ASTSource(
        fn=add_kernel,
        signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 128},
    )
    folder = Path(triton.runtime.cache.get_override_manager(source.hash()).cache_dir)
    folder.mkdir(parents=True)
    (folder / "add_kernel.ptx").write_text(Ptx(text).rename_entries({"add_kernel": "theirs"}).text)
    monkeypatch.setenv("TRITON_KERNEL_OVERRIDE", "1")


def test_an_override_is_not_found_under_our_key(out, monkeypatch):
    text = compile_kernel().asm["ptx"]
    with monkeypatch.context() as patch, tritonhook.session(out, rename="cutlass_") as session:
        override(text, patch)
        assert entries(compile_kernel()) == ("theirs",)
    assert any(rewriting.REPLACED in note for note in session.notes)
    with tritonhook.session(out, rename="cutlass_"):
        assert entries(compile_kernel()) == RENAMED


class FailsOnce:
    """A rename that fails at first, as on a disk that is full for a moment."""

    key = "fails once"
    inner = tritonhook.Rename(prefix="cutlass_")

    def __init__(self) -> None:
        self.failed = False

    def apply(self, ptx: Ptx) -> Ptx:
        if not self.failed:
            self.failed = True
            raise OSError("no space left on the device")
        return self.inner.apply(ptx)


def test_a_kernel_whose_rewriting_failed_by_chance_is_not_found_under_our_key(out):
    with tritonhook.session(out, rewrites=FailsOnce()) as session:
        assert entries(compile_kernel()) == PLAIN
        assert entries(compile_kernel()) == RENAMED
    assert f"1 kernel not rewritten (add_kernel): {rewriting.FAILED}" in session.notes
    assert [capture.note for capture in session.captures] == [
        "not rewritten: no space left on the device",
        None,
    ]


# --- beginning and ending in several threads -----------------------------------------------------


def test_threads_that_enable_at_once_leave_one_session(tmp_path, monkeypatch):
    """Each `enable` takes so long that all are in it at once."""
    install, gate = Session.install, threading.Event()

    def slowly(session: Session) -> None:
        gate.wait(0.05)
        install(session)

    monkeypatch.setattr(Session, "install", slowly)
    threads = [
        threading.Thread(target=tritonhook.enable, args=(tmp_path / str(n),), kwargs={"rename": f"{name}_"})
        for n, name in enumerate("abcd")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tritonhook.disable() is not None
    assert set(tritonhook.status().values()) == {"free"}
    assert entries(compile_kernel()) == PLAIN
