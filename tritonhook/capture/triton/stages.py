"""Step: the changes of one session to one compile by Triton. The step's stages ptx and cubin replace Triton's
stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tritonhook.capture.chosen_ptxas import assemble_by
from tritonhook.capture.model import META_LEVER, META_REWRITES, Assembler
from tritonhook.capture.observers import Rewritten
from tritonhook.capture.settings import Settings
from tritonhook.capture.triton.metadata import META_FROM, META_NOTE, META_PTXAS, assembler_of
from tritonhook.capture.triton.muting import muted_threads
from tritonhook.errors import ToolError, TritonHookError
from tritonhook.ptx.module import Ptx

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer

Stages = dict[str, Callable[[Any, dict[str, Any]], Any]]


class Step:
    """One session's part in a compile. The constructor runs before the cache key is made. If it fails, the session is
    left out of the key.

    The PTX is rewritten at the end of the ptx stage, and also assembled there. If ptxas fails on the rewritten PTX, the
    later stages get the plain PTX. So PTX and cubin in the cache always belong together.

    key: text for cache keys that identifies the session's changes. is_sure: False after an error that may not occur
    again, e.g. a full disk; then the results of this compile must not be stored under its key.
    """

    def __init__(self, session: Observer, settings: Settings, backend: Any, options: Any) -> None:
        self._session, self._settings = session, settings
        self.key, self.is_sure = settings.key, True
        self._own = assembler_of(backend.target.arch, vars(options))
        self._cubins: dict[str, bytes] = {}  # cubin by rewritten PTX

    def wrap(self, stages: Stages) -> None:
        self._make_ptx, self._make_cubin = stages["ptx"], stages["cubin"]
        self._assemble = self._make_cubin
        stages["ptx"], stages["cubin"] = self._ptx, self._cubin

    def _ptx(self, source: Any, metadata: dict[str, Any]) -> Any:
        text = self._make_ptx(source, metadata)
        try:
            rewritten = self._session.rewrite(text, metadata.get(META_FROM), self._own.version, self._settings)
        except Exception as error:
            self._session.contain(f"{metadata.get('name')} is not rewritten", error)
            metadata[META_NOTE] = f"not rewritten: {error}"
            self.is_sure = isinstance(error, TritonHookError)
            return text
        if rewritten is None:
            return text
        assembler = self._own
        if rewritten.assembling is not None:
            assembler = rewritten.assembling.instead_of(self._own)
            self._assemble = _by(assembler)
        trial = dict(metadata)
        cubin = self._try(rewritten, assembler, trial)
        why_plain = _why_plain(text, rewritten, assembler) if cubin is None else _why_other(rewritten, cubin)
        if cubin is None or why_plain is not None:
            if rewritten.lever is not None:
                self._session.note(f"{rewritten.own}: {why_plain}")
            metadata[META_NOTE] = why_plain
            return text
        self._cubins[rewritten.text] = cubin
        metadata.update(trial, name=rewritten.new)
        metadata |= {META_FROM: rewritten.own} if rewritten.own != rewritten.new else {}
        metadata |= {META_LEVER: rewritten.lever} if rewritten.lever is not None else {}
        metadata |= {META_REWRITES: rewritten.rewrites} if rewritten.rewrites is not None else {}
        return rewritten.text

    def _cubin(self, source: Any, metadata: dict[str, Any]) -> Any:
        if source in self._cubins:
            return self._cubins[source]
        if self._cubins:
            # Another tool replaced the PTX after our rewrite, e.g. TRITON_KERNEL_OVERRIDE: use the name in that PTX.
            for ours in (META_FROM, META_LEVER, META_REWRITES):
                metadata.pop(ours, None)
            metadata["name"] = Ptx(source).only_entry()
            return self._assemble(source, metadata)
        return self._make_cubin(source, metadata)

    def _try(self, rewritten: Rewritten, assembler: Assembler, metadata: dict[str, Any]) -> bytes | None:
        """Assemble the rewritten PTX. Returns the cubin; None if ptxas fails. Other errors are raised."""
        from triton.runtime.errors import PTXASError

        try:
            with muted_threads.mute():  # Triton would print the whole PTX if ptxas fails
                cubin: Any = self._assemble(rewritten.text, metadata)
                return bytes(cubin)
        except (PTXASError, ToolError) as error:
            try:
                self._session.keep_crash(rewritten.new, rewritten.text, assembler, str(error))
            except Exception as ours:
                self._session.contain(f"the ptxas crash on {rewritten.new} could not be kept", ours)
            return None


def _by(assembler: Assembler) -> Callable[[str, dict[str, Any]], bytes]:
    """Make a cubin stage that uses this ptxas and records it in the kernel's metadata."""

    def assemble(text: str, metadata: dict[str, Any]) -> bytes:
        cubin = assemble_by(assembler, text)
        metadata[META_PTXAS] = [assembler.path, assembler.version, list(assembler.arguments or ())]
        return cubin

    return assemble


def _why_other(rewritten: Rewritten, cubin: bytes) -> str | None:
    """Return a note if the machine code differs from the code that was timed for the policy, else None."""
    from tritonhook.cubin.summary import summarise_image

    if rewritten.code is None:
        return None
    code = summarise_image(cubin, {}).code_hash(rewritten.new)
    if code == rewritten.code:
        return None
    return f"not rewritten: {rewritten.lever} now gives the code {code}, but {rewritten.code} was certified"


def _why_plain(text: str, rewritten: Rewritten, assembler: Assembler) -> str:
    """Return a note for a kernel that keeps its plain code because ptxas failed on the session's change."""
    if rewritten.new != rewritten.own:
        return f"not renamed: ptxas failed under the name {rewritten.new}"
    if rewritten.text != text:
        return "not rewritten: ptxas failed on the rewritten PTX"
    return f"ptxas {assembler.version} failed; assembled by Triton's own ptxas"
