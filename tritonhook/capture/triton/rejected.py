"""Capture kernels that a compiler stage of Triton, or ptxas, rejects. Triton itself keeps no files of such kernels.

While a session is attached, the error of a failing stage is reported to the sessions and raised again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonhook.capture.model import Stage
from tritonhook.capture.patching import Hooks, Patch
from tritonhook.capture.triton.muting import muted_threads

if TYPE_CHECKING:
    from tritonhook.capture.observers import Observer
    from tritonhook.capture.triton.stages import Stages

Make = Callable[[Any, dict[str, Any]], Any]


class Rejecting(Hooks):
    """The sessions that are notified of rejected kernels."""

    def _patched(self) -> list[Patch]:
        from triton.backends.nvidia.compiler import CUDABackend
        from triton.compiler.compiler import ASTSource

        return [Patch(ASTSource, "make_ir", self._make_ir), Patch(CUDABackend, "add_stages", self._add_stages)]

    def _make_ir(self, make_ir: Callable[..., Any]) -> Callable[..., Any]:
        """Report errors of Triton's front end (CompilationError), which runs before the stages."""

        def made(source: Any, target: Any, options: Any, *rest: Any) -> Any:
            try:
                return make_ir(source, target, options, *rest)
            except Exception as error:
                self._tell_all(Stage.TTIR.value, "", lambda: _of_source(source, target, options), error)
                raise

        return made

    def _add_stages(self, add_stages: Callable[..., Any]) -> Callable[..., Any]:
        def add(backend: Any, stages: Stages, *arguments: Any, **named: Any) -> Any:
            result = add_stages(backend, stages, *arguments, **named)
            for name, make in list(stages.items()):
                stages[name] = self._telling(name, make)
            return result

        return add

    def _telling(self, stage: str, make: Make) -> Make:
        def made(source: Any, metadata: dict[str, Any]) -> Any:
            try:
                return make(source, metadata)
            except Exception as error:
                self._tell_all(stage, source, lambda: metadata, error)
                raise

        return made

    def _tell_all(self, stage: str, source: Any, metadata: Callable[[], dict[str, Any]], error: Exception) -> None:
        def keep(session: Observer) -> None:
            known, text = metadata(), source if isinstance(source, str) else ""
            session.keep_rejected(stage, text, known, _files(known), error)

        if not muted_threads.is_muted:  # a muted thread tries a rewrite, whose failure is reported in stages.py
            self.tell("a rejected kernel could not be kept", keep)


def _of_source(source: Any, target: Any, options: Any) -> dict[str, Any]:
    """Make metadata for a kernel that failed in the front end. Triton makes the same fields after its front end."""
    return {"hash": source.hash(), "name": source.name, "target": target, **vars(options)}


def _files(metadata: dict[str, Any]) -> dict[str, str]:
    """List the files that earlier stages have written to Triton's cache: path by extension."""
    from triton.runtime.cache import get_cache_manager

    folder = getattr(get_cache_manager(metadata["hash"]), "cache_dir", None)  # None if the cache is remote
    with suppress(OSError):
        return {path.suffix[1:]: str(path) for path in Path(folder).iterdir() if path.is_file()} if folder else {}
    return {}


rejecting = Rejecting()
