"""The schema of a policy file, and a function that reads it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tritonhook._util import schema
from tritonhook._util.schema import Arch, Date, DocumentError, Fields, Hash, Number, Sha256, Version, one_of
from tritonhook.errors import PolicyError

FORMAT = 2  # format 1 has no pins
FRONT_ENDS = ("Triton", "cute")


class PolicyKernel(Fields, forbid_unknown_fields=True):
    """One kernel of a policy.

    ptx: hash of its normalised PTX. ptxas: version of the compiler's own ptxas, the baseline of the measurement. lever:
    in the syntax of --levers. code: hash of the timed machine code. controls: hash of the lever's controls file.
    gain_percent: reduction of the kernel's time; interval_percent: its 95% interval.
    """

    name: str
    arch: Arch
    front_end: Annotated[str, one_of(FRONT_ENDS)]
    ptx: Sha256
    ptxas: Version
    lever: str
    code: Hash
    gain_percent: Number
    interval_percent: tuple[Number, Number]
    gpu: str
    date: Date
    controls: Sha256 | None = None


class PolicyPin(Fields, forbid_unknown_fields=True):
    """A configuration of an autotuned function, for one key. ptx: hash of the configuration's PTX, if the policy has a
    lever for it. source: hash of the function's source."""

    function: str
    arch: Arch
    key: list[str]
    config: str
    ptx: Sha256 | None = None
    gpu: str = ""
    date: str = ""
    source: Hash | None = None


class PolicyFile(Fields, forbid_unknown_fields=True):
    """A policy. format: 1 without pins, or 2."""

    format: Annotated[int, Meta(ge=1)]
    kernel: list[PolicyKernel] = msgspec.field(default_factory=list)
    pin: list[PolicyPin] = msgspec.field(default_factory=list)


def read_toml(data: bytes, path: str) -> PolicyFile:
    """Parse the TOML of a policy. path: for messages. Raises PolicyError if it is not a policy, or of a newer
    format."""
    try:
        return schema.read_toml(data, PolicyFile, FORMAT)
    except schema.NewerFormat as error:
        raise PolicyError(f"{path}: {error}") from None
    except DocumentError as error:
        raise PolicyError(f"{path}: not a valid policy: {error}; correct it, or tune again") from None
