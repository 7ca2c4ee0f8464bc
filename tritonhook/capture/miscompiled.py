"""Captured kernels with PTX that some versions of ptxas miscompile, each module read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tritonhook.capture.model import Capture, Stage
from tritonhook.capture.store import by_module
from tritonhook.errors import CaptureError, PtxError, TritonHookError
from tritonhook.ptx.miscompiles import Finding, findings
from tritonhook.ptxas.levels import level_of


def miscompiled(
    captures: Mapping[str, Capture], ptxas: str | None = None
) -> Iterator[tuple[dict[str, Capture], tuple[Finding, ...] | TritonHookError]]:
    """Yield the captures of each module, by record, and what is found in it; an error if its PTX cannot be read.

    ptxas: the version to judge by, at each module's level; None: its own. A module without PTX is an error too.
    """
    for module in by_module(captures):
        first = next(iter(module.values()))
        try:
            text = first.text(Stage.PTX)
            if text is None:
                raise CaptureError(f"{first.kernel}: no PTX in the capture; {first.note or 'it was not available'}")
            level = level_of(first.assembler.options)
            yield module, findings(text, ptxas or first.assembler.version, level)
        except (CaptureError, PtxError) as error:
            yield module, error
