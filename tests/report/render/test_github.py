"""Kernels before and after as GitHub shows them: a comment below its limit, annotations, a summary."""

from __future__ import annotations

from dataclasses import replace

import pytest
from documents import HOSTILE

from tests.snapshot.test_changes import facts
from tritonhook.report.render.github import MARK, annotation_commands, has_section, job_summary, joined
from tritonhook.report.results.snapshot import KernelChanges
from tritonhook.snapshot.changes import compare
from tritonhook.snapshot.facts import KernelFacts
from tritonhook.snapshot.rules import failures, rules
from tritonhook.snapshot.spills import SourceLine

LIMIT = 65_536  # characters of a comment; more are refused
COMMIT = "9d2c3e1f00aa4b5c6d7e8f90123456789abcdef0"
LINK = "https://example.org/hello/kernels/actions/runs/1"


def spilling(name: str, stores: int) -> KernelFacts:
    return replace(facts(name, code=str(stores)), figures=facts(spill_stores=stores, spill_loads=stores).figures)


def compared(old: list[KernelFacts], new: list[KernelFacts], rule: str = "", side: str = "captures") -> KernelChanges:
    changes = compare(old, new)
    return KernelChanges.of("tritonhook.lock", side, changes, failures(changes, rules(rule) if rule else ()))


def many(amount: int, name: str = "k") -> KernelChanges:
    numbers = range(amount)
    return compared(
        [spilling(f"{name}{n}", 0) for n in numbers],
        [spilling(f"{name}{n}", 4 * n + 4) for n in numbers],
        "spills,code",
    )


def rows(comment: str) -> list[list[str]]:
    lines = [line for line in comment.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_a_row_says_what_changed_and_who_did_it() -> None:
    old, new = spilling("attention", 0), spilling("attention", 128)
    comment = joined("", compared([old, spilling("same", 0)], [new, spilling("same", 0)], "spills"), COMMIT, LINK)
    ((name, arch, registers, spills, size, by),) = rows(comment)
    assert (name, arch, spills) == ("**attention**", "**sm\\_90a**", "**0 → 128/128**")
    assert registers.strip("*") == str(old.figures["registers"])
    assert size.strip("*") == f"{16 * (old.figures['instructions'] or 0):,}"
    assert by
    assert comment.startswith(f"{MARK}\n") and LINK in comment and COMMIT[:12] in comment
    assert "fails: spills: 1 kernel\n" in comment


@pytest.mark.parametrize(
    "name", ["kernel_" * 60, *(pytest.param(n, marks=pytest.mark.nightly) for n in ("k", "\U0001f600" * 90, "|`<!--"))]
)
def test_the_comment_of_5000_kernels_stays_below_githubs_limit(name: str) -> None:
    result = many(5000, name)
    comment = joined("", result, COMMIT, LINK)
    assert 20_000 < len(comment.encode()) < LIMIT
    shown = rows(comment)
    assert f"{5000 - len(shown):,} further kernels" in comment
    assert "5,000 kernels: 5,000 changed" in comment and "fails: code: 5,000 kernels" in comment
    assert has_section(comment, result, COMMIT)
    assert len(job_summary(result).encode()) < 1 << 20


def test_the_worst_kernels_are_the_ones_that_are_shown() -> None:
    shown = rows(joined("", many(5000), COMMIT, LINK))
    assert [row[0] for row in shown] == [f"**k{4999 - n}**" for n in range(len(shown))]


def test_several_checks_share_the_comment_and_its_room() -> None:
    large, small = many(800), replace_side(many(3), "ptxas 13.4.59")
    results = [*(replace_side(large, f"ptxas {n}") for n in range(5)), small]
    comment = ""
    for result in results:
        comment = joined(comment, result, COMMIT, LINK)
    assert len(comment.encode()) < LIMIT
    assert all(has_section(comment, result, COMMIT) for result in results)
    again = joined(comment, results[0], COMMIT, LINK)
    assert again.count("<!-- tritonhook section") == len(results)  # in its old place
    for n in range(5, 15):
        comment = joined(comment, last := replace_side(large, f"ptxas {n}"), COMMIT, LINK)
    assert len(comment.encode()) < LIMIT and has_section(comment, last, COMMIT)  # the earliest ones go


def replace_side(result: KernelChanges, side: str) -> KernelChanges:
    return KernelChanges(result.old, side, result.counts, result.kernels, result.notes)


def test_sections_of_other_commits_go() -> None:
    before = joined("", many(3), "1" * 40, LINK)
    after = joined(before, replace_side(many(2), "other"), COMMIT, LINK)
    assert not has_section(after, many(3), "1" * 40) and after.count("<!-- tritonhook section") == 1


@pytest.mark.parametrize("text", [HOSTILE, "<!-- tritonhook end -->", "`<!-- tritonhook end -->`", "@everyone", "a|b"])
def test_no_name_becomes_markup_or_ends_the_section(text: str) -> None:
    result = compared([spilling(text, 0)], [spilling(text, 4)], side=text)
    comment = joined("", result, COMMIT, LINK)
    assert comment.count("<!--") == 3 and has_section(comment, result, COMMIT)
    assert joined(comment, result, COMMIT, LINK) == comment


def test_the_level_of_an_annotation() -> None:
    old = [spilling("broken", 0), spilling("same", 8)]
    new = [spilling("broken", 64), spilling("same", 8), spilling("new", 16)]
    result = compared(old, new, "spills")
    lines = {"broken": SourceLine("src/a.py", 3), "same": SourceLine("src/a.py", 9), "new": SourceLine("b,c:%.py", 1)}
    error, also, notice = annotation_commands(result, [lines[kernel.kernel] for kernel in result.kernels])
    assert error.startswith("::error file=src/a.py,line=3,title=") and "64/64 bytes" in error and "before 0" in error
    assert also.startswith("::error file=b%2Cc%3A%25.py,line=1,") and "16/16 bytes" in also
    without = compared(old, new, "registers")
    warnings = list(annotation_commands(without, [lines[kernel.kernel] for kernel in without.kernels]))[:2]
    assert all(warning.startswith("::warning ") for warning in warnings)
    assert notice.startswith("::notice file=src/a.py,line=9,")


def test_kernels_of_one_line_share_an_annotation_and_a_level_has_ten() -> None:
    result = many(40)
    found = list(annotation_commands(result, [SourceLine("a.py", n // 2 + 1) for n in range(40)]))
    assert len(found) == 10 and all("and 1 further kernel here" in command for command in found)
    assert "line=1," in found[0]  # the worst
    (one,) = annotation_commands(many(1), [SourceLine("a\nb.py", 1)])
    assert "\n" not in one
