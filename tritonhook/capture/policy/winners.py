"""The winners of autotunings in a capture folder: the configurations that Triton's or Inductor's autotuner chose. Pins
are made from winners, and existing pins are compared with winners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.capture.model import Capture
from tritonhook.capture.store import CaptureFolder


@dataclass(frozen=True, slots=True)
class Winner:
    """The configuration that won for one key of an autotuned function. The fields are as in Pin. among: all
    configurations that were tried."""

    function: str
    arch: str
    key: tuple[str, ...]
    config: str
    among: tuple[str, ...]
    source: str | None


def winners(folder: CaptureFolder) -> Iterator[Winner]:
    """Yield the winners in a capture folder. A winner whose record cannot be read is omitted."""
    for tuned in folder.configurations:
        chosen = folder.try_capture(tuned.chosen)
        if isinstance(chosen, Capture) and tuned.chosen in tuned.by_record:
            among = tuple(tuned.by_record.values())
            yield Winner(tuned.function, chosen.arch, tuned.key, tuned.by_record[tuned.chosen], among, tuned.source)
