"""Rewrite kernels in `triton.compile`. The sessions that are active when the cache key of a compile is made are used
for the whole compile, even if sessions begin or end before the cubin is made.

`get_cache_key` receives the backend object of one compile. The sessions' stages are added to this object. A guard
(Compile.guard) is added to the cache manager of the same compile. So another thread or tool cannot change them later.
tritonhook does not use the hook `knobs.runtime.add_stages_inspection_hook`; stages that other tools add there run
before ours.

The functions that compile are patched when the first session rewrites, and stay patched until the process ends, because
a launch may have made its key just before the last session ended. Without a session they only call the original. The
function that makes a launch's key is patched only while a session rewrites.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tritonhook.capture.patching import Hooks, Patch
from tritonhook.capture.triton.metadata import META_KEYS, META_NOTE
from tritonhook.capture.triton.stages import Stages, Step

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

Sessions = tuple["Observer", ...]  # outermost first

_COMPILER, _JIT = "triton.compiler.compiler", "triton.runtime.jit"
_MARK = "\0tritonhook:"  # begins our part of a key; Triton's part, of repr() texts and hashes, contains no byte 0
_ASKED_BY = "_tritonhook_sessions"  # attribute with the sessions, while a source waits for an AsyncCompileMode thread
# Reasons why a kernel is not rewritten. Except with LATE, its files are not stored in Triton's cache.
LATE = "the compile began before the session"
REPLACED = "another tool replaced the stage ptx or cubin, or its output"
FAILED = "the rewrite failed, but may succeed the next time"


def digest(key: str) -> str:
    """Hash a session's key, for a kernel's metadata."""
    return hashlib.sha256(key.encode()).hexdigest()[:16]


class Rewriting(Hooks):
    """The sessions that rewrite, and the functions of Triton that are patched for them.

    key: the sessions' part of a launch's key in Triton's in-memory cache.
    """

    def __init__(self) -> None:
        super().__init__()
        self.key = ""
        self._thread = threading.local()
        self._for_good: list[Patch] = []

    def _settle(self) -> None:
        self.key = _key_of_launch(self.sessions)  # "" without sessions: another tool's patch may still call ours

    def _patched(self) -> list[Patch]:
        """Patch the functions that launch. The first call also patches the functions that compile; that patch is never
        undone."""
        from triton.compiler import CompiledKernel, compiler
        from triton.runtime import jit

        self._for_good = self._for_good or [
            Patch(jit.JITFunction, "_do_compile", self._compile_launched),
            Patch(jit, "get_cache_key", self._key_of_async_compile),
            Patch(compiler, "get_cache_key", self._key_of_compile),
            Patch(compiler, "get_cache_manager", self._entry_of_compile),
        ]
        launched = Patch(jit, "compute_cache_key", self._key_of_launch)
        return [launched, Patch(CompiledKernel, "__init__", self._compiled)]

    # --- launches

    def _key_of_launch(self, original: Callable[..., str]) -> Callable[..., str]:
        def compute_cache_key(*arguments: Any, **named: Any) -> str:
            return original(*arguments, **named) + self.key

        return compute_cache_key

    def _compile_launched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the compile for a launch whose kernel is not in memory. The launch's key may contain sessions that have
        ended since, so it is replaced by the key of the sessions for which the kernel is compiled."""

        def do_compile(function: Any, key: str, *arguments: Any, **named: Any) -> Any:
            sessions = self.sessions
            if not sessions and _MARK not in key:
                return original(function, key, *arguments, **named)
            with self._bound_to(sessions):
                return original(function, key.partition(_MARK)[0] + _key_of_launch(sessions), *arguments, **named)

        return do_compile

    @contextmanager
    def _bound_to(self, sessions: Sessions) -> Iterator[None]:
        """Use these sessions for all compiles of this thread during a `with` block."""
        outer = getattr(self._thread, "sessions", None)
        self._thread.sessions = sessions
        try:
            yield
        finally:
            self._thread.sessions = outer

    def _key_of_async_compile(self, original: Callable[..., str]) -> Callable[..., str]:
        """Extend the key by which AsyncCompileMode merges equal pending compiles. An attribute of the source passes the
        sessions to the thread that will compile it."""

        def get_cache_key(src: Any, *arguments: Any, **named: Any) -> str:
            bound: Sessions | None = getattr(self._thread, "sessions", None)
            sessions = () if bound is None else bound  # None if the launch began before the first session
            setattr(src, _ASKED_BY, sessions)
            return original(src, *arguments, **named) + _key_of_launch(sessions)

        return get_cache_key

    # --- compiles

    def _key_of_compile(self, original: Callable[..., str]) -> Callable[..., str]:
        def get_cache_key(src: Any, backend: Any, options: Any, *arguments: Any, **named: Any) -> str:
            key = original(src, backend, options, *arguments, **named)
            self._thread.compiles = None
            sessions = self._asked_by(src)
            try:
                compiles = Compile.bind(sessions, src, backend, options) if sessions else None
            except Exception as error:
                _contain(sessions, error)
                return key
            self._thread.compiles = compiles
            return key if compiles is None else key + compiles.key

        return get_cache_key

    def _asked_by(self, src: Any) -> Sessions:
        """Return the sessions of the compile whose key is being made."""
        asked_by: Sessions | None = getattr(src, "__dict__", {}).pop(_ASKED_BY, None)
        if asked_by is None:
            asked_by = getattr(self._thread, "sessions", None)
        if asked_by is None:  # not from a launch: the program called triton.compile
            return () if not self.sessions or _is_called_by_a_launch() else self.sessions
        return asked_by

    def _entry_of_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_cache_manager(*arguments: Any, **named: Any) -> Any:
            manager = original(*arguments, **named)
            compiles: Compile | None = getattr(self._thread, "compiles", None)
            if compiles is not None:
                try:
                    compiles.guard(manager)
                except Exception as error:
                    _contain(self.sessions, error)
            return manager

        return get_cache_manager

    def _compiled(self, original: Callable[..., None]) -> Callable[..., None]:
        """After each compile and each load from the disk cache, add a note if the kernel should be rewritten but is
        not."""

        def init(kernel: Any, src: Any, group: Any, *arguments: Any, **named: Any) -> None:
            original(kernel, src, group, *arguments, **named)
            compiles: Compile | None = getattr(self._thread, "compiles", None)
            reason = compiles.refusal if compiles is not None and compiles.source is src else None
            self._thread.compiles = None

            def check(session: Observer) -> None:
                session.check_rewritten(kernel.metadata._asdict(), group, reason or LATE)

            self.tell("could not check whether a kernel was rewritten", check)

        return init


def _key_of_launch(sessions: Sessions) -> str:
    return _part_of_key(session.settings.key for session in sessions)


def _part_of_key(keys: Iterable[str]) -> str:
    return "".join(_MARK + key for key in keys)


def _contain(sessions: Sessions, error: Exception) -> None:
    for session in sessions:
        session.contain("a kernel is not rewritten", error)


def _is_called_by_a_launch() -> bool:
    """Check whether JITFunction called the triton.compile whose key this thread is making. If so, the launch began
    before the first session, because `_do_compile` was not yet patched."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") != _COMPILER:
        frame = frame.f_back
    return frame.f_back is not None and frame.f_back.f_globals.get("__name__") == _JIT


def _own_name(source: Any) -> str:
    """Return the kernel's name in its PTX: the name of its Python function, or the result of the function's `repr`,
    which triton.compiler.code_generator calls with the constants to make a name."""
    function: Any = getattr(source, "fn", None)
    if getattr(function, "_repr", None) is None:
        return str(source.name)
    constants = {function.arg_names[path[0]]: value for path, value in source.constants.items() if len(path) == 1}
    return str(function.repr(SimpleNamespace(constants=constants, signature=source.signature)))


class Compile:
    """One compile by Triton, and the sessions' steps in it.

    source: Triton's source object. key: the sessions' part of the cache key. refusal: why the results are not stored
    under the key; None if they are stored.
    """

    def __init__(self, source: Any, steps: list[Step]) -> None:
        self.source = source
        self.key = _part_of_key(step.key for step in steps)
        self.refusal: str | None = None
        self._steps = steps
        self._made: dict[str, Any] = {}  # results of the steps, by file extension

    @classmethod
    def bind(cls, sessions: Sessions, source: Any, backend: Any, options: Any) -> Compile | None:
        """Add the sessions' steps to the compile whose key is being made. None if no session changes it, e.g. because
        its source is a PTX file."""
        if backend.target.backend != "cuda" or source.ext in ("ptx", "cubin"):
            return None
        steps = []
        for session in sessions:
            try:
                settings = session.settings_now(_own_name(source))
                if settings.key:
                    steps.append(Step(session, settings, backend, options))
            except Exception as error:
                _contain((session,), error)
        if not steps:
            return None
        compiles, add_stages = cls(source, steps), backend.add_stages

        def add_stages_then_ours(stages: Stages, *arguments: Any, **named: Any) -> None:
            add_stages(stages, *arguments, **named)
            compiles.wrap(stages)

        backend.add_stages = add_stages_then_ours
        return compiles

    def wrap(self, stages: Stages) -> None:
        """Wrap the sessions' steps around the stages ptx and cubin of Triton and other tools."""
        if "ptx" not in stages or "cubin" not in stages:
            self.refusal = REPLACED
            return
        for step in self._steps:
            step.wrap(stages)
        self._make_ptx, self._make_cubin = stages["ptx"], stages["cubin"]
        stages["ptx"], stages["cubin"] = self._ptx, self._cubin

    def _ptx(self, source: Any, metadata: dict[str, Any]) -> Any:
        text = self._make_ptx(source, metadata)
        if all(step.is_sure for step in self._steps):
            self._made["ptx"] = text
            metadata[META_KEYS] = [digest(step.key) for step in self._steps]
        else:
            self.refusal = FAILED
        return text

    def _cubin(self, source: Any, metadata: dict[str, Any]) -> Any:
        cubin = self._make_cubin(source, metadata)
        if source == self._made.get("ptx"):
            self._made["cubin"] = cubin
        elif metadata.pop(META_KEYS, None) is not None:
            metadata[META_NOTE] = "not rewritten: its PTX was replaced afterwards, e.g. by TRITON_KERNEL_OVERRIDE"
        return cubin

    # --- the entry in Triton's cache

    def guard(self, manager: Any) -> None:
        """Do not store results under this compile's key if the steps did not make them. Such results are written to
        another cache folder, which no key finds, because Triton reads its results from files."""
        place = manager

        def put(data: Any, filename: str, *arguments: Any, **named: Any) -> Any:
            nonlocal place
            if place is manager and not self._may_store(data, filename.rpartition(".")[2]):
                self.refusal = self.refusal or REPLACED
                place = _without_key()
            return (kept["put"] if place is manager else place.put)(data, filename, *arguments, **named)

        def put_group(*arguments: Any, **named: Any) -> Any:
            return kept["put_group"](*arguments, **named) if place is manager else None

        kept = {"put": manager.put, "put_group": manager.put_group}
        manager.put, manager.put_group = put, put_group

    def _may_store(self, data: Any, ending: str) -> bool:
        return ending not in ("ptx", "cubin") or bool(data == self._made.get(ending))


def _without_key() -> Any:
    from triton.runtime.cache import FileCacheManager

    return FileCacheManager(f"not-rewritten-{uuid.uuid4().hex}")


rewriting = Rewriting()
