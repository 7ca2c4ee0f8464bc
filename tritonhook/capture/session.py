"""Session: one capture, from its beginning to its end. It decides which kernels are kept and rewritten, and collects
results for its summary.

The hooks that call a session are in `triton`, `inductor`, `cute` and `launches`. `store` writes its files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from tritonhook._display import Notebook
from tritonhook._util.locks import ForkLock, lock_that_forks_wait_for
from tritonhook._util.text import say
from tritonhook.capture import store
from tritonhook.capture.chosen_ptxas import tool_of
from tritonhook.capture.cute import state as cute
from tritonhook.capture.dry_run.gpu import notes as dry_run_notes
from tritonhook.capture.inductor import inductor
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.launches.recorder import recorder
from tritonhook.capture.model import META_DRY_RUN, Assembler, Capture, Stage
from tritonhook.capture.observers import Contents, Rewritten
from tritonhook.capture.policy.model import Entry, Policy, stem
from tritonhook.capture.settings import Settings, names_of_rewrites
from tritonhook.capture.store.writer import CaptureWriter
from tritonhook.capture.triton.autotuner import autotuning
from tritonhook.capture.triton.listener import listening
from tritonhook.capture.triton.metadata import META_FROM, META_KEYS, capture_of, triton_version
from tritonhook.capture.triton.pinning import pinning
from tritonhook.capture.triton.rejected import rejecting
from tritonhook.capture.triton.rewriting import digest, rewriting
from tritonhook.errors import CaptureError, PtxError, TritonHookError
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rewrites

changing = lock_that_forks_wait_for()  # held while sessions begin and end
_MOST_NAMED = 5  # kernels in one note
_STAGES = tuple((stage.value, stage) for stage in Stage)


def seen_text(kernels: int, from_cache: int, out: Path) -> str:
    """Format the number of kernels in a session or a run, for the first line of its summary."""
    return f"{kernels} kernel{'' if kernels == 1 else 's'} seen, {from_cache} from cache; captures in {out}"


# A function that makes Session.kernels from the capture folder and the captures by record. It is passed in, because it
# belongs to a package that this package must not import.
MakeKernels = Callable[[store.CaptureFolder, dict[str, Capture]], Any]


class Session(Notebook):
    """One capture. Made by `tritonhook.enable` and `tritonhook.session`.

    settings: what to capture and rewrite. seen: by record, True if the kernel came from a cache; in the order of first
    use. met: the same records, but one item for each compile or load. binary_only: records with only a binary. crashes:
    folders of ptxas crashes. notes: further messages of the summary. reaches_children: True under `tritonhook run`,
    where child processes capture with the same settings.
    """

    _shown: ClassVar[tuple[str, ...]] = ("out", "records", "front_ends", "crashes")

    def __init__(
        self, settings: Settings, front_ends: Sequence[str] = ("triton",), make_kernels: MakeKernels | None = None
    ) -> None:
        self.settings = settings
        self.front_ends = front_ends
        self._make_kernels = make_kernels
        self.seen: dict[str, bool] = {}
        self.met: list[str] = []
        self.binary_only: set[str] = set()
        self.crashes: list[Path] = []
        self.notes: list[str] = []
        self.reaches_children = False
        self._records: dict[str, str] = {}  # by Triton's hash; for CuTe kernels, by "HASH NAME"
        self._launched: dict[tuple[str, str], int] = {}  # number of launches, by record and key of the launch
        self._unrecorded: dict[str, str] = {}  # why a launch was not recorded, by record
        self._missed: dict[str, tuple[str, ...]] = {}  # names of kernels that were not rewritten, by reason
        self._matched: set[str] = set()  # kernel names, without number, whose PTX had an entry in the policy
        self._reported: set[tuple[object, ...]] = set()
        self._won: set[str] = set()
        self._tried: set[str] = set()
        self._lock = ForkLock()
        self._with_triton = "triton" in front_ends
        self._writer = CaptureWriter(settings.out, {"triton": triton_version()} if self._with_triton else None)
        if settings.policy is not None:
            self.notes += settings.policy.notes

    def carry_over(self, earlier: Session) -> None:
        """Copy the results of an earlier session, which must have ended."""
        self.seen = dict(earlier.seen)
        self.met = list(earlier.met)
        self.binary_only = set(earlier.binary_only)
        self.crashes = list(earlier.crashes)
        self.notes = list(earlier.notes)

    @property
    def out(self) -> Path:
        return self.settings.out

    @property
    def records(self) -> tuple[str, ...]:
        """The records of this session's kernels, in the order of first use."""
        return tuple(self.seen)

    @property
    def kernels(self) -> Any:
        """This session's kernels, as a `snapshot.kernels.Kernels` with their figures and `to_dataframe()`."""
        if self._make_kernels is None:
            raise CaptureError(f"this session has no `kernels`; read them with load({str(self.out)!r})")
        captures = dict(zip(self.seen, self.captures, strict=True))
        return self._make_kernels(store.CaptureFolder.open(self.out), captures)

    @property
    def from_cache(self) -> int:
        """Number of this session's kernels that came from a disk cache."""
        return sum(self.seen.values())

    @property
    def lost(self) -> set[str]:
        """The records that lost every autotuning: they were measured, but the program does not use them."""
        return self._tried - self._won

    @property
    def captures(self) -> tuple[Capture, ...]:
        """This session's kernels, read from the capture folder. Raises CaptureError if a record is damaged."""
        folder = store.CaptureFolder.open(self.out)
        return tuple(replace(folder.capture(record), cache_hit=hit) for record, hit in self.seen.items())

    @property
    def summary(self) -> str:
        """A short text: number of kernels, number from cache, capture folder, notes."""
        lines = [f"tritonhook: {seen_text(len(self.seen), self.from_cache, self.out)}"]
        if self.binary_only:
            lines.append(
                f"  {len(self.binary_only)} from a binary-only cache (TRITON_STORE_BINARY_ONLY): only the cubin is kept"
            )
        if not self.seen:
            lines.append("  no kernel was compiled or loaded from cache while tritonhook was enabled")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    # --- beginning and ending

    def install(self) -> None:
        """Begin the session: attach it to the hooks in Triton, torch.compile, the CuTe DSL and their launches."""
        with changing:
            if self._with_triton:
                listening.attach(self)
                rejecting.attach(self)
                if self.settings.key:
                    rewriting.attach(self)
                autotuning.attach(self)
                if self.settings.policy is not None and self.settings.policy.pins:
                    pinning.attach(self)
                inductor.attach(self)
                if self.settings.launches:
                    recorder.attach(self)
            if cute.FRONT_END in self.front_ends:
                cute.attach(self)

    def uninstall(self) -> None:
        """End the session: detach it from all hooks and finish the index."""
        self.leave()
        for text in dry_run_notes if self.settings.dry_run is not None else ():
            self.note(text)
        try:
            if self._launched:
                self._writer.add_launch_counts(self._launched)
            self._writer.close(self.notes, self._unrecorded)
        except OSError as error:
            self.contain("the capture index could not be finished", error)

    def leave(self) -> None:
        """Detach the session from all hooks; `install` can attach it again. First wait for pending compiles of an
        AsyncCompileMode, so that they are captured."""
        finish_async_compiles()
        with changing:
            cute.detach(self)
            for hooks in (recorder, inductor, pinning, autotuning, rewriting, rejecting, listening):
                hooks.detach(self)

    # --- notes and errors

    def note(self, text: str) -> None:
        """Add a note to the summary, unless it has the same note already."""
        with self._lock:
            if text not in self.notes:
                self.notes.append(text)

    def contain(self, doing: str, error: BaseException) -> None:
        """Report an internal error of tritonhook, once for each kind, and do not raise it: the user's compile goes on.
        doing: what failed."""
        kind = (doing, type(error), getattr(error, "errno", str(error)))  # report a full disk once, not for each file
        with self._lock:
            if kind in self._reported:
                return
            self._reported.add(kind)
        text = f"{doing}: {error if isinstance(error, TritonHookError) else f'{type(error).__name__}: {error}'}"
        self.note(text)
        say(f"tritonhook: {text}")

    # --- kernels

    def read(
        self,
        metadata: Mapping[str, Any],
        group: Mapping[str, str],
        cache_hit: bool,
        constants: Mapping[str, Any] | None = None,
        compile_us: Mapping[str, int] | None = None,
    ) -> None:
        """Keep one kernel that Triton compiled or loaded from its disk cache. group: its files in that cache, path by
        name. constants: its constexprs. compile_us: microseconds of each compiler stage; empty for a cache hit."""
        autotuning.met(str(metadata["hash"]))
        kernel = str(metadata["name"])
        origin = metadata.get(META_FROM)
        if not self.settings.wants(str(origin or kernel)):
            return
        paths = {name.rpartition(".")[2]: path for name, path in group.items()}
        files = {stage: paths[ending] for ending, stage in _STAGES if ending in paths}
        if (record := self._writer.known(kernel, str(metadata["hash"]), files)) is None:
            dry_run = {META_DRY_RUN: True} if self.settings.dry_run else {}
            capture = capture_of(kernel, {**metadata, **dry_run}, files, cache_hit, origin, constants)
            record = self._writer.add_files(replace(capture, compile_us=compile_us or {}), files)
            if capture.binary_only:
                self.binary_only.add(record)
        self._meet(record, cache_hit)
        self._records[str(metadata["hash"])] = record
        if self.settings.launches:
            recorder.look_again()

    def record_of(self, hash: str) -> str | None:
        """Return the record of a kernel; None if it was not kept. hash: Triton's hash of the kernel; for another front
        end, "HASH NAME"."""
        return self._records.get(hash)

    def tuned(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None:
        """Record an autotuner's choice. tuning: id of the autotuning in this process. by: name of the autotuner.
        winner, among: the winning kernel and all tried kernels, each as Triton's hash."""
        if winner in self._records and self.settings.dry_run is None:  # a dry run measures nothing
            tried = [self._records[hash] for hash in among if hash in self._records]
            self._won.add(self._records[winner])
            self._tried.update(tried)
            try:
                self._writer.add_tuning(tuning, by, self._records[winner], list(dict.fromkeys(tried)))
            except OSError as error:
                self.contain("the winner of an autotuning could not be kept", error)

    def configured(
        self,
        function: str,
        key: Sequence[str],
        winner: str,
        configurations: Mapping[str, str],
        source: str | None = None,
        by: str = "Triton",
    ) -> None:
        """Record the configurations that an autotuner tried for one key of a function. winner: Triton's hash of the
        winning kernel. configurations: each configuration as text, by Triton's hash of its kernel. source: hash of the
        function's source. by: "Triton" or "Inductor"."""
        texts = {self._records[hash]: text for hash, text in configurations.items() if hash in self._records}
        if winner not in self._records:
            return
        try:
            self._writer.add_configurations(function, key, self._records[winner], texts, source, by)
        except OSError as error:
            self.contain("the configurations of an autotuning could not be kept", error)

    def keep(self, capture: Capture, files: Mapping[Stage, str]) -> str:
        """Keep one kernel of a front end other than Triton. Returns its record."""
        if self.settings.dry_run is not None:
            capture = replace(capture, metadata={**capture.metadata, META_DRY_RUN: True})
        record = self._writer.add_files(capture, files)
        self._meet(record, bool(capture.cache_hit))
        self._records[f"{capture.hash} {capture.kernel}"] = record
        return record

    def _meet(self, record: str, cache_hit: bool) -> None:
        self.met.append(record)
        self.seen.setdefault(record, cache_hit)

    def has_ptx(self, record: str) -> bool:
        """Check whether a record has PTX, from this run or an earlier one."""
        return any((self.out / "kernels" / record).glob("*.ptx"))

    def keep_launch(self, record: str, key: str, launch: Launch, contents: Contents) -> None:
        """Count a launch, and record it if it is the first with this key. key: Launch.key, which is equal for launches
        with the same grid and arguments."""
        self.count_launch(record, key)
        if self._launched[record, key] == 1:
            self._writer.add_launch(record, launch, contents())

    def count_launch(self, record: str, key: str) -> None:
        """Count a launch; a launch with the same key was recorded before."""
        self._launched[record, key] = self._launched.get((record, key), 0) + 1

    def miss_launch(self, record: str, why: str) -> None:
        """Record why a launch could not be recorded."""
        self._unrecorded[record] = f"a launch was not recorded: {why}"
        self.note(self._unrecorded[record])

    # --- rewriting

    def settings_now(self, kernel: str) -> Settings:
        """Return the settings for a kernel whose cache key this thread is computing. For a kernel of torch.compile,
        leave the rewrites out if torch.compile's caches could not distinguish the rewritten kernel from the plain
        kernel."""
        settings = self.settings
        if settings.policy is not None:
            settings = replace(settings, policy=settings.policy.of_kernel(kernel))
        if not settings.key or not _compiled_by_inductor():
            return settings
        renames = settings.renames
        if (reason := inductor.may_rename() if renames else inductor.may_rewrite()) is not None:
            if settings.wants(kernel):
                what = "are not renamed" if renames else "are not rewritten"
                self.note(f"kernels of torch.compile {what}: {reason}")
            settings = settings.without_renames
        if inductor.may_rewrite() is not None:
            settings = replace(settings, rewrites=Rewrites(), assembling=None, policy=None)
        return settings

    def rewrite(self, text: str, own_name: str | None, ptxas: str | None, settings: Settings) -> Rewritten | None:
        """Rewrite a kernel's PTX for the session. Returns None if the session does not change the kernel. If the
        session only uses another ptxas, the text may be unchanged.

        own_name: the kernel's own name if an outer session has already renamed the kernel, else None. ptxas: version of
        the compiler's own ptxas. settings: the result of `settings_now` for this kernel. Raises PtxError if a rewrite
        cannot be applied to this module, or if the ptxas that will assemble it does not support the rewrite.
        """
        ptx = Ptx(text)
        own = own_name or ptx.only_entry()
        if not settings.wants(own):
            return None
        rewrites, assembling, entry = settings.rewrites, settings.assembling, None
        if settings.policy is not None:
            entry = self._entry_for(settings.policy, ptx, own, ptxas)
            if entry is None:
                return None
            rewrites, assembling = entry.lever.rewrites, entry.assembling
        if reason := rewrites.why_not((assembling and assembling.version) or ptxas):
            raise PtxError(reason)
        new = rewrites.apply(ptx)
        for remark in rewrites.remarks(ptx) if entry is None else ():
            self.note(remark)
        if assembling is not None:
            new = assembling.readable(new)
        if new is ptx and assembling is None:
            return None
        code, lever = (None, None) if entry is None else (entry.code, entry.lever.text)
        return Rewritten(new.text, own, new.only_entry(), assembling, code, lever, names_of_rewrites(rewrites, ptx))

    def _entry_for(self, policy: Policy, ptx: Ptx, own: str, ptxas: str | None) -> Entry | None:
        """Return the policy's entry for a kernel. If there is none, or it must not be applied, return None and note the
        reason."""
        entry = policy.entry_for(ptx.text, ptx.only_entry(), own)
        if entry is None:
            archs = sorted({other.arch for other in policy.of_kernel(own).entries})
            if ptx.target not in archs:
                self._note_missed(
                    own, f"{policy.path} has only entries for {', '.join(archs)}; the kernel's target is {ptx.target}"
                )
            elif stem(own) not in self._matched:
                self._note_missed(own, _other_ptx(policy))
            return None
        self._match(policy, stem(own))
        if entry.ptxas != ptxas:
            versions = f"against ptxas {entry.ptxas}, but the compiler's ptxas is now {ptxas or 'not known'}"
            self._note_missed(own, f"{policy.path} was certified {versions}; tune again")
            return None
        return entry

    def check_rewritten(self, metadata: Mapping[str, Any], group: Mapping[str, str], reason: str) -> None:
        """Add a note if a kernel was compiled without this session's changes although the session would have changed
        it. reason: why it was compiled without them."""
        own = str(metadata.get(META_FROM) or metadata["name"])
        settings = self.settings_now(own)
        if not settings.key or not settings.wants(own) or digest(settings.key) in (metadata.get(META_KEYS) or ()):
            return
        ptx = next((path for name, path in group.items() if name.endswith(".ptx")), None)
        if ptx is None or _would_change(ptx, own, settings):
            self._note_missed(own, reason)

    def _match(self, policy: Policy, name: str) -> None:
        """Drop notes on other specialisations of a kernel after the policy has matched one of them."""
        with self._lock:
            self._matched.add(name)
            reason = _other_ptx(policy)
            self._note_kernels(reason, tuple(kernel for kernel in self._missed.get(reason, ()) if stem(kernel) != name))

    def _note_missed(self, kernel: str, reason: str) -> None:
        """Add a kernel to the note that lists all kernels not rewritten for this reason."""
        with self._lock:
            kernels = self._missed.get(reason, ())
            if kernel not in kernels:
                self._note_kernels(reason, (*kernels, kernel))

    def _note_kernels(self, reason: str, kernels: tuple[str, ...]) -> None:
        before = _missed_note(self._missed.get(reason, ()), reason)
        self._missed[reason] = kernels
        self.notes = [note for note in self.notes if note != before] + [_missed_note(kernels, reason)] * bool(kernels)

    def keep_crash(self, name: str, text: str, assembler: Assembler, message: str) -> None:
        """Keep a failure of ptxas on rewritten PTX: PTX, command line, signal. text: the PTX."""
        from tritonhook.ptxas.toolchain import Crash, assemble

        details: dict[str, Any] = {"triton_message": message}
        tool = tool_of(assembler)
        what = f"ptxas {tool.version} failed on {name}"
        if assembler.path and assembler.arguments is not None:
            crash = assemble(tool, Ptx(text), assembler.arguments)
            if isinstance(crash, Crash):
                details |= {"signal": crash.signal, "returncode": crash.returncode}
                details |= {"command": crash.command, "stderr": crash.stderr, "ptxas": tool.version}
                what = f"{crash.summary} on {name}"
        folder = self._writer.add_crash(name, text, details)
        self.crashes.append(folder)
        self.note(f"{what}; the kernel is not rewritten, the PTX is in {folder}")

    def keep_rejected(
        self, stage: str, ptx: str, metadata: Mapping[str, Any], files: Mapping[str, str], error: Exception
    ) -> None:
        """Keep a kernel that a compiler stage rejected. files: the earlier stages' files, path by extension."""
        if not self.settings.wants(_name_of_rejected(metadata, files)):
            return
        known = {**metadata, "name": _name_of_rejected(metadata, files)}
        capture = capture_of(known["name"], known, {}, False, metadata.get(META_FROM))
        details: dict[str, Any] = {"stage": stage, "arch": capture.arch, "log": str(error) or type(error).__name__}
        details |= {"error": type(error).__name__, "options": dict(capture.options), "triton": triton_version()}
        details |= {"ptxas": capture.assembler.version, "arguments": capture.assembler.arguments}
        self._writer.add_crash(capture.kernel, ptx, details, files)


def _name_of_rejected(metadata: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Return the name of a rejected kernel. Before the PTX stage, the metadata has no name; then the name is read from
    the file names."""
    return str(metadata.get("name") or Path(files.get("source") or files.get("ttir") or "kernel").stem)


def _would_change(path: str, own: str, settings: Settings) -> bool:
    if settings.assembling is not None:
        return True
    try:
        ptx = Ptx(Path(path).read_text())
        if settings.policy is not None:
            return settings.policy.entry_for(ptx.text, ptx.only_entry(), own) is not None
        return settings.rewrites.apply(ptx) is not ptx
    except Exception:  # the same error was reported when the kernel was compiled
        return True


def _other_ptx(policy: Policy) -> str:
    return f"{policy.path} has no entry for its PTX; `tritonhook tune --check CAPTURES` lists stale entries"


def _missed_note(kernels: Sequence[str], reason: str) -> str:
    named = ", ".join(kernels[:_MOST_NAMED]) + (", ..." if len(kernels) > _MOST_NAMED else "")
    return f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'} not rewritten ({named}): {reason}"


def _compiled_by_inductor() -> bool:
    """Check whether torch.compile's Inductor started this compile. Its static launcher looks kernels up by the name of
    their Python function (torch/_inductor/runtime/static_triton_launcher.py), so that renaming needs care."""
    frame = sys._getframe(1) if "torch._inductor" in sys.modules else None
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("torch._inductor."):
            return True
        frame = frame.f_back
    return False


def finish_async_compiles() -> None:
    """Wait for the compiles that Triton's AsyncCompileMode has started in this thread."""
    from concurrent.futures import wait

    module = sys.modules.get("triton.runtime._async_compile")
    mode = module.active_mode.get() if module is not None else None
    if mode is not None:
        wait(list(mode.raw_futures))
