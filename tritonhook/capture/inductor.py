"""torch.compile's Inductor, where it leaves Triton's own path: kernels started from its caches, a launcher that looks
kernels up by the name of their Python function, and its autotuner.

Inductor starts kernels of a warm FxGraphCache, and those its worker processes compiled, without calling
triton.compile: Triton's listener never hears of them. Every kernel passes `make_launcher` in the process that launches
it, and there its files in Triton's cache are read. All that is wrapped here calls Inductor's own first, or right after;
an error of ours is reported and the program goes on. Nothing is imported: a module is wrapped once the program has
loaded it. What Triton calls by itself is triton_slots.py's.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tritonhook._util.import_hook import AfterImport
from tritonhook.errors import CaptureError

# Set where the launching process has a rewriting session, for its compile workers: only then may they rename.
VARIABLE = "TRITONHOOK_INDUCTOR"
HEURISTICS = "torch._inductor.runtime.triton_heuristics"
CODECACHE = "torch._inductor.codecache"
_WORKER = ("compile_worker", "__main__.py")


class Owner(Protocol):
    """The session behind the wrappers."""

    @property
    def rewriting_key(self) -> str: ...
    @property
    def reaches_children(self) -> bool: ...
    def knows(self, hash: str) -> bool: ...
    def read(
        self,
        metadata: Mapping[str, Any],
        group: Mapping[str, str],
        cache_hit: bool,
        constants: Mapping[str, Any] | None = None,
    ) -> None: ...
    def check_renamed(self, metadata: Mapping[str, Any], group: Mapping[str, str]) -> None: ...
    def tuned(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None: ...
    def contain(self, doing: str, error: BaseException) -> None: ...


class _Wrapped:
    """One attribute of a class, replaced; `undo` gives it back if it is still ours."""

    def __init__(self, owner: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.owner, self.name = owner, name
        self.original = owner.__dict__[name]
        kind = type(self.original) if isinstance(self.original, (staticmethod, classmethod)) else None
        function = self.original.__func__ if kind else self.original
        wrapper = functools.wraps(function)(wrap(function))
        self.ours = kind(wrapper) if kind else wrapper
        setattr(owner, name, self.ours)

    def undo(self) -> None:
        if self.owner.__dict__.get(self.name) is self.ours:
            setattr(self.owner, self.name, self.original)


class Inductor:
    """What is wrapped in this process's Inductor, for the sessions there are."""

    def __init__(self) -> None:
        self.sessions: list[Owner] = []
        self._key = ""
        self._lock = threading.RLock()
        self._waiting: dict[str, AfterImport] = {}
        self._wrapped: dict[str, list[_Wrapped]] = {}
        self._launches_any_name = False
        self._hash_of: dict[str, str] = {}  # Triton's hash by the name of the kernel's folder in its cache
        self._trials = threading.local()
        self._modules: Mapping[str, Callable[[Any], list[_Wrapped]]] = {
            HEURISTICS: self._wrap_heuristics,
            CODECACHE: self._wrap_codecache,
            "torch._inductor.runtime.autotune_cache": self._wrap_autotune_cache,
            "torch._inductor.async_compile": self._wrap_async_compile,
        }

    # --- coming and going

    def await_modules(self) -> None:
        """See Inductor's modules when they are loaded. Costs nothing until then."""
        for name in self._modules:
            if name not in sys.modules and name not in self._waiting:
                self._waiting[name] = AfterImport(name, functools.partial(self._loaded, name))
                self._waiting[name].begin()

    def attach(self, session: Owner) -> None:
        with self._lock:
            self.sessions.append(session)
            self._settle_key()
            self.await_modules()
            for name in self._modules:
                if _is_loaded(name):
                    self._wrap(name)

    def detach(self, session: Owner) -> None:
        with self._lock:
            if session not in self.sessions:
                return
            self.sessions.remove(session)
            self._settle_key()
            if not self.sessions:
                for name in list(self._wrapped):
                    for wrapped in reversed(self._wrapped.pop(name)):
                        wrapped.undo()
                while self._waiting:
                    self._waiting.popitem()[1].end()

    def _settle_key(self) -> None:
        keys = "".join(session.rewriting_key for session in self.sessions)
        self._key = hashlib.sha256(keys.encode()).hexdigest()[:16] if keys else ""
        if _is_compile_worker():
            return
        if self._key:
            os.environ[VARIABLE] = f"{self._key}-{os.getpid()}"
        else:
            os.environ.pop(VARIABLE, None)

    def _loaded(self, name: str) -> None:
        with self._lock:
            self._waiting.pop(name, None)
            if self.sessions:
                self._wrap(name)

    def _wrap(self, name: str) -> None:
        """Never breaks the import it follows."""
        if name in self._wrapped:
            return
        try:
            self._wrapped[name] = self._modules[name](sys.modules[name])
        except Exception as error:
            self._contain("torch.compile's kernels from its caches cannot be seen", error)

    def _contain(self, doing: str, error: BaseException) -> None:
        for session in self.sessions:
            session.contain(doing, error)

    def after_fork(self) -> None:
        """In a child: its compile workers are its own. Another thread may have held the lock when it forked."""
        self._lock = threading.RLock()
        self._settle_key()

    # --- what is wrapped

    def _wrap_heuristics(self, module: Any) -> list[_Wrapped]:
        results = [getattr(module, n, None) for n in ("TritonCompileResult", "StaticTritonCompileResult")]
        wrapped = [_Wrapped(cls, "make_launcher", self._make_launcher) for cls in results if cls is not None]
        tuner = module.CachingAutotuner
        for name in ("autotune_to_one_config", "coordinate_descent_tuning"):
            if name in tuner.__dict__:
                wrapped.append(_Wrapped(tuner, name, functools.partial(self._tune, name)))
        launcher = getattr(module, "StaticallyLaunchedCudaKernel", None)
        home = next((c for c in getattr(launcher, "__mro__", ()) if "load_kernel" in c.__dict__), None)
        if home is not None and not self._launches_any_name:
            # Stays for as long as the process lives: kernels renamed in a session can be loaded after it.
            _Wrapped(home, "load_kernel", self._load_kernel)
        self._launches_any_name = launcher is None or home is not None
        return wrapped

    def _wrap_codecache(self, module: Any) -> list[_Wrapped]:
        """Renamed graphs under other keys: FxGraphCache and AOTAutogradCache, which derives from this class."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def init(details: Any, *arguments: Any, **named: Any) -> None:
                original(details, *arguments, **named)
                if self._key:
                    details.tritonhook = self._key

            return init

        return [_Wrapped(module.FxGraphHashDetails, "__init__", wrap)]

    def _wrap_autotune_cache(self, module: Any) -> list[_Wrapped]:
        """A name can change which configuration wins."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def prepare_key(filename: str) -> Any:
                return original(f"{filename}.{self._key}" if self._key else filename)

            return prepare_key

        cache = module.AutotuneCache
        return [_Wrapped(cache, "_prepare_key", wrap)] if hasattr(cache, "_prepare_key") else []

    def _wrap_async_compile(self, module: Any) -> list[_Wrapped]:
        """Compile workers know the settings of `tritonhook run`, not those of `enable`: under the latter's
        renaming, kernels are compiled here."""

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def use_process_pool(cls: Any) -> Any:
                if any(session.rewriting_key and not session.reaches_children for session in self.sessions):
                    return False
                return original(cls)

            return use_process_pool

        pool = module.AsyncCompile
        return [_Wrapped(pool, "use_process_pool", wrap)] if hasattr(pool, "use_process_pool") else []

    # --- launching

    def _load_kernel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The static launcher asks the driver for the Python function's name; in a renamed kernel's image only the
        new name exists. The object keeps its own name: that is what Inductor's caches and file names go by."""

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
        """None if a kernel compiled now for Inductor can be launched under another name, else why not."""
        if not self._launches_any_name:
            return "its launcher in this torch is not known to tritonhook"
        return self.may_rewrite()

    def may_rewrite(self) -> str | None:
        """None if a kernel compiled now for Inductor may be changed at all: it must be kept under keys of its own."""
        if _is_compile_worker():
            key, _, launcher = os.environ.get(VARIABLE, "").partition("-")
            parents = [word.partition("=")[2] for word in sys.argv if word.startswith("--parent=")]
            ready = key == self._key and (launcher in parents or not parents)
            return None if ready else "the process that launches them does not rename"
        return None if CODECACHE in self._wrapped else "the key of its graph cache could not be extended"

    def _make_launcher(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def make_launcher(result: Any, *arguments: Any, **named: Any) -> Any:
            launcher = original(result, *arguments, **named)
            try:
                self._read(result, launcher)
            except Exception as error:
                self._contain("a kernel of torch.compile could not be captured", error)
            return launcher

        return make_launcher

    def _read(self, result: Any, launcher: Any) -> None:
        hash, place = str(result.kernel.hash), str(launcher.cache_hash)
        self._hash_of[place] = hash
        trials = getattr(self._trials, "seen", None)
        if trials is not None:
            trials.append(hash)
        unknown = [session for session in self.sessions if not session.knows(hash)]
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
            if session.rewriting_key:
                session.check_renamed(metadata, group)

    # --- autotuning

    def _tune(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        by = "Inductor" if name == "autotune_to_one_config" else "Inductor, coordinate descent"

        def tune(tuner: Any, *arguments: Any, **named: Any) -> Any:
            before = [launcher.cache_hash for launcher in getattr(tuner, "launchers", ())]
            with self._noting_trials() as trials:
                result = original(tuner, *arguments, **named)
            try:
                winner = result if hasattr(result, "cache_hash") else tuner.launchers[0]
                among = [*(self._hash_of[place] for place in before if place in self._hash_of), *trials]
                if len(set(among)) > 1 and winner.cache_hash in self._hash_of:
                    for session in self.sessions:
                        session.tuned(
                            f"{os.getpid()}-{id(tuner)}",
                            by,
                            self._hash_of[winner.cache_hash],
                            tuple(dict.fromkeys(among)),
                        )
            except Exception as error:
                self._contain("the winner of an autotuning is not known", error)
            return result

        return tune

    @contextmanager
    def _noting_trials(self) -> Iterator[list[str]]:
        """Hashes of the kernels that get a launcher meanwhile, in this thread."""
        outer = getattr(self._trials, "seen", None)
        trials: list[str] = []
        self._trials.seen = trials
        try:
            yield trials
        finally:
            self._trials.seen = outer


def _is_loaded(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _is_compile_worker() -> bool:
    """Whether this process is one of Inductor's, which compile and never launch."""
    return Path(getattr(sys.modules.get("__main__"), "__file__", None) or "-").parts[-2:] == _WORKER


def _entry_instead(kernel: Any) -> str | None:
    """The name to look up in place of the kernel's own; None if that is there, or nobody can tell."""
    try:
        path = kernel.cubin_path
        if not path or not str(path).endswith(".cubin"):
            return None
        entry = _entry(Path(path), kernel.name)
        return None if entry == kernel.name else entry
    except Exception:
        return None  # the launcher itself will say what is wrong


def _entry(cubin: Path, own: str | None = None) -> str | None:
    """The kernel in an image: `own` if that is there, else what Triton noted beside it, else the only one. By the
    names of its sections: the program's environment may have no library that reads ELF."""
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
    """What Triton wrote down of the kernel; without that (a bundle of the binary alone) what Inductor knows."""
    from triton.backends.compiler import GPUTarget

    notes = [path for name, path in group.items() if name.endswith(".json")]
    if notes:
        metadata: dict[str, Any] = json.loads(Path(notes[0]).read_text())
        return metadata | {"target": GPUTarget(**metadata["target"])}
    entry = _entry(Path(next(path for name, path in group.items() if name.endswith(".cubin"))))
    if entry is None:
        raise CaptureError(f"{hash[:16]}: Triton's cache has its binary only, and that does not say its name")
    known = {name: meta[name] for name in ("num_warps", "num_stages") if name in meta}
    return {"name": entry, "hash": hash, "target": GPUTarget(meta["device_type"], meta["cc"], 32), **known}


inductor = Inductor()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=inductor.after_fork)
