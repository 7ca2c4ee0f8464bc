"""The command line: one file per verb. Exit codes as in diff(1): 0 same or done, 1 different, 2 trouble."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tritonhook import __version__
from tritonhook.cli._parser import TROUBLE, Parser, TopParser
from tritonhook.cli._places import resolve_places
from tritonhook.cli._project import read_project
from tritonhook.cli._results import check_results
from tritonhook.cli._streams import complain, streams, write_err, write_out
from tritonhook.cli._verbs import add_verbs
from tritonhook.errors import INTERRUPTED

GROUPS = {
    "capture": ("run", "show", "startup"),
    "compare": ("diff", "lock", "check", "verify", "bisect", "rename", "report"),
    "time": ("ab", "tune", "policy"),
    "memory": ("mem",),
    "lab": ("probe", "caps", "table"),
    "tools": ("demo", "ptxas", "status", "completion", "help"),
}
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
_WITH_OPTIONS = ("diff", "ab", "check", "verify", "bisect", "probe")  # the verbs that have --options
_OPTIONS = ("--options", "--candidate-options")


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Make the parser; each verb's module adds its own arguments. only: the one verb to load; None: all of them."""
    top = TopParser(
        GROUPS,
        prog="tritonhook",
        description="See, compare and time the machine code of Triton, CuTe and CUDA kernels, with or without a GPU.",
        epilog="`tritonhook help VERB` explains a verb. Exit codes: 0 same or done, 1 different, 2 trouble.",
    )
    top.add_argument("--version", action="version", version=f"tritonhook {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    add_verbs(verbs, "tritonhook.cli", VERBS if only is None else (only,), to="run")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code. No error of any kind ends with 1, "different"."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words and words[0] in VERBS else ""
    with streams():
        try:
            if not words:
                write_err(parser().format_help())
                return TROUBLE
            arguments = _parse(words)
            verb = " ".join(filter(None, (arguments.verb, getattr(arguments, "action", None))))
            project = read_project(Path.cwd())
            project.fill_in(arguments)
            with project.as_environment():
                resolve_places(arguments)
                check_results(arguments)
                code = int(arguments.run(arguments))
            write_out()  # flush what print() has buffered, while an error can still be reported
            return code
        except BrokenPipeError:  # the reader, e.g. `head`, has closed the pipe
            return TROUBLE
        except (Exception, KeyboardInterrupt) as error:
            complain(verb, error)
            return INTERRUPTED if isinstance(error, KeyboardInterrupt) else TROUBLE


def _parse(words: Sequence[str]) -> argparse.Namespace:
    words, rest = list(words), None
    if words[:1] in (["ab"], ["verify"], ["tune"]) and "--" in words:  # the rest is for the script that is run
        words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
    try:
        only = words[0] if words and words[0] in VERBS else None
        return parser(only).parse_args(_join_options(words), argparse.Namespace(rest=rest))
    finally:
        write_out()  # --help and --version print and exit


def _join_options(words: Sequence[str]) -> list[str]:
    """Join `--options -O1` to `--options=-O1`: argparse would take the value for another option."""
    joined = list(words)
    if joined[:1] and joined[0] in _WITH_OPTIONS:  # not `run`: there the script may have such options
        for index in range(len(joined) - 2, 0, -1):
            if joined[index] in _OPTIONS and joined[index + 1].startswith("-"):
                joined[index : index + 2] = [f"{joined[index]}={joined[index + 1]}"]
    return joined
