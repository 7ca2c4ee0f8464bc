"""Triton's hook slots: what tritonhook puts into them, and how it gives them back.

Reading uses `knobs.compilation.listener` and changes nothing. Rewriting uses
`knobs.runtime.add_stages_inspection_hook`, and only while a session rewrites. Each slot holds one object; the object
that was there before is called and given back.

Triton 3.6.0 does not put the stages hook into any cache key: a rewritten kernel would be stored under the plain
kernel's key. `KeyedCaches` adds it there. From 3.7.0 on, Triton asks the hook for a key at every compile and every
launch; our key is a constant.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tritonhook.capture.assembling import assemble_by
from tritonhook.capture.model import Assembler
from tritonhook.capture.patching import Patch
from tritonhook.capture.triton.metadata import META_FROM, META_NOTE, META_PTXAS, assembler_of, constants_of, release
from tritonhook.errors import ToolError
from tritonhook.ptx.module import Ptx

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer


class Slot:
    """Our object in a hook slot of Triton's, which holds one object. previous: the object that was there before.

    After `uninstall` it is dead: it only passes calls on. If another tool puts a dead one back into the slot, it takes
    itself out at the next call.
    """

    name: str

    def __init__(self, session: Observer) -> None:
        self.session = session
        self.previous: Any = None
        self.alive = False

    def _group(self) -> Any:
        raise NotImplementedError

    def install(self) -> None:
        self.previous = getattr(self._group(), self.name)
        self.alive = True
        setattr(self._group(), self.name, self)

    def _restore(self) -> None:
        below = self.previous
        while isinstance(below, Slot) and not below.alive:
            below = below.previous
        setattr(self._group(), self.name, below)

    def uninstall(self) -> str | None:
        """Restore the slot. Returns the name of another tool that took it without giving it back, if there is one."""
        self.alive = False
        holder = getattr(self._group(), self.name)
        if holder is self:
            self._restore()
            return None
        while isinstance(holder, Slot):
            holder = holder.previous
            if holder is self:
                return None
        return holder_name(holder)

    def _leave_if_dead(self) -> None:
        if not self.alive and getattr(self._group(), self.name) is self:
            self._restore()


class Listener(Slot):
    """In `knobs.compilation.listener`: called at the end of triton.compile, on a miss and on a hit."""

    name = "listener"

    def _group(self) -> Any:
        from triton import knobs

        return knobs.compilation

    def __call__(self, **event: Any) -> None:
        if self.alive:
            try:
                constants = constants_of(event.get("src"))
                self.session.read(event["metadata"], event["metadata_group"], bool(event["cache_hit"]), constants)
            except Exception as error:
                self.session.contain("a kernel could not be captured", error)
        else:
            self._leave_if_dead()
        if self.previous is not None:
            self.previous(**event)


class StagesHook(Slot):
    """In `knobs.runtime.add_stages_inspection_hook`: rewrites the PTX of a compile.

    Triton calls it with arguments to change the stages of one compile. From 3.7 on Triton also calls it without
    arguments, at every compile and launch, for a (key, hash) that joins Triton's cache keys.
    """

    name = "add_stages_inspection_hook"

    def __init__(self, session: Observer) -> None:
        super().__init__(session)
        key = session.settings.key
        self.key = (key, hashlib.sha256(key.encode()).hexdigest())
        self._compiles = threading.local()

    def _group(self) -> Any:
        from triton import knobs

        return knobs.runtime

    def install(self) -> None:
        _finish_compiles_in_flight()
        super().install()
        _keyed_caches.add(self)

    def uninstall(self) -> str | None:
        _finish_compiles_in_flight()
        _keyed_caches.remove(self)
        return super().uninstall()

    def joined_the_key(self) -> None:
        """Called when the cache key of the compile that this thread begins was made with our key in it."""
        self._compiles.keyed = True

    def _is_keyed(self) -> bool:
        """Whether the cache key of this thread's compile has our key; it has not if the compile began before us."""
        keyed = getattr(self._compiles, "keyed", False)
        self._compiles.keyed = False
        if not keyed:
            self.session.note("a kernel whose compile began before tritonhook was enabled stays as it is")
        return keyed

    def __call__(self, *arguments: Any) -> Any:
        if not arguments:
            return self._cache_key()
        result = self.previous(*arguments) if self.previous is not None else None
        if not self.alive:
            self._leave_if_dead()
            return result
        try:
            backend, stages, options = arguments[:3]
            if "ptx" in stages and "cubin" in stages and self._is_keyed():
                _Compile(self.session, backend, stages, options)
        except Exception as error:
            self.session.contain("the stages hook did nothing", error)
        return result

    def _cache_key(self) -> tuple[str, str]:
        if not self.alive:
            self._leave_if_dead()
            return ("", "") if self.previous is None else self.previous()
        self.joined_the_key()
        if self.previous is None:
            return self.key
        key, digest = self.previous()
        return self.key[0] + key, f"{self.key[1]}-{digest}"


class _Compile:
    """One compile, whose stages ptx and cubin are replaced.

    The PTX is rewritten at the end of the ptx stage, and assembled there as well: if ptxas fails on the rewritten PTX,
    the rest of the pipeline sees the plain PTX. So the PTX and the cubin in the cache always belong together.
    """

    def __init__(self, session: Observer, backend: Any, stages: dict[str, Any], options: Any) -> None:
        self._session = session
        self._make_ptx, self._make_cubin = stages["ptx"], stages["cubin"]
        own, assembling = assembler_of(backend.target.arch, vars(options)), session.settings.assembling
        self._assembler = own if assembling is None else assembling.instead_of(own)
        self._assemble = self._make_cubin if assembling is None else _by(self._assembler)
        self._cubins: dict[str, bytes] = {}  # by rewritten PTX
        stages["ptx"], stages["cubin"] = self._ptx, self._cubin

    def _ptx(self, source: Any, metadata: dict[str, Any]) -> Any:
        text = self._make_ptx(source, metadata)
        try:
            rewritten = self._session.rewrite(text, metadata.get(META_FROM), self._assembler.version)
        except Exception as error:
            self._session.contain(f"{metadata.get('name')} stays as it is", error)
            metadata[META_NOTE] = f"not rewritten: {error}"
            return text
        if rewritten is None:
            return text
        new_text, own, new = rewritten
        trial = dict(metadata)
        cubin = self._try(new_text, new, trial)
        if cubin is None:
            metadata[META_NOTE] = _why_plain(text, new_text, own, new, self._assembler)
            return text
        self._cubins[new_text] = cubin
        metadata.update(trial, **{"name": new} | ({META_FROM: own} if own != new else {}))
        return new_text

    def _cubin(self, source: Any, metadata: dict[str, Any]) -> Any:
        if source in self._cubins:
            return self._cubins[source]
        if self._cubins:
            # The PTX was replaced after us (by TRITON_KERNEL_OVERRIDE for instance): its name counts.
            metadata.pop(META_FROM, None)
            metadata["name"] = Ptx(source).only_entry()
            return self._assemble(source, metadata)
        return self._make_cubin(source, metadata)

    def _try(self, text: str, name: str, metadata: dict[str, Any]) -> bytes | None:
        """The cubin of the rewritten PTX; None if ptxas fails. Other errors are raised."""
        from triton.runtime.errors import PTXASError

        try:
            with _muted_threads.mute():  # Triton would print the whole PTX if ptxas fails
                cubin: bytes = self._assemble(text, metadata)
                return cubin
        except (PTXASError, ToolError) as error:
            try:
                self._session.keep_crash(name, text, self._assembler, str(error))
            except Exception as ours:
                self._session.contain(f"the ptxas crash on {name} could not be kept", ours)
            return None


def _by(assembler: Assembler) -> Callable[[str, dict[str, Any]], bytes]:
    """A cubin stage that assembles by this ptxas, and keeps it in the kernel's metadata."""

    def assemble(text: str, metadata: dict[str, Any]) -> bytes:
        cubin = assemble_by(assembler, text)
        metadata[META_PTXAS] = [assembler.path, assembler.version, list(assembler.arguments or ())]
        return cubin

    return assemble


def _why_plain(text: str, new_text: str, own: str, new: str, assembler: Assembler) -> str:
    """The note in a capture whose kernel ptxas did not assemble as the session wants it."""
    if new != own:
        return f"not renamed: ptxas failed under the name {new}"
    if new_text != text:
        return "not rewritten: ptxas failed on the rewritten PTX"
    return f"ptxas {assembler.version} failed; assembled by Triton's own"


def _finish_compiles_in_flight() -> None:
    """Wait for the compiles that AsyncCompileMode has started: they belong to the old settings."""
    from concurrent.futures import wait

    from triton.runtime import _async_compile

    mode = _async_compile.active_mode.get()
    if mode is not None:
        wait(list(mode.raw_futures))


class KeyedCaches:
    """Adds the rewriting to those cache keys in which Triton leaves it out.

    In Triton 3.6 these are the disk key and the in-memory key; in every version the key by which AsyncCompileMode
    merges compiles in flight. The functions that make the keys are patched only while a session rewrites.
    """

    def __init__(self) -> None:
        self.hooks: list[StagesHook] = []
        self._key = ""
        self._runtime: Any = None
        self._patches: list[Patch] = []

    def add(self, hook: StagesHook) -> None:
        self.hooks.append(hook)
        self._key = "".join(hook.key[1] for hook in self.hooks)
        if not self._patches:
            self._install()

    def remove(self, hook: StagesHook) -> None:
        if hook in self.hooks:
            self.hooks.remove(hook)
        self._key = "".join(hook.key[1] for hook in self.hooks)
        if not self.hooks:
            while self._patches:
                self._patches.pop().undo()  # a patch that stays because another tool wrapped it adds an empty key

    @property
    def key(self) -> str:
        """Names the rewriting in effect; empty if a user's `knobs.runtime.scope()` has emptied the slot."""
        return "" if self._runtime.add_stages_inspection_hook is None else self._key

    def _install(self) -> None:
        from triton import knobs
        from triton.compiler import compiler
        from triton.runtime import jit

        self._runtime = knobs.runtime
        self._patches.append(Patch(jit, "get_cache_key", self._keyed))
        if release() < (3, 7):
            self._patches.append(Patch(compiler, "get_cache_key", self._keyed_compile))
            self._patches.append(Patch(jit, "compute_cache_key", self._keyed))

    def _keyed(self, original: Callable[..., str]) -> Callable[..., str]:
        def keyed(*arguments: Any, **named: Any) -> str:  # at every launch, in 3.6
            return original(*arguments, **named) + self.key

        return keyed

    def _keyed_compile(self, original: Callable[..., str]) -> Callable[..., str]:
        def keyed(*arguments: Any, **named: Any) -> str:
            for hook in self.hooks:
                hook.joined_the_key()
            return original(*arguments, **named) + self.key

        return keyed


_keyed_caches = KeyedCaches()


class MutedThreads:
    """Replaces sys.stdout while at least one thread is muted; other threads print as before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        self._real: Any = None

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self._threads else int(self._real.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @contextlib.contextmanager
    def mute(self) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            if not self._threads:
                self._real, sys.stdout = sys.stdout, self
            self._threads.add(thread)
        try:
            yield
        finally:
            with self._lock:
                self._threads.discard(thread)
                if not self._threads and sys.stdout is self:
                    sys.stdout = self._real


_muted_threads = MutedThreads()


def holder_name(value: Any) -> str:
    """Name the owner of an object in a hook slot: "free", "tritonhook" and what it calls, or a class or function."""
    if value is None:
        return "free"
    if isinstance(value, Slot):
        behind = "" if value.previous is None else f", then {holder_name(value.previous)}"
        return f"tritonhook{'' if value.alive else ' (ended)'}{behind}"
    calls = getattr(value, "calls", None)
    if isinstance(calls, list):
        return ", ".join(holder_name(call) for call in calls) or "free"
    owner = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}.{owner}"
