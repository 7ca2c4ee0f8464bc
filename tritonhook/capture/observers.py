"""The interface between a session and the hooks in Triton, torch.compile and the CuTe DSL. To the hooks a session is
an Observer; they do not load its module, which loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook.capture.chosen_ptxas import Assembling

if TYPE_CHECKING:
    from tritonhook.capture.session import Session

    Observer = Session

Contents = Callable[[], Mapping[str, bytes]]  # reads the bytes of a launch's buffers, by the name of their file


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A kernel's PTX for a session. It may be the compiler's own, for another ptxas.

    own, new: the kernel's own name and its name in this PTX. code: the hash that the machine code must have; None for
    any. lever: of the policy's entry that applies; None without a policy. rewrites: keys of those that changed the PTX,
    without renames; None if there are none.
    """

    text: str
    own: str
    new: str
    assembling: Assembling | None = None
    code: str | None = None
    lever: str | None = None
    rewrites: str | None = None
