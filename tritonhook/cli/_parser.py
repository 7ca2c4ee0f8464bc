"""The parser of the command line: errors of one line that name the verb and the option, and help grouped by task."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

TROUBLE = 2
_COMMAND = "tritonhook "  # begins a list of commands in a description


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean --ptxas?" if one of the known words is close to it, else nothing."""
    close = get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


class Help(argparse.HelpFormatter):
    """Breaks lines at blanks only: `sm_120a` and `--fail-over` stay whole. Commands keep their lines if they fit."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = []
        for paragraph in text.strip().split("\n\n"):
            lines = [line.strip() for line in paragraph.splitlines()]
            if lines[0].startswith(_COMMAND):
                paragraphs.append([part for line in lines for part in _command_lines(line, width)])
            else:
                paragraphs.append(_wrapped(paragraph, width))
        return "\n\n".join("\n".join(f"{indent}{line}" for line in lines) for lines in paragraphs) + "\n"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    one_line = " ".join(text.split())
    return textwrap.wrap(one_line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _command_lines(line: str, width: int) -> list[str]:
    """A command of a description. If it is too wide, its remark stands above it, and it is continued as in a shell."""
    if len(line) + 2 <= width:
        return [f"  {line}"]
    command, _, remark = line.partition(" # ")
    above = [f"  # {part}" for part in _wrapped(remark, width - 4)] if remark else []
    *parts, last = _wrapped(command, width - 4, "    ")
    return [*above, *(f"  {part} \\" for part in parts), f"  {last}"]


class Parser(argparse.ArgumentParser):
    """Parses the words of one verb. Its errors name the verb and the option; the verbs' parsers are of this type."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": Help, **settings})
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Raise an error for words that are left over, here and not in the parser above: this one knows the verb."""
        self._words = list(args or ())
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            option = next((word for word in extra if word.startswith("-") and len(word) > 1), None)
            self.error(f"{' '.join(extra)}: not expected here" if option is None else self._unknown(option))
        return found, extra

    def error(self, message: str) -> NoReturn:
        """Report an error in one line: the usage can fill the screen. An unknown option may be the cause of others."""
        option = next((word for word in self._leading_options() if not self._knows(word)), None)
        text = message if option is None else self._unknown(option)
        end = " See" if text.endswith("?") else "; see"
        self.exit(TROUBLE, f"{self.prog}: {text}{end} `{self.prog} --help`\n")

    def _unknown(self, word: str) -> str:
        option = word.partition("=")[0]
        return f"{option}: no such option{did_you_mean(option, self._option_string_actions)}"

    def _knows(self, word: str) -> bool:
        option = word.partition("=")[0]
        return any(known.startswith(option) for known in self._option_string_actions)

    def _leading_options(self) -> list[str]:
        """The long options among the words; of a verb that takes a program, those before the first other word."""
        words = list(self._words)
        takes_program = any(action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions)
        end = next((i for i, word in enumerate(words) if word == "--"), len(words))
        if takes_program:
            end = next((i for i, word in enumerate(words) if not word.startswith("-")), end)
        return [word for word in words[:end] if word.startswith("--")]

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"{value}: no such {str(action.metavar).lower()}{did_you_mean(value, known)}")
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}")


class TopParser(Parser):
    """Parses the verb. Its help lists the verbs by task: the title of each group, and its verbs."""

    def __init__(self, groups: Mapping[str, Sequence[str]], **settings: Any) -> None:
        super().__init__(**settings)
        self._groups = groups

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        verbs = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        listed = {choice.dest: choice for choice in verbs._choices_actions}
        options = [action for action in self._actions if action.option_strings]
        groups = {title: [listed[name] for name in names] for title, names in self._groups.items()}
        for title, actions in {**groups, "options": options}.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()
