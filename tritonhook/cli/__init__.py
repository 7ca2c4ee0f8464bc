"""The command line: one file per verb. Exit codes as diff(1): 0 same or done, 1 different, 2 could not tell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from tritonhook import __version__
from tritonhook.errors import TritonHookError

VERBS = ("run", "show", "rename", "diff", "ab", "ptxas", "table", "demo", "status")
TROUBLE = 2


def parser() -> argparse.ArgumentParser:
    """The parser; each verb's module adds its own arguments."""
    top = argparse.ArgumentParser(
        prog="tritonhook",
        description="What does the name of a GPU kernel do to its machine code?",
        epilog="Exit codes: 0 same or done, 1 different, 2 trouble.",
    )
    top.add_argument("--version", action="version", version=f"tritonhook {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        module = import_module(f"tritonhook.cli.{verb}")
        text = (module.__doc__ or "").strip()
        sub = verbs.add_parser(
            verb,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code."""
    arguments = parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except TritonHookError as error:
        print(f"tritonhook {arguments.verb}: {error}", file=sys.stderr)
        return TROUBLE
    except BrokenPipeError:
        sys.stderr.close()
        return TROUBLE
    except KeyboardInterrupt:
        print(f"tritonhook {arguments.verb}: interrupted", file=sys.stderr)
        return 130
