"""Capturing and rewriting in a Triton program: sessions, from enable to disable.

A session decides and keeps; the objects in Triton's hook slots are triton_slots.py's, the files store.py's.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonhook.capture.cute import hooks as cute
from tritonhook.capture.inductor import inductor
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.launches.recorder import SHAPES, VALUES, Contents, recorder
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureFolder, CaptureWriter, seen_sentence
from tritonhook.capture.triton.autotuner import autotuning
from tritonhook.capture.triton.hooks import Listener, StagesHook, holder_name
from tritonhook.capture.triton.metadata import META_FROM, META_NOTE, capture_of, check_triton, triton_version
from tritonhook.errors import CaptureError, TritonHookError
from tritonhook.ptx.cta_loads import NAME as TMA_CTA
from tritonhook.ptx.cta_loads import ClusterToCta
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rename, Rewrite, Rewrites, make_rename

DEFAULT_OUT = "tritonhook-captures"
FIXES: Mapping[str, Rewrite] = {TMA_CTA: ClusterToCta()}  # rewrites that users call by name
_FROM_TORCH_CACHE = "came from torch.compile's caches or workers under their own names"
_STAGES = tuple((stage.value, stage) for stage in Stage)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a session does. `only` is matched against the kernel's own name, with re.search. launches: what to keep
    of each kind of launch, "shapes" or "values"; None: launches are not looked at."""

    out: Path
    rewrites: Rewrites = field(default_factory=Rewrites)
    only: str | None = None
    launches: str | None = None

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
    rewrites: Rewrite | str | Sequence[Rewrite | str] = (),
    launches: bool | str | None = None,
) -> Settings:
    """Settings from what users write. Raises TritonHookError where it does not fit together."""
    if launches not in (None, True, False, SHAPES, VALUES):
        raise CaptureError(f"launches={launches!r}: give True or {VALUES!r}")
    step = make_rename(rename, strip)
    steps = (*((step,) if step else ()), *_as_rewrites(rewrites))
    _check_only(only)
    folder = _out_folder(os.environ.get("TRITONHOOK_OUT") or DEFAULT_OUT if out is None else out)
    wanted = launches if isinstance(launches, str) else SHAPES if launches else None
    return Settings(folder.absolute(), Rewrites(steps), only, wanted)


def _as_rewrites(given: object) -> tuple[Rewrite, ...]:
    """The user's `rewrites=`: one or several, by name or as objects."""
    several = isinstance(given, Iterable) and not isinstance(given, (Rewrite, str))
    named: tuple[Any, ...] = tuple(given) if several else (given,)  # type: ignore[arg-type]
    if unknown := [name for name in named if isinstance(name, str) and name not in FIXES]:
        raise CaptureError(f"rewrites={unknown[0]!r}: no rewrite of that name; there is: {', '.join(FIXES)}")
    rewrites = tuple(FIXES[item] if isinstance(item, str) else item for item in named)
    for rewrite in rewrites:
        if not isinstance(rewrite, Rewrite) or not isinstance(rewrite.key, str):
            raise CaptureError(f"{rewrite!r} is no rewrite: it needs .key (a text) and .apply(ptx)")
    return rewrites


def _check_only(only: object) -> None:
    if not isinstance(only, (str, type(None))):
        raise CaptureError(f"only={only!r}: give a regular expression as text, e.g. only='attn'")
    try:
        re.compile(only or "")
    except re.error as error:
        raise CaptureError(f"only={only!r} is not a regular expression: {error}") from None


def _out_folder(out: object) -> Path:
    """The user's `out=`. Empty text would fill the current folder, which hardly anyone means."""
    if not isinstance(out, (str, os.PathLike)) or not isinstance(path := os.fspath(out), str):
        raise CaptureError(f"out={out!r}: give the folder as text or a Path, e.g. out='captures'")
    if not path or "\0" in path:
        raise CaptureError(f"out={out!r} names no folder; give one, e.g. out='captures' (out='.' is the current one)")
    return Path(path)


class Session:
    """One capture, from enable to disable. Made by `enable` and `session`."""

    def __init__(self, settings: Settings, front_ends: Sequence[str] = ("triton",)) -> None:
        self.settings = settings
        self.front_ends = front_ends
        self.seen: dict[str, bool] = {}
        self.binary_only: set[str] = set()
        self.crashes: list[Path] = []
        self.notes: list[str] = []
        self.reaches_children = False
        self._records: dict[str, str] = {}  # by Triton's hash
        self._launched: dict[tuple[str, str], int] = {}  # by record and the launch's key
        self._unrenamed: set[str] = set()
        self._reported: set[tuple[object, ...]] = set()
        self._lock = threading.Lock()
        with_triton = "triton" in front_ends
        self._writer = CaptureWriter(settings.out, {"triton": triton_version()} if with_triton else None)
        self._listener = Listener(self) if with_triton else None
        self._hook = StagesHook(self) if with_triton and settings.rewrites.steps else None

    def carry_over(self, earlier: Session) -> None:
        """Take over what an ended session saw, as if it had been this one."""
        self.seen = dict(earlier.seen)
        self.binary_only = set(earlier.binary_only)
        self.crashes = list(earlier.crashes)
        self.notes = list(earlier.notes)

    @property
    def out(self) -> Path:
        return self.settings.out

    @property
    def rewriting_key(self) -> str:
        return self.settings.key

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
        lines = [seen_sentence(len(self.seen), self.from_cache, self.out)]
        if self.binary_only:
            lines.append(
                f"  {len(self.binary_only)} from a binary-only cache (TRITON_STORE_BINARY_ONLY): "
                "the cubin is all there is"
            )
        if not self.seen:
            lines.append("  no kernel was compiled or loaded from cache while tritonhook was enabled")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def install(self) -> None:
        if self._listener is not None:
            self._listener.install()
        if self._hook is not None:
            self._hook.install()
        if self._listener is not None:
            autotuning.attach(self)
            inductor.attach(self)
            if self.settings.launches:
                recorder.attach(self)
        if cute.FRONT_END in self.front_ends:
            cute.attach(self)

    def uninstall(self) -> None:
        self.leave()
        try:
            if self._launched:
                self._writer.add_launch_counts(self._launched)
            self._writer.close(self.notes)
        except OSError as error:
            self.contain("the capture index could not be finished", error)

    def leave(self) -> None:
        """Give the slots back; `install` takes them again."""
        cute.detach(self)
        if self._listener is not None:
            recorder.detach(self)
            inductor.detach(self)
            autotuning.detach(self)
        if self._hook is not None and (holder := self._hook.uninstall()) is not None:
            self.note(
                f"the stages hook was taken meanwhile (now: {holder}); unless that calls the hook before it, "
                "kernels compiled since then keep their own names"
            )
        if self._listener is not None and (holder := self._listener.uninstall()) is not None:
            self.note(
                f"the listener slot was taken meanwhile (now: {holder}); unless that calls the listener before it, "
                "kernels compiled since then are missing"
            )

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

    def read(
        self,
        metadata: Mapping[str, Any],
        group: Mapping[str, str],
        cache_hit: bool,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep one kernel that Triton compiled or loaded from its disk cache. `constants`: its constexprs."""
        autotuning.met(str(metadata["hash"]))
        kernel = str(metadata["name"])
        origin = metadata.get(META_FROM)
        if not self.settings.wants(str(origin or kernel)):
            return
        paths = {name.rpartition(".")[2]: path for name, path in group.items()}
        files = {stage: paths[ending] for ending, stage in _STAGES if ending in paths}
        if (record := self._writer.known(kernel, str(metadata["hash"]), files)) is None:
            capture = capture_of(kernel, metadata, files, cache_hit, origin, constants)
            record = self._writer.add_files(capture, files)
            if capture.binary_only:
                self.binary_only.add(record)
        self.seen.setdefault(record, cache_hit)
        self._records[str(metadata["hash"])] = record
        if self.settings.launches:
            recorder.look_again()

    def knows(self, hash: str) -> bool:
        """Whether the kernel with this hash of Triton's was kept."""
        return hash in self._records

    def tuned(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None:
        """An autotuner chose a kernel. All are named by Triton's hash; `tuning` names the choice in this process."""
        if winner in self._records:
            tried = [self._records[hash] for hash in among if hash in self._records]
            try:
                self._writer.add_tuning(tuning, by, self._records[winner], list(dict.fromkeys(tried)))
            except OSError as error:
                self.contain("the winner of an autotuning could not be kept", error)

    def keep(self, capture: Capture, files: Mapping[Stage, str]) -> str:
        """Keep one kernel of another front end; returns its record."""
        record = self._writer.add_files(capture, files)
        self.seen.setdefault(record, bool(capture.cache_hit))
        return record

    def has_ptx(self, record: str) -> bool:
        """Whether a record has PTX, perhaps from an earlier run."""
        return any((self.out / "kernels" / record).glob("*.ptx"))

    # --- launches

    @property
    def launches(self) -> str | None:
        return self.settings.launches

    def record_of(self, hash: str) -> str | None:
        """The record of the kernel with this hash of Triton's; None if it was not kept."""
        return self._records.get(hash)

    def keep_launch(self, record: str, launch: Launch, contents: Contents) -> None:
        """Keep a kind of launch when it is first met, and count it."""
        kind = (record, launch.key)
        self._launched[kind] = self._launched.get(kind, 0) + 1
        if self._launched[kind] == 1:
            self._writer.add_launch(record, launch, contents())

    # --- rewriting

    def rewrite(self, text: str, own_name: str | None = None) -> tuple[str, str, str] | None:
        """The rewritten PTX with the kernel's own and its new name; None if nothing is to change.

        own_name: where a session around this one has renamed it already.
        """
        ptx = Ptx(text)
        own = own_name or ptx.only_entry()
        if not self.settings.wants(own):
            return None
        rewrites = self.settings.rewrites
        if _compiled_by_inductor():
            renames = rewrites.without_renames != rewrites
            if (reason := inductor.may_rename() if renames else inductor.may_rewrite()) is not None:
                what = "keep their own names" if renames else "stay as they are"
                self.note(f"kernels of torch.compile {what}: {reason}")
                rewrites = rewrites.without_renames
            if not rewrites.steps or inductor.may_rewrite() is not None:
                return None
        new = rewrites.apply(ptx)
        for remark in rewrites.remarks(ptx):
            self.note(remark)
        return None if new is ptx else (new.text, own, new.only_entry())

    def check_renamed(self, metadata: Mapping[str, Any], group: Mapping[str, str]) -> None:
        """Say so if torch.compile took a kernel from its caches under a name that this session would change."""
        own, ptx = str(metadata["name"]), next((path for name, path in group.items() if name.endswith(".ptx")), None)
        if META_FROM in metadata or META_NOTE in metadata or ptx is None or not self.settings.wants(own):
            return
        plain = Ptx(Path(ptx).read_text())
        if self.settings.rewrites.apply(plain) is not plain:
            self._unrenamed.add(own)
            with self._lock:
                self.notes = [note for note in self.notes if not note.endswith(_FROM_TORCH_CACHE)]
            kernels = f"{len(self._unrenamed)} kernel{'' if len(self._unrenamed) == 1 else 's'}"
            self.note(f"{kernels} {_FROM_TORCH_CACHE}")

    def keep_crash(self, name: str, text: str, assembler: Assembler, message: str) -> None:
        """ptxas failed under the new name: keep PTX, command line and signal."""
        from tritonhook.ptxas.assembler import Crash, assemble
        from tritonhook.ptxas.tool import Tool

        details: dict[str, Any] = {"triton_message": message}
        version = assembler.version or "(unknown version)"
        sentence = f"ptxas {version} failed on {name}"
        if assembler.path and assembler.arguments is not None:
            tool = Tool(Path(assembler.path), version, "Triton")
            crash = assemble(tool, Ptx(text), assembler.arguments)
            if isinstance(crash, Crash):
                details |= {"signal": crash.signal, "returncode": crash.returncode}
                details |= {"command": crash.command, "stderr": crash.stderr, "ptxas": version}
                sentence = f"{crash.summary} on {name}"
        folder = self._writer.add_crash(name, text, details)
        self.crashes.append(folder)
        self.note(f"{sentence}; the kernel keeps its own name, the PTX is in {folder}")


def _compiled_by_inductor() -> bool:
    """Whether torch.compile's Inductor asked for this compile. Its static launcher looks a kernel up by the
    Python function's name (torch/_inductor/runtime/static_triton_launcher.py)."""
    frame = sys._getframe(1) if "torch._inductor" in sys.modules else None
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("torch._inductor."):
            return True
        frame = frame.f_back
    return False


# --- the public functions ------------------------------------------------------------------------

_enabled: Session | None = None


def enable(
    out: str | os.PathLike[str] | None = None,
    *,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: Rewrite | str | Sequence[Rewrite | str] = (),
    launches: bool | str = False,
) -> Session:
    """Capture every kernel Triton compiles or loads from its cache, until `disable` or the end of the process.

    out: folder for captures (default: $TRITONHOOK_OUT, else ./tritonhook-captures).
    rename: a prefix such as "cutlass_", a mapping of old to new names, or a Rename. Off by default.
    strip: True removes "cutlass" from names that have it; a string removes that word.
    only: regular expression; kernels whose own name it does not match are neither kept nor renamed.
    rewrites: a further rewrite, or several, applied in order after the rename; "tma-cta" names ClusterToCta.
    launches: record how kernels are launched, for `tritonhook ab` to launch them again; "values" keeps the contents of
    all buffers, not of integer ones only. Costs some 0.1 ms per launch, and reads buffers back; nothing if not given.

    A summary is printed at exit, on standard error, unless TRITONHOOK_QUIET is set. Calling it again replaces
    the settings. With the same folder the new session carries on what the old one saw; with another folder
    the old one's summary is printed then.

    Under `tritonhook run` it replaces nothing: the run keeps its own session around the whole program, and
    both capture. If both rename, the run does so first: with --prefix a_ and rename="b_" `add` becomes
    `b_a_add`. `disable` ends only what `enable` began.

    Raises TritonHookError if there is neither a Triton 3.6 or newer nor a CuTe DSL, the folder cannot be written,
    or the arguments do not fit together; then nothing has changed.
    """
    global _enabled
    session = new_session(make_settings(out, rename, strip, only, rewrites, launches))
    if _enabled is not None:
        _replace(_enabled, session)
    else:
        atexit.register(_at_exit)
    session.install()
    _enabled = session
    return session


def _replace(old: Session, new: Session) -> None:
    old.uninstall()
    if old.out == new.out:
        new.carry_over(old)
    else:
        _print_summary(old)


def disable() -> Session | None:
    """End what `enable` began; the slots go back to whoever held them. Returns the session, for its results."""
    global _enabled
    session, _enabled = _enabled, None
    if session is not None:
        session.uninstall()
        atexit.unregister(_at_exit)
    return session


def new_session(settings: Settings) -> Session:
    """A session, not installed yet, for every front end there is."""
    session = Session(settings, _front_ends())
    if "triton" not in session.front_ends and importlib.util.find_spec("triton") is not None:
        try:
            check_triton()
        except CaptureError as error:
            session.contain("only CuTe kernels are captured", error)
    return session


def _front_ends() -> tuple[str, ...]:
    """What there is to listen to. Raises CaptureError if that is nothing."""
    try:
        check_triton()
    except CaptureError:
        if not cute.is_installed():
            raise
        return (cute.FRONT_END,)
    return ("triton", cute.FRONT_END)


def begin_run(
    out: str,
    rename: Rename | None,
    only: str | None,
    front_end: str = "triton",
    *,
    rewrites: Sequence[Rewrite | str] = (),
    launches: str | None = None,
) -> Session:
    """The session of `tritonhook run`, around all that the program itself begins, until the process ends.

    It prints no summary: the command reports on the folder when all processes are done.
    """
    if front_end == "triton":
        check_triton()
    session = Session(make_settings(out, rename, only=only, rewrites=rewrites, launches=launches), (front_end,))
    session.reaches_children = True
    session.install()
    atexit.register(session.uninstall)
    return session


@contextlib.contextmanager
def session(
    out: str | os.PathLike[str] | None = None,
    *,
    rename: str | Mapping[str, str] | Rename | None = None,
    strip: bool | str = False,
    only: str | None = None,
    rewrites: Rewrite | str | Sequence[Rewrite | str] = (),
    launches: bool | str = False,
) -> Iterator[Session]:
    """As `enable`, for the length of a `with` block. Sessions may be nested; the inner rewrites last."""
    current = new_session(make_settings(out, rename, strip, only, rewrites, launches))
    current.install()
    try:
        yield current
    finally:
        current.uninstall()


def enabled_session() -> Session | None:
    """The session that `enable` began, if any. That of `tritonhook run` is not meant."""
    return _enabled


def _at_exit() -> None:
    session = disable()
    if session is not None:
        _print_summary(session)


def _print_summary(session: Session) -> None:
    if not os.environ.get("TRITONHOOK_QUIET"):
        print(session.summary, file=sys.stderr)


def status() -> dict[str, str]:
    """Who holds each of Triton's hook slots in this process, by slot; chains are followed through us. Then the CuTe
    DSL's methods that are wrapped, which is all there is where triton is not installed or too old."""
    if "triton" not in _front_ends():
        return cute.holders()
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
    return {name: holder_name(value) for name, value in slots.items()} | cute.holders()
