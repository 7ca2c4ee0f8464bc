"""The exceptions of tritonhook. Each message names the faulty thing, its value and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

_LISTED = 10
INTERRUPTED = 130  # exit code after Ctrl-C, as in shells


class TritonHookError(Exception):
    """Base class of tritonhook's own errors. The command line prints the message in one line and exits with code 2."""


class ToolError(TritonHookError):
    """ptxas or nvdisasm is missing, unusable, or failed."""


class PtxError(TritonHookError):
    """The text is not PTX, or the rewrite cannot be applied to it."""


class CubinError(TritonHookError):
    """The bytes are not a readable CUDA ELF image."""


class NotUnderstood(TritonHookError):
    """The emulator does not support an opcode, modifier or operand. It never guesses a meaning.

    opcode: with its modifiers. line: line of the PTX, or address in the machine code; None if not known.
    why: the unsupported operand or state; "" if the opcode itself is unsupported.
    """

    def __init__(self, opcode: str, line: int | None = None, why: str = "") -> None:
        self.opcode, self.line, self.why = opcode, line, why
        super().__init__(opcode, line, why)

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.opcode}{f' ({self.why})' if self.why else ''}"


class EmulationError(TritonHookError):
    """The emulator could not execute a launch."""


class KernelFault(EmulationError):
    """A fault of the kernel itself, such as an access out of bounds or a hang, ended its emulated launch."""


class CaptureError(TritonHookError):
    """A capture folder or a hook cannot be used."""


class SnapshotError(TritonHookError):
    """A lock file, or the PTX stored beside it, cannot be used."""


class PolicyError(TritonHookError):
    """A policy file (tritonhook.toml, written by `tritonhook tune`) cannot be used."""


class UsageError(TritonHookError):
    """An argument is invalid, or arguments do not fit together."""


class ProgramError(TritonHookError):
    """The user's program, run by a command, failed. status: its exit code, or 128 plus the number of the signal that
    ended it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Terminated(KeyboardInterrupt):
    """A signal such as SIGTERM. It ends a command as Ctrl-C does: temporary folders and child processes are removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class StartupError(TritonHookError):
    """The .pth file cannot be installed into a Python environment or removed from it."""


class DeviceError(TritonHookError):
    """There is no GPU or no driver, or the driver refused a request. code: the driver's name or number of the error."""

    def __init__(self, message: str, code: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code


def listed(names: Collection[str], between: str = ", ") -> str:
    """Join names for a message, at most the first ten: "a, b" or "a, b and 2,998 more"; "none" if there are none."""
    more = len(names) - _LISTED
    end = "" if more <= 0 else f"{' ' if between == ', ' else between}and {more:,} more"
    return (between.join(islice(names, _LISTED)) or "none") + end


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known name closest to `word`: "; did you mean --ptxas?"; "" if no name is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, known)
    return f"; did you mean {close[0]}?" if close else ""
