"""GitHub output of a comparison of kernels: a comment on the pull request, the job's summary, and annotations.

All checks of a pull request share one comment, and each check has a section in it. A section's first line names the
commit that it reports on. The texts of a result are untrusted, and are escaped as in Markdown.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tritonhook.cubin.sass import INSTRUCTION_BYTES
from tritonhook.report.render.markdown import SIGNS, code_span, escaped, markdown_table, render_markdown
from tritonhook.report.result import Table, Tone, both, count, number, short, spills
from tritonhook.report.results.snapshot import KernelChange, KernelChanges, namer
from tritonhook.snapshot.changes import ChangeStatus
from tritonhook.snapshot.spills import SourceLine

MARK = "<!-- tritonhook -->"  # first line of the comment
_MOST_BYTES = 65_000  # of a comment; GitHub accepts 65,536 characters
_LEAST_BYTES = 1_000  # of a section; enough for its verdict
_LEAST_ROW_BYTES = 40
_MOST_FACTS = 10
_MOST_SUMMARY_FACTS = 200  # GitHub accepts a summary of 1 MiB
_MOST_ANNOTATIONS = 10  # of each level; GitHub shows no more for one step
_COLUMNS = ("kernel", "architecture", "registers", "spills", "code, bytes", "changed by")
_SECTION = re.compile(
    r"<!-- tritonhook section (?P<key>[0-9a-f]+) (?P<commit>\S+) -->\n(?P<text>.*?)<!-- tritonhook end -->\n", re.DOTALL
)


# --- the comment ---------------------------------------------------------------------------------


def section_key(result: KernelChanges) -> str:
    """Hash the two compared paths to a key that tells this check from the others in a workflow."""
    return hashlib.sha256(f"{result.old}\n{result.new}".encode()).hexdigest()[:12]


def joined(comment: str, result: KernelChanges, commit: str, link: str) -> str:
    """Insert this check's section into the comment, or replace its older section; remove sections about other commits.

    comment: the current text, "" if there is no comment. link: URL of the workflow run.
    """
    own = section_key(result)
    kept = {match["key"]: match[0] for match in _SECTION.finditer(comment) if match["commit"] == commit}
    room = _MOST_BYTES - len(MARK) - 1 - sum(_bytes(text) for key, text in kept.items() if key != own)
    begin, end = f"<!-- tritonhook section {own} {commit} -->\n", "<!-- tritonhook end -->\n"
    text = _section(result, commit, link, max(room // 2, _LEAST_BYTES))  # the other half is left to further checks
    kept[own] = begin + text.replace("<!--", "<\u200b!--") + end
    while len(kept) > 1 and sum(map(_bytes, kept.values())) > _MOST_BYTES:
        del kept[next(key for key in kept if key != own)]
    return f"{MARK}\n{''.join(kept.values())}"


def has_section(comment: str, result: KernelChanges, commit: str) -> bool:
    """Return whether the comment has this check's section for this commit."""
    sections = ((each["key"], each["commit"]) for each in _SECTION.finditer(comment))
    return (section_key(result), commit) in sections


def _bytes(text: str) -> int:
    return len(text.encode())


def _section(result: KernelChanges, commit: str, link: str, room: int) -> str:
    """Write a section of at most `room` bytes: always the verdict; the facts and notes only if they need at most half
    of the remaining bytes; then as many table rows as fit."""
    summary = result.summary()
    head = f"### {SIGNS[summary.tone]} {escaped(summary.verdict)}\n\n"
    head += f"{code_span(short(result.old, 100))} → {code_span(short(result.new, 100))} at {code_span(commit[:12])}\n\n"
    tail = f"[Job summary and report]({link})\n" if link else ""
    left = room - _bytes(head) - _bytes(tail)
    facts = "".join(f"- {escaped(short(fact, 300))}\n" for fact in _facts(result))
    notes = "".join(f"> {escaped(short(note, 300))}\\\n" for note in summary.notes[:_MOST_FACTS])
    further = [f"{text}\n" for text in (facts, notes) if text]
    if _bytes("".join(further)) > left // 2:
        further = []
    table = _table(result, left - _bytes("".join(further)))
    return head + table + "".join(further) + tail


def _facts(result: KernelChanges) -> list[str]:
    """List for each rule of --fail-on how many kernels break it, and for each cause how many kernels it changed."""
    broken = Counter(rule for kernel in result.kernels for rule in kernel.fails)
    failing = [f"fails: {rule}: {count(times, 'kernel')}" for rule, times in broken.items()]
    return [*failing, *list(result.who())[:_MOST_FACTS]]


def _table(result: KernelChanges, room: int) -> str:
    """Write the table of changed kernels in at most `room` bytes: the worst kernels, and the number of further
    kernels."""
    kernels = [kernel for kernel in result.kernels if kernel.status is not ChangeStatus.SAME]
    if not kernels:
        return ""
    name = namer(result.kernels, with_arch=False)
    most = max(room, 0) // _LEAST_ROW_BYTES
    rows = tuple((short(name(kernel), 200), *_row(kernel)) for kernel in kernels[:most])
    tones = tuple(Tone.BAD if kernel.worse or kernel.fails else Tone.CHANGED for kernel in kernels)
    lines = markdown_table(Table("", _COLUMNS, rows, tones=tones, left=2, words=(5,)), len(rows)).splitlines()
    told = "{:,} further kernels: see the job's summary and its report.\n\n"
    left = room - _bytes(told) - 20
    fitting = 0
    for line in lines:
        left -= _bytes(line) + 1
        if left < 0:
            break
        fitting += 1
    shown = lines[:fitting] if fitting > 2 else []  # the first two lines are the table's head
    missing = len(kernels) - max(len(shown) - 2, 0)
    text = "".join(f"{line}\n" for line in shown) + "\n"
    return text + (told.format(missing) if missing else "")


def _row(kernel: KernelChange) -> tuple[str, ...]:
    sides = [side for side in (kernel.old, kernel.new) if side is not None]
    shown = [
        both(texts[0], texts[-1])  # one value if the kernel is on one side only
        for texts in (
            [number(side.registers) for side in sides],
            [spills(side.spill_stores, side.spill_loads) for side in sides],
            [number(None if side.instructions is None else side.instructions * INSTRUCTION_BYTES) for side in sides],
        )
    ]
    status = "" if kernel.status is ChangeStatus.CHANGED else kernel.status.value
    return kernel.arch, *shown, ": ".join(filter(None, (status, kernel.by))) or "the same code"


# --- the summary ---------------------------------------------------------------------------------


def job_summary(result: KernelChanges) -> str:
    """Write the result as Markdown with at most _MOST_SUMMARY_FACTS facts."""
    summary = result.summary()
    further = len(summary.facts) - _MOST_SUMMARY_FACTS
    if further > 0:
        facts = (*summary.facts[:_MOST_SUMMARY_FACTS], f"and {further:,} more")
        summary = replace(summary, facts=facts)
    return render_markdown(summary)


# --- annotations ---------------------------------------------------------------------------------

_LEVELS = ("error", "warning", "notice")


def annotation_commands(result: KernelChanges, lines: Iterable[SourceLine | None]) -> Iterator[str]:
    """Yield a workflow command for each source line with spills: an error if a rule on spills is broken, a warning if
    spills grew, else a notice. lines: for each kernel of the result, the line of its spills or None."""
    name = namer(result.kernels)
    at: dict[SourceLine, list[KernelChange]] = {}
    for kernel, line in zip(result.kernels, lines, strict=False):
        if line is not None:
            at.setdefault(line, []).append(kernel)
    by_level: dict[str, list[str]] = {level: [] for level in _LEVELS}
    for line, own in sorted(at.items(), key=lambda pair: -max(map(_spilled, pair[1]))):
        own.sort(key=lambda kernel: (_LEVELS.index(_level(kernel)), -_spilled(kernel)))
        level, more = _level(own[0]), f"; and {count(len(own) - 1, 'further kernel')} here" if len(own) > 1 else ""
        where = f"file={_property(line.file)},line={line.line},title=Register spills"
        by_level[level].append(f"::{level} {where}::{_data(f'{name(own[0])}: {_told(own[0])}{more}')}")
    for of_level in by_level.values():
        yield from of_level[:_MOST_ANNOTATIONS]


def _spilled(kernel: KernelChange) -> int:
    assert kernel.new is not None
    return (kernel.new.spill_stores or 0) + (kernel.new.spill_loads or 0)


def _level(kernel: KernelChange) -> str:
    if any(rule.startswith("spills") for rule in kernel.fails):
        return _LEVELS[0]
    grew = kernel.old is None or {"spill_stores", "spill_loads"} & set(kernel.worse)
    return _LEVELS[1] if grew else _LEVELS[2]


def _told(kernel: KernelChange) -> str:
    assert kernel.new is not None
    before = "new" if kernel.old is None else f"before {spills(kernel.old.spill_stores, kernel.old.spill_loads)}"
    by = f", changed by {kernel.by}" if kernel.by else ""
    return f"spills {spills(kernel.new.spill_stores, kernel.new.spill_loads)} bytes (stores/loads; {before}{by})"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
