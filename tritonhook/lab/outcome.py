"""Outcome: what became of one run of ptxas, and as JSON values. Values only; sweep makes them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from tritonhook.cubin.summary import Facts, KernelFacts
from tritonhook.ptxas.limits import Limits

FORMAT = 1  # of an outcome; grows when its meaning changes


class Kind(str, Enum):
    """What became of a job. unsupported: this ptxas does not know the module's `.version` or the target, or they
    do not go together, so that it never came to read the code; rejected: it read it and found an error."""

    ASSEMBLED = "assembled"
    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a Job. JSON-able by to_document; equal `finding`s mean equal results.

    message: ptxas's first error line, without the paths of this run; "" if there was none.
    signal: the name of the signal that ended it. cpu_s: of the ptxas process.
    facts: of an assembled module. cubin: its bytes, if the job asked for them.
    limits: those it ran under.
    """

    kind: Kind
    message: str
    returncode: int
    signal: str | None
    cpu_s: float
    wall_s: float
    limits: Limits
    facts: Facts | None = None
    cubin: bytes | None = None

    @property
    def lasting(self) -> bool:
        """Whether another run would end alike: not one that somebody outside killed."""
        return self.kind in (Kind.TIMEOUT, Kind.MEMORY) or self.signal not in _FROM_OUTSIDE

    @property
    def finding(self) -> tuple[object, ...]:
        """All that does not vary from run to run."""
        return self.kind, self.message, self.returncode, self.signal, self.facts

    def to_document(self) -> dict[str, Any]:
        """As JSON values, without the cubin."""
        document: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        document["kind"] = self.kind.value
        document["limits"] = [self.limits.seconds, self.limits.memory_bytes]
        if self.facts is not None:
            f = self.facts
            kernels = [[getattr(k, name) for name in _KERNEL_FIELDS] for k in f.kernels]
            document["facts"] = [kernels, f.sections, f.program_sha256, f.file_bytes]
        return document

    @classmethod
    def from_document(cls, document: dict[str, Any], cubin: bytes | None = None) -> Outcome:
        """Raises KeyError, TypeError or ValueError if this is no outcome."""
        facts = None
        if "facts" in document:
            kernels, sections, program, file_bytes = document["facts"]
            facts = Facts(
                tuple(map(_kernel_facts, kernels)),
                tuple((role, size) for role, size in sections),
                program,
                file_bytes,
            )
        plain = {name: document[name] for name in _PLAIN_FIELDS}
        return cls(kind=Kind(document["kind"]), limits=Limits(*document["limits"]), facts=facts, cubin=cubin, **plain)


def _kernel_facts(values: list[Any]) -> KernelFacts:
    named = dict(zip(_KERNEL_FIELDS, values, strict=True))
    return KernelFacts(**named | {"externs": tuple(named["externs"])})


_KERNEL_FIELDS = tuple(f.name for f in fields(KernelFacts))
_PLAIN_FIELDS = ("message", "returncode", "signal", "cpu_s", "wall_s")
_FROM_OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGQUIT")
