"""The command line: one file per verb. Exit codes as diff(1): 0 same or done, 1 different, 2 could not tell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from tritonhook import __version__
from tritonhook.cli._results import check_results
from tritonhook.cli._streams import complain, end_streams, open_streams, write_out
from tritonhook.cli._verbs import add_verbs

VERBS = (
    *("run", "startup", "show", "report", "rename", "diff", "ab", "probe", "caps"),
    *("mem", "ptxas", "table", "demo", "status"),
)
TROUBLE = 2
INTERRUPTED = 130
_WITH_OPTIONS = ("diff", "ab", "probe")  # the verbs that have --options
_OPTIONS = ("--options", "--candidate-options")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence: a verb's usage alone can fill the screen. Verbs' parsers are of its type."""

    def error(self, message: str) -> NoReturn:
        self.exit(TROUBLE, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def parser() -> argparse.ArgumentParser:
    """The parser; each verb's module adds its own arguments."""
    top: argparse.ArgumentParser = _Parser(
        prog="tritonhook",
        description="See, compare and time the machine code of Triton, CuTe and CUDA kernels, with or without a GPU.",
        epilog="Exit codes: 0 same or done, 1 different, 2 trouble.",
    )
    top.add_argument("--version", action="version", version=f"tritonhook {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    add_verbs(verbs, "tritonhook.cli", VERBS, to="run")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code. No error of any kind ends with 1, "different"."""
    open_streams()
    verb = ""
    try:
        arguments = _parse(sys.argv[1:] if argv is None else argv)
        verb = arguments.verb
        check_results(arguments)
        code = int(arguments.run(arguments))
        write_out()  # what print() has left in the buffer: here a failure still has a place to go
        return code
    except BrokenPipeError:  # the reader has left and is no longer interested
        return TROUBLE
    except (Exception, KeyboardInterrupt) as error:
        complain(verb, error)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else TROUBLE
    finally:
        end_streams()


def _parse(words: Sequence[str]) -> argparse.Namespace:
    words, rest = list(words), None
    if words[:1] == ["ab"] and "--" in words:  # what follows is for the script that it times
        words, rest = words[: words.index("--")], words[words.index("--") + 1 :]
    try:
        return parser().parse_args(_join_options(words), argparse.Namespace(rest=rest))
    finally:
        write_out()  # --help and --version print and exit


def _join_options(words: Sequence[str]) -> list[str]:
    """`--options -O1` as `--options=-O1`: argparse would take the value for an option of its own."""
    joined = list(words)
    if joined[:1] and joined[0] in _WITH_OPTIONS:  # not `run`, where such words are the script's
        for index in range(len(joined) - 2, 0, -1):
            if joined[index] in _OPTIONS and joined[index + 1].startswith("-"):
                joined[index : index + 2] = [f"{joined[index]}={joined[index + 1]}"]
    return joined
