"""A side of a comparison: a PTX file, a cubin file, or a capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.store import CaptureFolder, read_capture
from tritonhook.cli._output import read_bytes
from tritonhook.cubin.image import Cubin
from tritonhook.errors import PtxError, UsageError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.assembler import DEFAULT_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Side:
    """What was given for one side. A capture has both PTX and cubin; a file has one of them.

    entry: the kernel meant, as it is called on this side.
    """

    label: str
    entry: str
    ptx: Ptx | None = None
    cubin: Cubin | None = None
    assembler: Assembler | None = None

    @property
    def ptxas(self) -> str | None:
        """The version that made the cubin, as far as the capture or the image says."""
        if self.assembler is not None and self.assembler.version:
            return self.assembler.version
        return self.cubin.ptxas_version if self.cubin is not None else None


def load_side(path: str, entry: str | None) -> Side:
    """Read a side. Raises UsageError, PtxError, CubinError or CaptureError, each with the path in it."""
    place = Path(path)
    if place.is_dir():
        return _capture_side(path, _find_capture(place, entry))
    data = read_bytes(place)
    if data[:4] == b"\x7fELF":
        cubin = Cubin.from_bytes(data, path)
        return Side(
            path, cubin.only_kernel(entry if entry in cubin.kernels or len(cubin.kernels) > 1 else None), cubin=cubin
        )
    if b"\0" in data.rstrip(b"\0"):
        raise UsageError(f"{path}: a binary file, but no ELF image; give PTX, a cubin, or a capture folder")
    ptx = Ptx.from_bytes(data, path)
    try:
        return Side(path, ptx.only_entry(entry if entry in ptx.entries or len(ptx.entries) > 1 else None), ptx=ptx)
    except PtxError as error:
        raise PtxError(f"{path}: {error}") from None


def _find_capture(place: Path, entry: str | None) -> Capture:
    if (place / "capture.json").exists():
        return read_capture(place)
    folder = CaptureFolder.open(place)
    captures = [c for c in map(folder.try_capture, folder.records) if isinstance(c, Capture)]
    fitting = [capture for capture in captures if entry in (None, capture.kernel)]
    if len(fitting) == 1:
        return fitting[0]
    listed = "\n  ".join(str(place / "kernels" / record) for record in folder.records)
    what = f"{len(fitting)} captures of {entry!r}" if entry else f"{len(fitting)} captures"
    raise UsageError(f"{place}: {what}; name one:\n  {listed or '(none)'}")


def _capture_side(path: str, capture: Capture) -> Side:
    has_ptx, has_cubin = (stage in capture.artifacts for stage in (Stage.PTX, Stage.CUBIN))
    return Side(
        label=path,
        entry=capture.kernel,
        ptx=capture.ptx if has_ptx else None,
        cubin=Cubin.from_bytes(capture.cubin, path) if has_cubin else None,
        assembler=capture.assembler,
    )


def chosen_arguments(given: str | None, sides: Sequence[Side]) -> tuple[str, ...]:
    """The ptxas options for both sides: those given, else those of a capture, else Triton's usual ones."""
    if given is not None:
        return tuple(given.split())
    for side in sides:
        if side.assembler is not None and side.assembler.options is not None:
            return side.assembler.options
    return DEFAULT_ARGUMENTS


def chosen_ptxas(given: str | None, sides: Sequence[Side]) -> str | None:
    """The ptxas for both sides: the one given, else the one that made a capture or, by its own word, a cubin."""
    if given is not None:
        return given
    for side in sides:
        if side.assembler is not None and side.assembler.path and Path(side.assembler.path).exists():
            return side.assembler.path
        if side.ptxas is not None:
            return side.ptxas
    return None


def check_entry(entry: str | None, sides: Sequence[Side]) -> None:
    """Raises UsageError if --entry names a kernel that no side has: names may differ from side to side."""
    if entry is not None and entry not in {side.entry for side in sides}:
        names = ", ".join(dict.fromkeys(side.entry for side in sides))
        raise UsageError(f"--entry {entry}: no such kernel; there is: {names}")
