"""Triton: a listener that reads every kernel, and a stages hook that rewrites PTX when asked to.

Reading goes through `knobs.compilation.listener` and changes nothing. Rewriting goes through
`knobs.runtime.add_stages_inspection_hook`, and only while a session has rewrites. Both slots hold one
object each; what was there before is called and given back.

Triton 3.6.0 does not put the hook into any cache key: a rewritten kernel would be stored under the plain
kernel's key. `_KeyedCaches` closes that hole for it. From 3.7.0 on, Triton asks the hook itself for a key,
at every compile and every launch; ours is a constant.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonhook.errors import CaptureError, TritonHookError
from tritonhook.ptx import Ptx
from tritonhook.rename import Rename, Rewrite, Rewrites, make_rename
from tritonhook.stages import Assembler, Capture, Stage
from tritonhook.store import CaptureFolder, CaptureWriter

DEFAULT_OUT = "tritonhook-captures"
MINIMUM_TRITON = (3, 6)
_STAGES = tuple((stage.value, stage) for stage in Stage)
# Kept in Triton's own metadata of a rewritten kernel, so that a later cache hit still knows.
_META_FROM = "tritonhook_rewritten_from"
_META_NOTE = "tritonhook_note"
_CODE_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ptx_version", "ptx_options")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a session does. `only` is matched against the kernel's own name, with re.search."""

    out: Path
    rewrites: Rewrites = field(default_factory=Rewrites)
    only: str | None = None

    @property
    def key(self) -> str:
        """Names the rewriting; empty if there is none."""
        return f"tritonhook:{self.only or ''}:{self.rewrites.key}" if self.rewrites.steps else ""

    def wants(self, kernel: str) -> bool:
        return self.only is None or re.search(self.only, kernel) is not None


def make_settings(
    out: str | os.PathLike[str] | None = None,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: tuple[Rewrite, ...] | list[Rewrite] = (),
) -> Settings:
    """Settings from what users write. Raises TritonHookError where it does not fit together."""
    step = make_rename(rename, strip)
    steps = (*((step,) if step else ()), *rewrites)
    for rewrite in steps:
        if not isinstance(rewrite, Rewrite):
            raise CaptureError(f"{rewrite!r} is no rewrite: it needs .key and .apply(ptx)")
    try:
        re.compile(only or "")
    except re.error as error:
        raise CaptureError(f"only={only!r} is not a regular expression: {error}") from None
    folder = Path(out if out is not None else os.environ.get("TRITONHOOK_OUT") or DEFAULT_OUT)
    return Settings(folder.absolute(), Rewrites(tuple(steps)), only)


class Session:
    """One capture, from enable to disable. Made by `enable` and `session`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.seen: dict[str, bool] = {}
        self.binary_only: set[str] = set()
        self.crashes: list[Path] = []
        self.notes: list[str] = []
        self._reported: set[tuple[object, ...]] = set()
        self._lock = threading.Lock()
        self._writer = CaptureWriter(settings.out, {"triton": _triton_version()})
        self._listener = _Listener(self)
        self._hook = _StagesHook(self) if settings.rewrites.steps else None

    @property
    def out(self) -> Path:
        return self.settings.out

    @property
    def kernels(self) -> tuple[str, ...]:
        """Records of the kernels this session met, in order."""
        return tuple(self.seen)

    @property
    def from_cache(self) -> int:
        """How many of them came from Triton's disk cache."""
        return sum(self.seen.values())

    @property
    def captures(self) -> tuple[Capture, ...]:
        """The kernels this session met, read from the capture folder."""
        folder = CaptureFolder.open(self.out)
        return tuple(replace(folder.capture(record), cache_hit=hit) for record, hit in self.seen.items())

    @property
    def summary(self) -> str:
        """One short paragraph: how many kernels, how many from cache, where they lie, what went wrong."""
        lines = [
            f"tritonhook: {_plural(len(self.seen), 'kernel')} seen, {self.from_cache} from cache; "
            f"captures in {self.out}"
        ]
        if self.binary_only:
            lines.append(
                f"  {len(self.binary_only)} from a binary-only cache (TRITON_STORE_BINARY_ONLY): "
                "the cubin is all there is"
            )
        if not self.seen:
            lines.append("  no kernel was compiled or loaded from cache while tritonhook was enabled")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def install(self) -> None:
        self._listener.install()
        if self._hook is not None:
            self._hook.install()

    def uninstall(self) -> None:
        if self._hook is not None and (holder := self._hook.uninstall()) is not None:
            self.note(
                f"the stages hook was taken meanwhile (now: {holder}); unless that calls the hook before it, "
                "kernels compiled since then keep their own names"
            )
        if (holder := self._listener.uninstall()) is not None:
            self.note(
                f"the listener slot was taken meanwhile (now: {holder}); unless that calls the listener before it, "
                "kernels compiled since then are missing"
            )
        try:
            self._writer.close(self.notes)
        except OSError as error:
            self.contain("the capture index could not be finished", error)

    def note(self, sentence: str) -> None:
        """Keep a sentence for the summary, once."""
        with self._lock:
            if sentence not in self.notes:
                self.notes.append(sentence)

    def contain(self, doing: str, error: BaseException) -> None:
        """Report an error of our own, of each kind the first one; the user's compile goes on."""
        kind = (doing, type(error), getattr(error, "errno", str(error)))  # a full disk is one error, not one per file
        with self._lock:
            if kind in self._reported:
                return
            self._reported.add(kind)
        sentence = f"{doing}: {error if isinstance(error, TritonHookError) else f'{type(error).__name__}: {error}'}"
        self.note(sentence)
        print(f"tritonhook: {sentence}", file=sys.stderr)

    # --- reading

    def read(self, metadata: Mapping[str, Any], group: Mapping[str, str], cache_hit: bool) -> None:
        """Keep one kernel that Triton compiled or loaded from its disk cache."""
        kernel = str(metadata["name"])
        origin = metadata.get(_META_FROM)
        if not self.settings.wants(str(origin or kernel)):
            return
        paths = {name.rpartition(".")[2]: path for name, path in group.items()}
        files = {stage: paths[ending] for ending, stage in _STAGES if ending in paths}
        if (record := self._writer.known(kernel, str(metadata["hash"]), files)) is None:
            capture = _describe(kernel, metadata, files, cache_hit, origin)
            record = self._writer.add_files(capture, files)
            if capture.binary_only:
                self.binary_only.add(record)
        self.seen.setdefault(record, cache_hit)

    # --- rewriting

    def rewrite(self, text: str, own_name: str | None = None) -> tuple[str, str, str] | None:
        """The rewritten PTX with the kernel's own and its new name; None if nothing is to change.

        own_name: where a session around this one has renamed it already.
        """
        ptx = Ptx(text)
        own = own_name or ptx.only_entry()
        if not self.settings.wants(own):
            return None
        if _compiled_by_inductor():
            self.note(f"{own}: torch.compile looks its kernels up by their own name; they keep it")
            return None
        new = self.settings.rewrites.apply(ptx)
        return None if new is ptx else (new.text, own, new.only_entry())

    def keep_crash(self, name: str, text: str, assembler: Assembler, message: str) -> None:
        """ptxas failed under the new name: keep PTX, command line and signal."""
        from tritonhook import toolchain

        details: dict[str, Any] = {"triton_message": message}
        version = assembler.version or "(unknown version)"
        sentence = f"ptxas {version} failed on {name}"
        if assembler.path and assembler.arguments is not None:
            tool = toolchain.Tool(Path(assembler.path), version, "Triton")
            crash = toolchain.assemble(tool, Ptx(text), assembler.arguments)
            if isinstance(crash, toolchain.Crash):
                details |= {"signal": crash.signal, "returncode": crash.returncode}
                details |= {"command": crash.command, "stderr": crash.stderr, "ptxas": version}
                sentence = f"{crash.summary} on {name}"
        folder = self._writer.add_crash(name, text, details)
        self.crashes.append(folder)
        self.note(f"{sentence}; the kernel keeps its own name, the PTX is in {folder}")


def _compiled_by_inductor() -> bool:
    """Whether torch.compile's Inductor asked for this compile. Its static launcher looks a kernel up by the
    Python function's name (torch/_inductor/runtime/static_triton_launcher.py), so that a rename would end in
    a symbol that is not found."""
    frame = sys._getframe(1) if "torch._inductor" in sys.modules else None
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("torch._inductor."):
            return True
        frame = frame.f_back
    return False


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _triton_version() -> str:
    import triton

    return str(triton.__version__)


def _check_triton() -> None:
    try:
        version = _triton_version()
    except ImportError:
        raise CaptureError("triton is not installed in this Python; `pip install 'triton>=3.6'`") from None
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < MINIMUM_TRITON:
        raise CaptureError(f"triton {version} has no hook to rewrite kernels; tritonhook needs triton 3.6 or newer")


def _describe(
    kernel: str, metadata: Mapping[str, Any], files: Mapping[Stage, str], cache_hit: bool, origin: str | None
) -> Capture:
    values = {name: _plain(value) for name, value in metadata.items()}
    target = metadata["target"]
    is_cuda = target.backend == "cuda"
    only_binary = bool(files) and all(stage.is_binary for stage in files)
    return Capture(
        kernel=kernel,
        hash=str(metadata["hash"]),
        arch=_arch(target.arch) if is_cuda else str(target.arch),
        artifacts=dict.fromkeys(files, ""),
        assembler=_assembler(target.arch, metadata) if is_cuda else Assembler(),
        options=_options(metadata),
        metadata=values,
        cache_hit=cache_hit,
        rewritten_from=origin,
        note=metadata.get(_META_NOTE)
        or ("Triton's cache held the binary only (TRITON_STORE_BINARY_ONLY)" if only_binary else None),
    )


def _plain(value: Any) -> Any:
    """A JSON value for one of Triton's metadata values."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return {n: _plain(v) for n, v in vars(value).items()} if hasattr(value, "__dict__") else str(value)


def _options(metadata: Mapping[str, Any]) -> dict[str, Any]:
    from triton import knobs

    return {
        "fp_fusion": metadata.get("enable_fp_fusion"),
        "line_info": not knobs.compilation.disable_line_info,
        "ptxas_optimises": not knobs.nvidia.disable_ptxas_opt,
        **{name: metadata[name] for name in _CODE_OPTIONS if name in metadata},
    }


def _arch(capability: int) -> str:
    # As Triton's sm_arch_from_capability: it uses the "a" variant from Hopper on.
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def _assembler(arch: int, options: Mapping[str, Any]) -> Assembler:
    """The ptxas Triton uses for this target, with the arguments its make_cubin gives it.

    Triton keeps no record of the command line, so that it is rebuilt here as make_cubin builds it; a test
    assembles each capture again and compares the bytes.
    """
    from triton import knobs
    from triton.backends.nvidia import compiler as backend

    arguments: list[str] = []
    if knobs.compilation.disable_line_info:
        arguments += ["-lineinfo", "-suppress-debug-info"]
    elif knobs.nvidia.disable_ptxas_opt:
        arguments += ["-g"]
    else:
        arguments += ["-lineinfo"]
    arguments += [] if options.get("enable_fp_fusion") else ["--fmad=false"]
    arguments += ["-v"]
    arguments += ["--opt-level", "0"] if knobs.nvidia.disable_ptxas_opt else []
    arguments += ["--regAllocOptLevel=2"] if _release() >= (3, 7) else []
    arguments += options["ptx_options"].split(" ") if options.get("ptx_options") else []
    modes = str(options.get("instrumentation_mode"))
    if _release() >= (3, 8) and ("consan" in modes or "fpsan" in modes) and not knobs.nvidia.disable_ptxas_opt:
        arguments += ["--opt-level", "1"]
    arguments += [f"--gpu-name={_arch(arch)}"]
    version = re.search(r"\bV(\d+\.\d+\.\d+)", backend.get_ptxas_version(arch))
    return Assembler(backend.get_ptxas(arch).path, version[1] if version else None, tuple(arguments))


@functools.lru_cache(maxsize=1)
def _release() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", _triton_version())[:2])


# --- slots ---------------------------------------------------------------------------------------


class _Slot:
    """An object in one of Triton's single hook slots, with what was there before.

    After uninstall it is dead: it only passes calls on. A dead one that another tool put back into the
    slot takes itself out at the next call.
    """

    name: str

    def __init__(self, session: Session) -> None:
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
        while isinstance(below, _Slot) and not below.alive:
            below = below.previous
        setattr(self._group(), self.name, below)

    def uninstall(self) -> str | None:
        """Restore the slot. Returns who holds it instead, if another tool took it without giving it back."""
        self.alive = False
        holder = getattr(self._group(), self.name)
        if holder is self:
            self._restore()
            return None
        while isinstance(holder, _Slot):
            holder = holder.previous
            if holder is self:
                return None
        return _holder(holder)

    def _leave_if_dead(self) -> None:
        if not self.alive and getattr(self._group(), self.name) is self:
            self._restore()


class _Listener(_Slot):
    """In `knobs.compilation.listener`: called at the end of triton.compile, on a miss and on a hit."""

    name = "listener"

    def _group(self) -> Any:
        from triton import knobs

        return knobs.compilation

    def __call__(self, **event: Any) -> None:
        if self.alive:
            try:
                self.session.read(event["metadata"], event["metadata_group"], bool(event["cache_hit"]))
            except Exception as error:
                self.session.contain("a kernel could not be captured", error)
        else:
            self._leave_if_dead()
        if self.previous is not None:
            self.previous(**event)


class _StagesHook(_Slot):
    """In `knobs.runtime.add_stages_inspection_hook`.

    Called with arguments to change the stages of one compile, and from Triton 3.7 on without any, at every
    compile and launch, for the (key, hash) that goes into Triton's cache keys.
    """

    name = "add_stages_inspection_hook"

    def __init__(self, session: Session) -> None:
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
        """The cache key of the compile that this thread begins has our key in it."""
        self._compiles.keyed = True

    def _is_keyed(self) -> bool:
        """Whether this thread's compile has our key: it may have begun before we were installed."""
        keyed = getattr(self._compiles, "keyed", False)
        self._compiles.keyed = False
        if not keyed:
            self.session.note("a kernel whose compile began before tritonhook was enabled keeps its own name")
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
                self._wrap(backend, stages, options)
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

    def _wrap(self, backend: Any, stages: dict[str, Any], options: Any) -> None:
        """Rename at the end of the ptx stage, and assemble there, so that a name ptxas cannot take is
        never seen by the rest of the pipeline: the PTX and the cubin in the cache always belong together."""
        make_ptx, make_cubin = stages["ptx"], stages["cubin"]
        made: dict[str, bytes] = {}

        def ptx(source: Any, metadata: dict[str, Any]) -> Any:
            text = make_ptx(source, metadata)
            try:
                rewritten = self.session.rewrite(text, metadata.get(_META_FROM))
            except Exception as error:
                self.session.contain(f"{metadata.get('name')} keeps its own name", error)
                metadata[_META_NOTE] = f"not renamed: {error}"
                return text
            if rewritten is None:
                return text
            new_text, own, new = rewritten
            trial = dict(metadata)
            cubin = self._try(make_cubin, new_text, new, trial, backend, options)
            if cubin is None:
                metadata[_META_NOTE] = f"not renamed: ptxas failed under the name {new}"
                return text
            made[new_text] = cubin
            metadata.update(trial, **{"name": new, _META_FROM: own})
            return new_text

        def cubin(source: Any, metadata: dict[str, Any]) -> Any:
            if source in made:
                return made[source]
            if made:
                # Something replaced the PTX after us (TRITON_KERNEL_OVERRIDE, say): its name counts.
                metadata.pop(_META_FROM, None)
                metadata["name"] = Ptx(source).only_entry()
            return make_cubin(source, metadata)

        stages["ptx"], stages["cubin"] = ptx, cubin

    def _try(
        self, make_cubin: Callable[..., bytes], text: str, name: str, metadata: Any, backend: Any, options: Any
    ) -> bytes | None:
        """The cubin under the new name; None if ptxas makes none. Other errors are the caller's."""
        from triton.runtime.errors import PTXASError

        try:
            with _muted_threads.mute():  # Triton prints the whole PTX when ptxas fails; here that is handled
                return make_cubin(text, metadata)
        except PTXASError as error:
            try:
                assembler = _assembler(backend.target.arch, vars(options))
                self.session.keep_crash(name, text, assembler, str(error))
            except Exception as ours:
                self.session.contain(f"the ptxas crash on {name} could not be kept", ours)
            return None


def _finish_compiles_in_flight() -> None:
    """Compiles that AsyncCompileMode started under the old settings end under them."""
    from concurrent.futures import wait

    from triton.runtime import _async_compile

    mode = _async_compile.active_mode.get()
    if mode is not None:
        wait(list(mode.raw_futures))


class _KeyedCaches:
    """Makes rewriting part of the cache keys that Triton itself leaves it out of.

    Triton 3.6: the disk key and the in-memory key. Every version: the key by which AsyncCompileMode merges
    compiles in flight. The functions are wrapped only while a session rewrites, and put back afterwards.
    """

    def __init__(self) -> None:
        self.hooks: list[_StagesHook] = []
        self._key = ""
        self._runtime: Any = None
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def add(self, hook: _StagesHook) -> None:
        self.hooks.append(hook)
        self._key = "".join(hook.key[1] for hook in self.hooks)
        if not self._wrapped:
            self._install()

    def remove(self, hook: _StagesHook) -> None:
        if hook in self.hooks:
            self.hooks.remove(hook)
        self._key = "".join(hook.key[1] for hook in self.hooks)
        if not self.hooks:
            for module, name, original, keyed in reversed(self._wrapped):
                if getattr(module, name) is keyed:  # else someone wrapped us: with no hooks we only pass on
                    setattr(module, name, original)
            self._wrapped = []

    @property
    def key(self) -> str:
        """Names the rewriting in effect; a user's `knobs.runtime.scope()` can empty the slot."""
        return "" if self._runtime.add_stages_inspection_hook is None else self._key

    def _install(self) -> None:
        from triton import knobs
        from triton.compiler import compiler
        from triton.runtime import jit

        self._runtime = knobs.runtime
        self._wrap(jit, "get_cache_key")
        if _release() < (3, 7):
            self._wrap(compiler, "get_cache_key", begins_compile=True)
            self._wrap(jit, "compute_cache_key")

    def _wrap(self, module: Any, name: str, begins_compile: bool = False) -> None:
        original = getattr(module, name)

        def keyed(*arguments: Any, **named: Any) -> str:
            if begins_compile:
                for hook in self.hooks:
                    hook.joined_the_key()
            return original(*arguments, **named) + self.key  # type: ignore[no-any-return]  # every launch, in 3.6

        self._wrapped.append((module, name, original, keyed))
        setattr(module, name, keyed)


_keyed_caches = _KeyedCaches()


class _MutedThreads:
    """Stands in for sys.stdout while at least one thread is muted; other threads print as before."""

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


_muted_threads = _MutedThreads()


# --- the public functions ------------------------------------------------------------------------

_enabled: Session | None = None


def enable(
    out: str | os.PathLike[str] | None = None,
    *,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: tuple[Rewrite, ...] | list[Rewrite] = (),
) -> Session:
    """Capture every kernel Triton compiles or loads from its cache, until `disable` or the end of the process.

    out: folder for captures (default: $TRITONHOOK_OUT, else ./tritonhook-captures).
    rename: a prefix such as "cutlass_", a mapping of old to new names, or a Rename. Off by default.
    strip: True removes "cutlass" from names that have it; a string removes that word.
    only: regular expression; kernels whose own name it does not match are neither kept nor renamed.
    rewrites: further rewrites, applied in order after the rename.

    Calling it again replaces the settings. Raises TritonHookError if triton is missing or older than 3.6,
    the folder cannot be written, or the arguments do not fit together; then nothing has changed.
    """
    global _enabled
    _check_triton()
    session = Session(make_settings(out, rename, strip, only, rewrites))
    if _enabled is not None:
        _enabled.uninstall()
    else:
        atexit.register(_at_exit)
    session.install()
    _enabled = session
    return session


def disable() -> Session | None:
    """End what `enable` began; the slots go back to whoever held them. Returns the session, for its results."""
    global _enabled
    session, _enabled = _enabled, None
    if session is not None:
        session.uninstall()
        atexit.unregister(_at_exit)
    return session


@contextlib.contextmanager
def session(
    out: str | os.PathLike[str] | None = None,
    *,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: tuple[Rewrite, ...] | list[Rewrite] = (),
) -> Iterator[Session]:
    """As `enable`, for the length of a `with` block. Sessions may be nested; the inner rewrites last."""
    _check_triton()
    current = Session(make_settings(out, rename, strip, only, rewrites))
    current.install()
    try:
        yield current
    finally:
        current.uninstall()


def enabled_session() -> Session | None:
    """The session that `enable` began, if any."""
    return _enabled


def _at_exit() -> None:
    session = disable()
    if session is not None and not os.environ.get("TRITONHOOK_QUIET"):
        print(session.summary, file=sys.stderr)


def status() -> dict[str, str]:
    """Who holds each of Triton's hook slots in this process, by slot; chains are followed through us."""
    from triton import knobs

    slots = {
        "compilation.listener": knobs.compilation.listener,
        "runtime.add_stages_inspection_hook": knobs.runtime.add_stages_inspection_hook,
        "runtime.jit_cache_hook": knobs.runtime.jit_cache_hook,
        "runtime.jit_post_compile_hook": knobs.runtime.jit_post_compile_hook,
        "runtime.launch_enter_hook": knobs.runtime.launch_enter_hook,
        "runtime.launch_exit_hook": knobs.runtime.launch_exit_hook,
    }
    if hasattr(knobs.autotuning, "listener"):  # since Triton 3.8
        slots["autotuning.listener"] = knobs.autotuning.listener
    return {name: _holder(value) for name, value in slots.items()}


def _holder(value: Any) -> str:
    if value is None:
        return "free"
    if isinstance(value, _Slot):
        behind = "" if value.previous is None else f", then {_holder(value.previous)}"
        return f"tritonhook{'' if value.alive else ' (ended)'}{behind}"
    calls = getattr(value, "calls", None)
    if isinstance(calls, list):
        return ", ".join(_holder(call) for call in calls) or "free"
    owner = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', type(value).__module__)}.{owner}"
