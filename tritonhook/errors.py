"""The errors of tritonhook. Each message names the thing, its value and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

_LISTED = 10
INTERRUPTED = 130  # exit code after Ctrl-C, as shells give it


class TritonHookError(Exception):
    """Base of every error raised on purpose. The command line prints it in one line and exits with 2."""


class ToolError(TritonHookError):
    """ptxas or nvdisasm is missing, unusable, or failed."""


class PtxError(TritonHookError):
    """The text is not PTX, or a rewrite does not fit it."""


class CubinError(TritonHookError):
    """The bytes are not a CUDA ELF image that can be read."""


class NotUnderstood(TritonHookError):
    """An opcode, modifier or operand that the emulator does not know. It never guesses.

    opcode: with its modifiers. line: in the PTX, or the address in the machine code; None if unknown.
    why: an unknown operand or state; "" if the opcode is unknown.
    """

    def __init__(self, opcode: str, line: int | None = None, why: str = "") -> None:
        self.opcode, self.line, self.why = opcode, line, why
        super().__init__(opcode, line, why)

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.opcode}{f' ({self.why})' if self.why else ''}"


class EmulationError(TritonHookError):
    """A launch that the emulator could not execute."""


class KernelFault(EmulationError):
    """A fault of a kernel, such as an access out of bounds or a hang, which ended its launch on the CPU."""


class CaptureError(TritonHookError):
    """A capture folder or a hook cannot be used."""


class SnapshotError(TritonHookError):
    """A lock, or the PTX kept beside it, cannot be used."""


class PolicyError(TritonHookError):
    """A policy, the file of levers to apply, cannot be used."""


class UsageError(TritonHookError):
    """A command was called with arguments that do not go together."""


class ProgramError(TritonHookError):
    """A program that a verb ran failed. status: its exit code, or 128 and the number of the signal that ended it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Terminated(KeyboardInterrupt):
    """A signal such as SIGTERM ends a verb as Ctrl-C does: its temporary folders and its processes go away."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class StartupError(TritonHookError):
    """The .pth file cannot be installed into an environment or removed from it."""


class DeviceError(TritonHookError):
    """No GPU or driver, or it refused a request. `code` is the driver's name or number of the error."""

    def __init__(self, message: str, code: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code


def listed(names: Collection[str], between: str = ", ") -> str:
    """List names in a message, the first ten: "a, b", "a, b and 2,998 more", "none"."""
    more = len(names) - _LISTED
    end = "" if more <= 0 else f"{' ' if between == ', ' else between}and {more:,} more"
    return (between.join(islice(names, _LISTED)) or "none") + end


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest a known name that is close to an unknown one: "; did you mean --ptxas?"; else ""."""
    from difflib import get_close_matches

    close = get_close_matches(word, known)
    return f"; did you mean {close[0]}?" if close else ""
