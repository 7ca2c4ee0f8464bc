"""The interface between a session and the hooks in Triton, torch.compile and the CuTe DSL. The hooks refer to a session
as Observer and do not import session.py, because session.py imports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tritonhook.capture.chosen_ptxas import Assembling

if TYPE_CHECKING:
    from tritonhook.capture.session import Session

    Observer = Session

Contents = Callable[[], Mapping[str, bytes]]  # reads the bytes of a launch's buffers, by file name


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The PTX that a session assembles for a kernel. The text may also be the compiler's own PTX, if only the ptxas is
    replaced.

    own, new: the kernel's own name and its name in this PTX. code: hash that the machine code must have; None accepts
    any code. lever: lever of the policy's entry, e.g. "ptxas=13.5.37"; None without a policy. rewrites: keys of the
    rewrites that changed the PTX, without renames; None if there are none.
    """

    text: str
    own: str
    new: str
    assembling: Assembling | None = None
    code: str | None = None
    lever: str | None = None
    rewrites: str | None = None
