"""Print a script that completes verbs, options and files in your shell.

tritonhook completion bash > ~/.local/share/bash-completion/completions/tritonhook
tritonhook completion zsh > ~/.zfunc/_tritonhook       # with ~/.zfunc in $fpath
tritonhook completion fish > ~/.config/fish/completions/tritonhook.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from tritonhook.cli._parser import Group, argument
from tritonhook.cli._streams import write_out

SHELLS = ("bash", "zsh", "fish", "tcsh")
_NO_FILES = ("REGEX", "NAME", "N", "VERB", "VERSION", "NAME,...", "SM", "KEY", "S", "MS", "SIZE", "R")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    shell: str = argument(choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(options: Options) -> int:
    import shtab

    from tritonhook.cli import parser

    top = parser()
    for action in _arguments(top):
        if action.choices is None and action.nargs != 0 and action.metavar not in _NO_FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it
    write_out(shtab.complete(top, options.shell))
    return 0


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield those arguments of all verbs that accept a file."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _arguments(verb)
        elif not action.option_strings or action.metavar == "FILE" or "PATH" in str(action.metavar):
            yield action
