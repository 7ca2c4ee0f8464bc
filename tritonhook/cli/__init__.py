"""The command line: one file per verb. Exit codes as in diff(1): 0 same or done, 1 different, 2 error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tritonhook import __version__
from tritonhook.capture.project import read_project
from tritonhook.cli._parser import TROUBLE, TopParser, Verb, add_verbs, from_namespace, verb_in
from tritonhook.cli._signals import interruptible
from tritonhook.cli._streams import complain, streams, write_err, write_out
from tritonhook.errors import INTERRUPTED, ProgramError

GROUPS = {
    "daily": ("run", "show", "diff", "lock", "check", "verify", "ab", "tune", "mem"),
    "more": (*("emulate", "bisect", "rename", "lab", "ptxas", "demo"), *("status", "completion", "help")),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of the command line. only: load only the module of this verb; None: load all verbs."""
    top = TopParser(
        GROUPS,
        prog="tritonhook",
        description="See, compare and time the machine code of Triton, CuTe and CUDA kernels, with or without a GPU.",
        epilog="`tritonhook help VERB` explains a verb. Exit codes: 0 same or done, 1 different, 2 error.",
    )
    top.add_argument("--version", action="version", version=f"tritonhook {__version__}")
    add_verbs(top, "verb", (verb_in("tritonhook.cli", name) for name in (VERBS if only is None else (only,))))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error never has the exit code 1, which means "different"."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words and words[0] in VERBS else ""
    with streams(), interruptible():
        try:
            if not words:
                write_err(parser().format_help())
                return TROUBLE
            arguments = _parse(words)
            verb = " ".join(filter(None, (arguments.verb, getattr(arguments, "action", None))))
            chosen: Verb = arguments.chosen
            with read_project(Path.cwd()).as_environment():
                code = chosen.run(from_namespace(chosen.options, arguments))
            write_out()  # flush print()'s buffer while an error can still be reported
            return code
        except BrokenPipeError:  # a reader such as `head` has closed the pipe
            return TROUBLE
        except (Exception, KeyboardInterrupt) as error:
            complain(verb, error)
            return exit_code(error)


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error. If signal N ended the verb or the program that it ran, the code is 128 + N, as
    in a shell."""
    if isinstance(error, ProgramError):
        return error.status if error.status > 128 else TROUBLE
    return getattr(error, "status", INTERRUPTED) if isinstance(error, KeyboardInterrupt) else TROUBLE


def _parse(words: Sequence[str]) -> argparse.Namespace:
    try:
        return parser(words[0] if words[0] in VERBS else None).parse_args(words)
    finally:
        write_out()  # --help and --version print and exit
