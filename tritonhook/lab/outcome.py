"""Outcome: how one run of ptxas ended, and the same as JSON values. Values only; sweep.py makes them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from tritonhook.cubin.summary import ImageSummary, KernelSummary
from tritonhook.ptxas.limits import Limits

FORMAT = 3  # of an outcome; increase it when the meaning of one changes


class OutcomeKind(str, Enum):
    """How a job ended.

    unsupported: this ptxas does not know the module's `.version` or its target, or the two do not go together; it did
    not read the code. rejected: it read the code and found an error. memory: it ran into the memory limit.
    """

    ASSEMBLED = "assembled"
    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a Job ended, and what it made.

    message: ptxas's first error line, without the paths of this run; "" if there was none.
    signal: the name of the signal that ended it. cpu_s: of the ptxas process.
    limits: those it ran under. image: the summary of the cubin, if one was made; its key in JSON is "facts".
    cubin: its bytes, if the job asked for them.
    """

    kind: OutcomeKind
    message: str
    returncode: int
    signal: str | None
    cpu_s: float
    wall_s: float
    limits: Limits
    image: ImageSummary | None = None
    cubin: bytes | None = None

    @property
    def lasting(self) -> bool:
        """Whether another run would end the same way: False if another process killed this one."""
        return self.kind in (OutcomeKind.TIMEOUT, OutcomeKind.MEMORY) or self.signal not in _FROM_OUTSIDE

    @property
    def finding(self) -> tuple[object, ...]:
        """What does not vary from run to run. Equal findings mean equal results."""
        return self.kind, self.message, self.returncode, self.signal, self.image

    def to_document(self) -> dict[str, Any]:
        """As JSON values, without the cubin."""
        document: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        document["kind"] = self.kind.value
        document["limits"] = [self.limits.seconds, self.limits.memory_bytes]
        if self.image is not None:
            kernels = [[getattr(k, name) for name in _KERNEL_FIELDS] for k in self.image.kernels]
            document["facts"] = [kernels, *(getattr(self.image, name) for name in _IMAGE_FIELDS)]
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any], cubin: bytes | None = None) -> Outcome:
        """Read an outcome from JSON values. Raises KeyError, TypeError or ValueError if they are none."""
        return cls(
            kind=OutcomeKind(document["kind"]),
            limits=Limits(*document["limits"]),
            image=_image_summary(*document["facts"]) if "facts" in document else None,
            cubin=cubin,
            **{name: document[name] for name in _PLAIN_FIELDS},
        )


def _image_summary(kernels: Any, *values: Any) -> ImageSummary:
    named = dict(zip(_IMAGE_FIELDS, values, strict=True))
    sizes = tuple((role, size) for role, size in named["sections"])
    return ImageSummary(tuple(map(_kernel_summary, kernels)), **named | {"sections": sizes})


def _kernel_summary(values: list[Any]) -> KernelSummary:
    named = dict(zip(_KERNEL_FIELDS, values, strict=True))
    return KernelSummary(**named | {"externs": tuple(named["externs"])})


_IMAGE_FIELDS = tuple(f.name for f in fields(ImageSummary) if f.init and f.name != "kernels")
_KERNEL_FIELDS = tuple(f.name for f in fields(KernelSummary))
_PLAIN_FIELDS = ("message", "returncode", "signal", "cpu_s", "wall_s")
_FROM_OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGQUIT")
