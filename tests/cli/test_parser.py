"""The parser of the command line, with options made up here: what it takes, its errors of one line, and its help."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tritonhook.cli._parser import (
    Group,
    Parser,
    TopParser,
    Verb,
    add_options,
    add_verbs,
    argument,
    flag,
    from_namespace,
    given_options,
    option,
    part,
    positive,
    rest,
    seconds,
    share,
)
from tritonhook.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Tool(Group):
    TITLE: ClassVar[str] = "tools"
    ptxas_options: str | None = option("--options", "--with")
    level: int = option(type=int, default=3)


@dataclass(frozen=True, kw_only=True)
class Plain(Group):
    json: bool = flag(one_of="printed", help="as JSON")
    csv: bool = flag(one_of="printed", help="as CSV")


@dataclass(frozen=True, kw_only=True)
class Options(Group):
    places: tuple[str, ...] = argument(nargs="*", convert=lambda given: tuple(word.upper() for word in given))
    mode: str | None = option(choices=("fast", "slow"))
    dry_run: bool = flag(help="launch nothing")
    words: tuple[str, ...] | None = rest()
    tool: Tool = part(Tool)
    plain: Plain = part(Plain)

    def check(self) -> None:
        if self.tool.level > 9:
            raise UsageError("--level: too high")


@dataclass(frozen=True, kw_only=True)
class Program(Group):
    dry_run: bool = flag(help="launch nothing")
    program: tuple[str, ...] = argument(nargs=argparse.REMAINDER)


def parsed(*words: str) -> Options:
    parser = Parser(prog="verb")
    add_options(parser, Options)
    return from_namespace(Options, parser.parse_args(list(words)))


def error(capsys: pytest.CaptureFixture, *words: str, kind: type[Group] = Options) -> str:
    parser = Parser(prog="verb")
    add_options(parser, kind)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(list(words))
    assert ended.value.code == 2
    return str(capsys.readouterr().err)


def test_each_field_gets_what_was_given_or_its_default() -> None:
    tool, plain = Tool(ptxas_options=None, level=3), Plain(json=False, csv=False)
    assert parsed() == Options(places=(), mode=None, dry_run=False, tool=tool, plain=plain, words=None)
    words = ("a", "--mode", "slow", "--dry-run", "--options", "-O1 -v", "--level=5", "--csv", "--", "--mode", "x", "--")
    assert parsed(*words) == Options(
        places=("A",),
        mode="slow",
        dry_run=True,
        tool=Tool(ptxas_options="-O1 -v", level=5),
        plain=Plain(json=False, csv=True),
        words=("--mode", "x", "--"),
    )
    assert parsed("--options", "-O1", "--options", "-O2").tool.ptxas_options == "-O2"
    assert parsed("--with", "O1").tool.ptxas_options == "O1"
    assert parsed("--").words == ()
    with pytest.raises(UsageError, match="too high"):
        parsed("--level", "10")


def test_given_options_are_those_without_their_defaults() -> None:
    assert given_options(parsed("a"), parsed("--level", "3").tool) == []
    some = parsed("a", "--dry-run", "--mode", "fast", "--options", "-O1", "--level", "0", "--json", "--", "b")
    written = ["--mode", "--dry-run", "--", "--with", "--level", "--json"]
    assert given_options(some, some.tool, some.plain) == written


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mod", "slow", "--dri"], "--dri: no such option"),
        (["--dry-runs"], "--dry-runs: no such option; did you mean --dry-run? See"),
        (["--level=x", "--modes=1"], "--modes: no such option; did you mean --mode? See"),
        (["--mode", "slo"], "argument --mode: 'slo' is not one of fast, slow; did you mean slow? See"),
        (["--level", "x"], "invalid int value: 'x'; see"),
        (["--json", "--csv"], "not allowed with argument --json; see"),
        (["-x"], "-x: no such option"),
        (["--mode"], "expected one argument"),
        (["--mode", "--", "--nothing"], "argument --mode: expected one argument; see"),
    ],
)
def test_an_error_is_one_line_that_names_the_option(words: list[str], said: str, capsys) -> None:
    shown = error(capsys, *words)
    assert said in shown and shown.startswith("verb: ") and shown.endswith(" `verb --help`\n")
    assert shown.count("\n") == 1


def test_a_program_keeps_its_own_options(capsys) -> None:
    parser = Parser(prog="verb")
    add_options(parser, Program)
    words = ["--dry-run", "script.py", "--options", "-O1", "--unknown"]
    assert from_namespace(Program, parser.parse_args(words)) == Program(dry_run=True, program=tuple(words[1:]))
    assert "--dry-runs: no such option; did you mean" in error(capsys, "--dry-runs", "a", "--unknown", kind=Program)


VERBS = (
    Verb("first", "The first verb.\n\nMore of it.", Plain),
    Verb("tool", "Tools.", actions=(Verb("add", "Add one.", Tool), Verb("remove", "Remove one.", Plain))),
)


def top() -> TopParser:
    made = TopParser({"daily": ("tool",), "more": ("first",)}, prog="top", description="What it is.", epilog="The end.")
    add_verbs(made, "verb", VERBS)
    return made


def test_a_verb_and_its_action_are_chosen(capsys) -> None:
    found = top().parse_args(["tool", "add", "--level", "4"])
    assert (found.verb, found.action, found.level) == ("tool", "add", 4)
    assert found.chosen is VERBS[1].actions[0]
    assert top().parse_args(["first"]).chosen is VERBS[0]
    for words, said in (
        (["frist"], "top: frist: no such verb; did you mean first? See `top --help`\n"),
        (["tool", "ad"], "top tool: ad: no such action; did you mean add? See `top tool --help`\n"),
        (["tool", "add", "--lever"], "top tool add: --lever: no such option; did you mean --level? See"),
        (["tool"], "top tool: the following arguments are required: ACTION; see `top tool --help`\n"),
        ([], "top: the following arguments are required: VERB; see `top --help`\n"),
    ):
        with pytest.raises(SystemExit):
            top().parse_args(words)
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_count_is_1_or_more(text: str) -> None:
    assert positive("1") == 1 and positive("20") == 20
    with pytest.raises(argparse.ArgumentTypeError, match=repr(text)):
        positive(text)


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "x"])
def test_seconds_are_above_0(text: str) -> None:
    assert seconds("0.5") == 0.5
    with pytest.raises(argparse.ArgumentTypeError, match=repr(text)):
        seconds(text)


def test_a_share_is_a_number_or_a_percentage_below_1() -> None:
    assert share(0.01)("0.25") == share(0.01)("25%") == 0.25
    assert share(0.01, zero=True)("0") == 0 and math.isclose(share(0.01)("99.9%"), 0.999)
    for text, zero in (("0", False), ("1", True), ("100%", False), ("-0.1", True), ("x%", True)):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{text!r}: .* 0.01 or 1%"):
            share(0.01, zero)(text)
