"""Hooks in torch.compile's Inductor. They cover what Triton's hooks miss: kernels from Inductor's caches, Inductor's
autotuner, and its static launcher, which looks up a kernel by the name of its Python function.

Inductor does not call triton.compile for kernels from a warm FxGraphCache or from its worker processes. So Triton's
listener is not called. But `make_launcher` is called for each kernel in the process that launches it; this module then
reads the kernel's files in Triton's cache. Every patch calls Inductor's own function. Errors of tritonhook are
reported, and the program goes on.

This module does not import Inductor: it patches a module of Inductor after the program has imported it. It imports
little, because every child process of `tritonhook run` imports it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import AfterImport
from tritonhook._util.variables import INDUCTOR
from tritonhook.capture.patching import Hooks, Patch
from tritonhook.errors import CaptureError

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

HEURISTICS = "torch._inductor.runtime.triton_heuristics"
CODECACHE = "torch._inductor.codecache"
_UNCHANGED = "they came from torch.compile's caches or workers"
_WORKER = ("compile_worker", "__main__.py")


class Inductor(Hooks):
    """The patches of Inductor in this process, and the sessions that these patches notify."""

    def __init__(self) -> None:
        super().__init__()
        self._key = ""
        self._waiting: dict[str, AfterImport] = {}
        self._of_module: dict[str, list[Patch]] = {}
        self._launches_any_name = False
        self._hash_of: dict[str, str] = {}  # Triton's hash by the name of the kernel's folder in its cache
        self._trials = threading.local()
        self._modules: Mapping[str, Callable[[Any], list[Patch]]] = {
            HEURISTICS: self._patch_heuristics,
            CODECACHE: self._patch_codecache,
            "torch._inductor.runtime.autotune_cache": self._patch_autotune_cache,
            "torch._inductor.async_compile": self._patch_async_compile,
        }

    # --- attaching and detaching

    def await_modules(self) -> None:
        """Patch each of Inductor's modules when the program imports it."""
        for name in self._modules:
            if name not in sys.modules and name not in self._waiting:
                self._waiting[name] = AfterImport(name, functools.partial(self._loaded, name))
                self._waiting[name].begin()

    def attach(self, session: Observer) -> None:
        with self._lock:
            super().attach(session)
            self.await_modules()
            for name in self._modules:
                if _is_loaded(name):
                    self._patch(name)

    def detach(self, session: Observer) -> None:
        with self._lock:
            if session not in self.sessions:
                return
            super().detach(session)
            if not self.sessions:
                for name in list(self._of_module):
                    for patch in reversed(self._of_module.pop(name)):
                        patch.undo()
                while self._waiting:
                    self._waiting.popitem()[1].end()

    def _patched(self) -> list[Patch]:
        return []  # `_patch` patches each module after the program has imported it

    def _settle(self) -> None:
        """Update the key that identifies the sessions' rewrites. The key is part of Inductor's cache keys. Compile
        workers read it from the environment, because they may rename kernels only if the process that launches the
        kernels renames in the same way."""
        from tritonhook.capture.inductor_pins import key_of_pins  # here: processes without a session do not need it

        keys = "".join(session.settings.key + key_of_pins(session.settings.policy) for session in self.sessions)
        self._key = _digest(keys) if keys else ""
        if _is_compile_worker():
            return
        if self._key:
            os.environ[INDUCTOR] = f"{self._key}-{os.getpid()}"
        elif INDUCTOR in os.environ:
            # Set to "" instead of deleted: if another thread copies the environment now, a deletion raises KeyError.
            os.environ[INDUCTOR] = ""

    def _loaded(self, name: str) -> None:
        with self._lock:
            self._waiting.pop(name, None)
            if self.sessions:
                self._patch(name)

    def _patch(self, name: str) -> None:
        """Patch one module. Errors are reported and not raised, because this runs inside the program's import."""
        if name in self._of_module:
            return
        try:
            self._of_module[name] = self._modules[name](sys.modules[name])
        except Exception as error:
            self.contain("torch.compile's kernels from its caches are not captured", error)

    def after_fork(self) -> None:
        """Update the key in a forked child, which starts compile workers of its own."""
        self._settle()

    # --- the patches

    def _patch_heuristics(self, module: Any) -> list[Patch]:
        results = [getattr(module, n, None) for n in ("TritonCompileResult", "StaticTritonCompileResult")]
        patches = [Patch(cls, "make_launcher", self._make_launcher) for cls in results if cls is not None]
        tuner = module.CachingAutotuner
        for name in ("autotune_to_one_config", "coordinate_descent_tuning"):
            if name in tuner.__dict__:
                patches.append(Patch(tuner, name, functools.partial(self._tune, name)))
        if hasattr(module, "check_autotune_cache"):
            patches.append(Patch(module, "check_autotune_cache", self._pinning))
        launcher = getattr(module, "StaticallyLaunchedCudaKernel", None)
        home = next((c for c in getattr(launcher, "__mro__", ()) if "load_kernel" in c.__dict__), None)
        if home is not None and not self._launches_any_name:
            # Never undone: a kernel renamed in a session can be loaded after the session's end.
            Patch(home, "load_kernel", self._load_kernel)
        self._launches_any_name = launcher is None or home is not None
        return patches

    def _patch_codecache(self, module: Any) -> list[Patch]:
        """Add the rewrites' key to the cache keys of graphs in FxGraphCache. AOTAutogradCache gets it too, because its
        details class derives from the patched class."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def init(details: Any, *arguments: Any, **named: Any) -> None:
                original(details, *arguments, **named)
                if self._key:
                    details.tritonhook = self._key

            return init

        return [Patch(module.FxGraphHashDetails, "__init__", wrap)]

    def _patch_autotune_cache(self, module: Any) -> list[Patch]:
        """Add the rewrites' key to the autotuning cache's keys, because a name can change which configuration wins."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def prepare_key(filename: str) -> Any:
                return original(f"{filename}.{self._key}" if self._key else filename)

            return prepare_key

        cache = module.AutotuneCache
        return [Patch(cache, "_prepare_key", wrap)] if hasattr(cache, "_prepare_key") else []

    def _patch_async_compile(self, module: Any) -> list[Patch]:
        """Compile in this process, not in workers, while a session of `enable` rewrites. Compile workers have only the
        settings of `tritonhook run`."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def use_process_pool(cls: Any) -> Any:
                if any(session.settings.key and not session.reaches_children for session in self.sessions):
                    return False
                return original(cls)

            return use_process_pool

        pool = module.AsyncCompile
        return [Patch(pool, "use_process_pool", wrap)] if hasattr(pool, "use_process_pool") else []

    # --- launching

    def _load_kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Let the static launcher find a renamed kernel. The launcher looks up the Python function's name, but the
        cubin has only the new name. So `kernel.name` is changed during this call, and restored because Inductor's
        caches and file names use it."""

        def load_kernel(kernel: Any, *arguments: Any, **named: Any) -> Any:
            entry = _entry_instead(kernel)
            if entry is None:
                return original(kernel, *arguments, **named)
            own = kernel.name
            kernel.name = entry
            try:
                return original(kernel, *arguments, **named)
            finally:
                kernel.name = own

        return load_kernel

    def may_rename(self) -> str | None:
        """Return why a kernel that Inductor is compiling must not be renamed; None if it may be renamed."""
        if not self._launches_any_name:
            return "tritonhook does not support the static launcher of this torch version"
        return self.may_rewrite()

    def may_rewrite(self) -> str | None:
        """Return why a kernel that Inductor is compiling must not be changed at all; None if it may be changed, because
        Inductor's caches keep it under a separate key."""
        if _is_compile_worker():
            key, _, launcher = os.environ.get(INDUCTOR, "").partition("-")
            parents = [word.partition("=")[2] for word in sys.argv if word.startswith("--parent=")]
            ready = key == self._key and (launcher in parents or not parents)
            return None if ready else "the process that launches them rewrites differently, or not at all"
        return None if CODECACHE in self._of_module else "the key of torch.compile's graph cache could not be extended"

    def _make_launcher(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def make_launcher(result: Any, *arguments: Any, **named: Any) -> Any:
            launcher = original(result, *arguments, **named)
            try:
                self._read(result, launcher)
            except Exception as error:
                self.contain("not all kernels of torch.compile are captured", error)
            return launcher

        return make_launcher

    def _read(self, result: Any, launcher: Any) -> None:
        hash, place = str(result.kernel.hash), str(launcher.cache_hash)
        self._hash_of[place] = hash
        trials = getattr(self._trials, "seen", None)
        if trials is not None:
            trials.append(hash)
        unknown = [session for session in self.sessions if session.record_of(hash) is None]
        if not unknown:
            return
        from torch._inductor.runtime.runtime_utils import triton_cache_dir

        meta = result.compile_meta
        folder = Path(triton_cache_dir(meta.get("device", 0) or 0)) / place
        group = {path.name: str(path) for path in folder.iterdir() if not path.name.startswith("__grp__")}
        metadata = _metadata(group, hash, meta)
        constants = {str(name): value for name, value in (meta.get("constants") or {}).items()}
        for session in unknown:
            session.read(metadata, group, True, constants)
            if session.settings.key and "json" in {name.rpartition(".")[2] for name in group}:
                session.check_rewritten(metadata, group, _UNCHANGED)

    # --- autotuning

    def _pinning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the configuration that a policy pins, as if it came from Inductor's autotuning cache."""
        from tritonhook.capture.inductor_pins import pinned

        def check(configs: Any, filename: Any, inductor_meta: Any, *rest: Any, **named: Any) -> Any:
            try:
                configs_pinned = [pinned(session, configs, filename, inductor_meta) for session in self.sessions]
            except Exception as error:
                self.contain("the configuration of a kernel of torch.compile is not pinned", error)
                configs_pinned = []
            config = next((config for config in reversed(configs_pinned) if config is not None), None)
            if config is None:
                return original(configs, filename, inductor_meta, *rest, **named)
            return [config], None, {"autotune_cache_state": "hit"}

        return check

    def _tune(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        by = "Inductor" if name == "autotune_to_one_config" else "Inductor, coordinate descent"

        def tune(tuner: Any, *arguments: Any, **named: Any) -> Any:
            launchers = list(getattr(tuner, "launchers", ()))
            before = [launcher.cache_hash for launcher in launchers]
            with self._noting_trials() as trials:
                result = original(tuner, *arguments, **named)
            try:
                winner = result if hasattr(result, "cache_hash") else tuner.launchers[0]
                among = [*(self._hash_of[place] for place in before if place in self._hash_of), *trials]
                if len(set(among)) > 1 and winner.cache_hash in self._hash_of:
                    tuning, chosen = f"{os.getpid()}-{id(tuner)}", self._hash_of[winner.cache_hash]
                    for session in self.sessions:
                        session.tuned(tuning, by, chosen, tuple(dict.fromkeys(among)))
                    self._configured(tuner, winner, [*launchers, winner])
            except Exception as error:
                self.contain("the winner of an autotuning is not known", error)
            return result

        return tune

    def _configured(self, tuner: Any, winner: Any, launchers: list[Any]) -> None:
        """Report a tuner's configurations to the sessions. Pins are made from them later."""
        from tritonhook.capture.inductor_pins import BY, key_of

        key = key_of(getattr(tuner, "filename", None), tuner.inductor_meta)
        texts = {self._hash_of[it.cache_hash]: str(it.config) for it in launchers if it.cache_hash in self._hash_of}
        if key is None:
            return
        for session in self.sessions:
            session.configured(key[0], key[1], self._hash_of[winner.cache_hash], texts, by=BY)

    @contextmanager
    def _noting_trials(self) -> Iterator[list[str]]:
        """Collect the hashes of kernels that get a launcher in this thread during the `with` block."""
        outer = getattr(self._trials, "seen", None)
        trials: list[str] = []
        self._trials.seen = trials
        try:
            yield trials
        finally:
            self._trials.seen = outer


def _digest(keys: str) -> str:
    import hashlib  # here: slow to import, and most child processes do not need it before they import triton

    return hashlib.sha256(keys.encode()).hexdigest()[:16]


def _is_loaded(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _is_compile_worker() -> bool:
    """Check whether this process is one of Inductor's compile workers. They never launch kernels."""
    return Path(getattr(sys.modules.get("__main__"), "__file__", None) or "-").parts[-2:] == _WORKER


def _entry_instead(kernel: Any) -> str | None:
    """Return the name of a renamed kernel in its cubin; None if the cubin has the kernel's own name, or cannot be
    read."""
    try:
        path = kernel.cubin_path
        if not path or not str(path).endswith(".cubin"):
            return None
        entry = _entry(Path(path), kernel.name)
        return None if entry == kernel.name else entry
    except Exception:
        return None  # the launcher then raises its own error


def _entry(cubin: Path, own: str | None = None) -> str | None:
    """Find the kernel's name in a cubin: `own` if the cubin has that kernel, else the name in Triton's JSON file beside
    the cubin, else the name of the only kernel. None if all three fail.

    The bytes are searched for section names, because the program's Python may have no library that reads ELF.
    """
    import json
    import re

    data = cubin.read_bytes()
    names = {name.decode() for name in re.findall(rb"\0\.text\.([\w$.]+)(?=\0)", data)}
    if own in names:
        return own
    try:
        noted = json.loads(cubin.with_suffix(".json").read_bytes())["name"]
    except (OSError, ValueError, KeyError, TypeError):
        noted = None
    return noted if noted in names else min(names) if len(names) == 1 else None


def _metadata(group: Mapping[str, str], hash: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return Triton's metadata of a kernel; if Triton's cache has only the binary, make the metadata from Inductor's
    metadata."""
    import json

    from triton.backends.compiler import GPUTarget

    notes = [path for name, path in group.items() if name.endswith(".json")]
    if notes:
        metadata: dict[str, Any] = json.loads(Path(notes[0]).read_text())
        return metadata | {"target": GPUTarget(**metadata["target"])}
    entry = _entry(Path(next(path for name, path in group.items() if name.endswith(".cubin"))))
    if entry is None:
        raise CaptureError(f"{hash[:16]}: Triton's cache has only the cubin, in which the kernel's name is not found")
    known = {name: meta[name] for name in ("num_warps", "num_stages") if name in meta}
    return {"name": entry, "hash": hash, "target": GPUTarget(meta["device_type"], meta["cc"], 32), **known}


inductor = Inductor()
os.register_at_fork(after_in_child=inductor.after_fork)
