"""Observer: what the hooks in Triton, torch.compile and the CuTe DSL tell a session, and what they ask it.

`session.Session` is one. The hooks know this protocol only, so that a session can use them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.capture.launches.record import Launch
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.settings import Settings

Contents = Callable[[], Mapping[str, bytes]]  # reads the bytes of a launch's buffers, by the name of their file


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A kernel's PTX as a session wants it. It may be the compiler's own, for another ptxas.

    own, new: the kernel's own name and its name in this PTX. code: the hash that the machine code must have; None for
    any. lever: of the policy's entry that asks for all this; None without a policy. rewrites: keys of those that
    changed the PTX, without renames; None where none did.
    """

    text: str
    own: str
    new: str
    assembling: Assembling | None = None
    code: str | None = None
    lever: str | None = None
    rewrites: str | None = None


class Observer(Protocol):
    """A session, as the hooks see it. `hash` is Triton's hash of a compiled kernel everywhere."""

    settings: Settings
    reaches_children: bool

    def note(self, text: str) -> None:
        """Keep a remark for the summary, once."""

    def contain(self, doing: str, error: BaseException) -> None:
        """Report an error of tritonhook's own; the program goes on."""

    # --- kernels

    def read(
        self,
        metadata: Mapping[str, Any],
        group: Mapping[str, str],
        cache_hit: bool,
        constants: Mapping[str, Any] | None = None,
        compile_us: Mapping[str, int] | None = None,
    ) -> None:
        """Keep a kernel that Triton compiled or loaded. group: its files in Triton's cache. constants: its constexprs.
        compile_us: microseconds of each stage."""

    def keep(self, capture: Capture, files: Mapping[Stage, str]) -> str:
        """Keep a kernel of another front end; returns its record."""
        ...

    def record_of(self, hash: str) -> str | None:
        """The record of a kernel that `read` kept; None if it did not."""

    def has_ptx(self, record: str) -> bool:
        """Whether a record has PTX, perhaps from an earlier run."""
        ...

    # --- rewriting

    def settings_now(self, kernel: str) -> Settings:
        """The settings for a kernel whose cache key this thread makes; their key is empty if it is not changed."""
        ...

    def rewrite(self, text: str, own_name: str | None, ptxas: str | None, settings: Settings) -> Rewritten | None:
        """A kernel's PTX as the session wants it; None if the compiler's own code is wanted."""

    def check_rewritten(self, metadata: Mapping[str, Any], group: Mapping[str, str], reason: str) -> None:
        """Note it if a kernel was compiled without this session, which would have changed it."""

    def keep_crash(self, name: str, text: str, assembler: Assembler, message: str) -> None:
        """Keep the PTX on which ptxas failed after a rename."""

    def keep_rejected(
        self, stage: str, ptx: str, metadata: Mapping[str, Any], files: Mapping[str, str], error: Exception
    ) -> None:
        """Keep a kernel that a stage of the compiler rejected. ptx: what ptxas was given, "" before. files: what the
        stages before made, by ending."""

    # --- autotuning and launches

    def tuned(self, tuning: str, by: str, winner: str, among: Sequence[str]) -> None:
        """Keep an autotuner's choice, kernels by their hash. tuning: names the choice in this process."""

    def configured(
        self,
        function: str,
        key: Sequence[str],
        winner: str,
        configurations: Mapping[str, str],
        source: str | None = None,
        by: str = "Triton",
    ) -> None:
        """Keep which configurations of an autotuned function were tried for a key, as text by the kernel's hash.
        source: a hash of the function's. by: whose autotuner."""

    def selected(
        self, operation: str, arch: str, key: Sequence[str], chosen: str, among: Sequence[str], source: str | None
    ) -> None:
        """Keep which of Inductor's templates an operation got. source: a hash of the template's."""

    def keep_launch(self, record: str, key: str, launch: Launch, contents: Contents) -> None:
        """Count a launch, and keep it when it is the first of its kind. key: its own."""

    def count_launch(self, record: str, key: str) -> None:
        """Count a launch of a kind that was kept."""

    def miss_launch(self, record: str, why: str) -> None:
        """Keep why a launch could not be recorded."""
