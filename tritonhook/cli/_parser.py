"""The parser of the command line: errors in one line that name the verb and the option, and help in groups.

A verb is a module: its docstring is its help, its dataclass `Options` declares its arguments and options, and its
function `run` receives an `Options`. A verb with actions, such as `mem`, has ACTIONS instead, a tuple of Verbs.
"""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from tritonhook.errors import did_you_mean

TROUBLE = 2
_COMMAND = "tritonhook "  # a line with this prefix is a command
_PTXAS_OPTIONS = ("--options", "--candidate-options")  # their values begin with a dash
_Group = TypeVar("_Group", bound="Group")


class Help(argparse.HelpFormatter):
    """Breaks lines at blanks only: `sm_120a` and `--fail-over` stay whole. A command stays on one line if it fits."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = []
        for number, paragraph in enumerate(text.strip().split("\n\n")):
            lines = [line.strip() for line in paragraph.splitlines()]
            if number and lines[0].startswith(_COMMAND):  # paragraph 0 may be the text of --version
                paragraphs.append([part for line in lines for part in _command_lines(line, width)])
            else:
                paragraphs.append(_wrapped(paragraph, width))
        return "\n\n".join("\n".join(f"{indent}{line}" for line in lines) for lines in paragraphs) + "\n"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    one_line = " ".join(text.split())
    return textwrap.wrap(one_line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _command_lines(line: str, width: int) -> list[str]:
    """Format a command of a description. If it is too wide, put the remark after "#" on a line of its own above the
    command, and break the command with backslashes."""
    if len(line) + 2 <= width:
        return [f"  {line}"]
    command, _, remark = line.partition(" # ")
    above = [f"  # {part}" for part in _wrapped(remark, width - 4)] if remark else []
    *parts, last = _wrapped(command, width - 4, "    ")
    return [*above, *(f"  {part} \\" for part in parts), f"  {last}"]


class Parser(argparse.ArgumentParser):
    """Parses the arguments of one verb. Its errors name the verb and the option."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": Help, **settings})
        self._words: Sequence[str] = ()
        self.rest = ""  # field for the arguments after --; "": not accepted

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and raise an error for unknown arguments. The parser of the verb does this rather than the top parser,
        so that the error names the verb."""
        words, rest = self._without_rest(list(args or ()))
        self._words = self._joined(words)
        parsed, extra = super().parse_known_args(self._words, namespace)
        if self.rest:
            setattr(parsed, self.rest, rest)
        if extra:
            option = next((word for word in extra if word.startswith("-") and len(word) > 1), None)
            self.error(f"{' '.join(extra)}: not expected here" if option is None else self._unknown(option))
        return parsed, extra

    def _without_rest(self, words: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
        """Split the arguments at --: the verb's own, and those of the script that it runs."""
        if not self.rest or "--" not in words:
            return words, None
        return words[: words.index("--")], tuple(words[words.index("--") + 1 :])

    def _joined(self, words: list[str]) -> list[str]:
        """Join `--options -O1` to `--options=-O1`: argparse would read the value as another option."""
        if not self._takes_program():  # the program's own options may look like this
            for index in range(len(words) - 2, -1, -1):
                option, value = words[index : index + 2]
                if option in _PTXAS_OPTIONS and option in self._option_string_actions and value.startswith("-"):
                    words[index : index + 2] = [f"{option}={value}"]
        return words

    def _takes_program(self) -> bool:
        return any(action.nargs in (argparse.REMAINDER, argparse.PARSER) for action in self._actions)

    def error(self, message: str) -> NoReturn:
        """Report an error in one line, without the usage, which could fill the screen. If there is an unknown option,
        report that: it may have caused the error."""
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
        """List the long options; if the verb runs a program, only those before the program."""
        words = list(self._words)
        end = next((i for i, word in enumerate(words) if word == "--"), len(words))
        if self._takes_program():
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
    """Parses the verb. Its help lists the verbs in groups with titles."""

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


# --- options -------------------------------------------------------------------------------------

_DECLARED = "declared"  # key in the metadata of a field


@dataclass(frozen=True, slots=True)
class _Declared:
    """A field on the command line. names: names of an option; None: a positional argument. settings: keyword arguments
    of `add_argument`. one_of: options with the same text here exclude each other. convert: converts the parsed value
    just before the verb runs."""

    names: tuple[str, ...] | None
    settings: Mapping[str, Any]
    one_of: str = ""
    convert: Callable[[Any], Any] | None = None


class Group:
    """Options of one or several verbs: a frozen dataclass whose fields declare them.

    TITLE: title of the group in the help; "": the options are listed among the verb's own.
    """

    TITLE: ClassVar[str] = ""

    def check(self) -> None:
        """Raise UsageError, before any work, for values that are not allowed."""


def argument(convert: Callable[[Any], Any] | None = None, **settings: Any) -> Any:
    """Declare a positional argument named like its field. settings: keyword arguments of `add_argument`."""
    return field(metadata={_DECLARED: _Declared(None, settings, "", convert)})


def option(*names: str, one_of: str = "", convert: Callable[[Any], Any] | None = None, **settings: Any) -> Any:
    """Declare an option: `names`, else --field-name. The other arguments are those of _Declared."""
    return field(metadata={_DECLARED: _Declared(names, settings, one_of, convert)})


def flag(*names: str, one_of: str = "", help: str) -> Any:
    """Declare an option without a value; False if absent."""
    return option(*names, one_of=one_of, action="store_true", help=help)


def rest() -> Any:
    """Declare a field for the arguments after --, which go to the script that the verb runs; None without --."""
    return field(metadata={_DECLARED: _Declared(("--",), {})})


def part(kind: type[_Group]) -> _Group:
    """Declare a group of options that several verbs share."""
    made: Any = field(metadata={_DECLARED: kind})
    return cast(_Group, made)


def add_options(parser: argparse._ActionsContainer, kind: type[Group]) -> None:
    """Add the arguments and options that the fields of `kind` declare, in their order."""
    sets: dict[str, argparse._ActionsContainer] = {"": parser}
    for each in fields(cast(Any, kind)):
        declared: _Declared | type[Group] = each.metadata[_DECLARED]
        if isinstance(declared, type):
            add_options(parser.add_argument_group(declared.TITLE) if declared.TITLE else parser, declared)
            continue
        if declared.names == ("--",):
            cast(Parser, parser).rest = each.name
            continue
        if declared.one_of not in sets:
            sets[declared.one_of] = parser.add_mutually_exclusive_group()
        if declared.names is None:
            parser.add_argument(each.name, **declared.settings)
        else:
            names = declared.names or (_flag_of(each.name),)
            sets[declared.one_of].add_argument(*names, dest=each.name, **declared.settings)


def from_namespace(kind: type[_Group], namespace: argparse.Namespace) -> _Group:
    """Build the options from parsed arguments. Raises UsageError for values that are not allowed."""
    values: dict[str, Any] = {}
    for each in fields(cast(Any, kind)):
        declared = each.metadata[_DECLARED]
        if isinstance(declared, type):
            values[each.name] = from_namespace(declared, namespace)
            continue
        value = getattr(namespace, each.name)
        value = tuple(value) if isinstance(value, list) else value
        values[each.name] = value if declared.convert is None else declared.convert(value)
    made = kind(**values)
    made.check()
    return made


def given_options(*groups: Group) -> list[str]:
    """List the options of these groups that differ from their defaults, as written on the command line. Skip the groups
    inside a group (see `part`)."""
    options = []
    for group in groups:
        for each in fields(cast(Any, group)):
            declared = each.metadata[_DECLARED]
            if not isinstance(declared, type) and declared.names is not None:
                value, default = getattr(group, each.name), declared.settings.get("default")
                if value not in (None, ()) and value is not False and value != default:  # 0 counts as given
                    options.append(next(iter(declared.names[-1:]), _flag_of(each.name)))
    return options


# Types of options.


def positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of 1 or more")
    return int(text)


def words(text: str) -> tuple[str, ...]:
    """Split a list at its commas; equal words are kept once."""
    if not (found := tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))):
        raise argparse.ArgumentTypeError("give at least one")
    return found


def seconds(text: str) -> float:
    if not (0 < (value := _number(text)) < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of seconds above 0")
    return value


def share(example: float, zero: bool = False) -> Callable[[str], float]:
    """Return a parser for shares below 1, such as 0.01 or 1%. example: value for the error's text. zero: whether 0 is
    allowed."""

    def read(text: str) -> float:
        value = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not (0 < value < 1 or (zero and value == 0)):
            raise argparse.ArgumentTypeError(f"{text!r}: give a share such as {example:g} or {100 * example:g}%")
        return value

    return read


def _number(text: str) -> float:
    """Parse a number. Return nan for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def option_names(kind: type[Group]) -> set[str]:
    """Collect all names of the options of `kind`, e.g. {"-o", "--output"}."""
    names: set[str] = set()
    for each in fields(cast(Any, kind)):
        declared = each.metadata[_DECLARED]
        if isinstance(declared, type):
            names |= option_names(declared)
        elif declared.names is not None:
            names |= {*declared.names} or {_flag_of(each.name)}
    return names


def _flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- verbs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verb:
    """A verb, or an action of one. text: its help; the first line is shown in the list of verbs. actions: used instead
    of options and run."""

    name: str
    text: str
    options: type[Group] = Group
    run: Callable[[Any], int] = lambda options: 0
    actions: tuple[Verb, ...] = ()


def verb_in(package: str, name: str) -> Verb:
    """Load a verb from its module in the package."""
    module = import_module(f"{package}.{name}")
    text = (module.__doc__ or "").strip()
    if hasattr(module, "ACTIONS"):
        return Verb(name, text, actions=module.ACTIONS)
    return Verb(name, text, module.Options, module.run)


def add_verbs(parser: Parser, dest: str, verbs: Iterable[Verb]) -> None:
    """Add verbs to the parser. Parsing sets the attribute `chosen` to the Verb, and the attribute named `dest` to its
    name."""
    choices = parser.add_subparsers(dest=dest, metavar=dest.upper(), required=True, parser_class=Parser)
    for verb in verbs:
        sub = choices.add_parser(verb.name, help=verb.text.splitlines()[0], description=verb.text)
        if verb.actions:
            add_verbs(sub, "action", verb.actions)
        else:
            add_options(sub, verb.options)
            sub.set_defaults(chosen=verb)
