"""The Summary of a search for the ptxas that changed kernels first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.errors import listed
from tritonhook.report.format import count, number
from tritonhook.report.summaries.snapshot import TITLES, common_words, kernel_name
from tritonhook.report.summary import Summary, Table, Tone

_BESIDE = ("registers", "spill_stores", "spill_loads", "stack")  # figures that each table of versions has


def bisect_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    kernels = document["kernels"]
    common = common_words(kernels)
    changed = [kernel for kernel in kernels if kernel["first"] is not None]
    tables = [] if len(kernels) == 1 else [_overview(document, common)] if changed else []
    for kernel in kernels if len(kernels) == 1 else changed if document["all_versions"] else ():
        tables.append(_versions(document, kernel, kernel_name(kernel, common)))
    return Summary(
        f"First ptxas that changed {_on(document)}",
        f"{document['subject']}, from {document['good']} to {document['bad']}",
        *_verdict(document),
        (
            *(fact for kernel in changed for fact in _facts(document, kernel, kernel_name(kernel, common))),
            *(_problems(kernels, common) if len(kernels) > 1 else ()),
        ),
        tuple(tables),
        (*map(str, document["notes"]), _how_many(document)),
    )


def _on(document: Mapping[str, Any]) -> str:
    return str(document["on"]).replace("_", " ")


def _verdict(document: Mapping[str, Any]) -> tuple[str, Tone]:
    kernels, good, bad = document["kernels"], document["good"], document["bad"]
    first = Counter(kernel["first"] for kernel in kernels if kernel["first"] is not None)
    unknown = sum(kernel["problem"] is not None for kernel in kernels)
    if len(kernels) == 1 and first:
        return f"ptxas {next(iter(first))} changed it first: {_on(document)} {_step(kernels[0])}", Tone.CHANGED
    if len(kernels) == 1 and unknown:
        return f"not known: {kernels[0]['problem']}", Tone.UNSURE
    if not first and not unknown:
        return f"ptxas {good} and {bad} give the same {_on(document)}", Tone.GOOD
    parts = [f"{sum(first.values()):,} of {count(len(kernels), 'kernel')} changed"] if first else []
    parts += [f"{unknown:,} of {count(len(kernels), 'kernel')} not known"] if unknown else []
    by = "; first by " + ", ".join(f"{version} ({times:,})" for version, times in first.most_common()) if first else ""
    return ", ".join(parts) + by, Tone.CHANGED if first else Tone.UNSURE


def _facts(document: Mapping[str, Any], kernel: Mapping[str, Any], name: str) -> list[str]:
    """What one cannot see from the first version alone."""
    good, found = document["good"], []
    if kernel["between"]:
        skipped = f"{', '.join(kernel['between'])} {_do(kernel['between'], 'does', 'do')} not assemble it"
        found.append(f"the first change of {name} lies between {kernel['before']} and {kernel['first']}: {skipped}")
    if kernel["returned"]:
        newer = f"{', '.join(kernel['returned'])} {_do(kernel['returned'], 'is', 'are')} as {good} again"
        more = "" if document["all_versions"] else "; --all tries every version"
        found.append(f"the change of {name} did not stay: {newer}{more}")
    return found


def _problems(kernels: Sequence[Mapping[str, Any]], common: Mapping[str, frozenset[str]]) -> list[str]:
    """Each reason why nothing is known of kernels, with their names."""
    names: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel["problem"] is not None:
            names.setdefault(str(kernel["problem"]), []).append(kernel_name(kernel, common))
    return [f"not known: {problem} (so for {listed(found)})" for problem, found in names.items()]


def _do(versions: Sequence[str], one: str, several: str) -> str:
    return one if len(versions) == 1 else several


def _overview(document: Mapping[str, Any], common: Mapping[str, frozenset[str]]) -> Table:
    changed = [kernel for kernel in document["kernels"] if kernel["first"] is not None]
    rows = tuple((kernel_name(k, common), str(k["first"]), str(k["before"]), _step(k)) for k in changed)
    columns = ("kernel", "first changed by", "as before until", _on(document))
    return Table("Changed kernels", columns, rows, left=len(columns))


def _step(kernel: Mapping[str, Any]) -> str:
    """What it was and what it became."""
    values = {tried["version"]: " or ".join(tried["values"]) for tried in kernel["tried"]}
    return f"{values[kernel['before']]} → {values[kernel['first']]}"


def _versions(document: Mapping[str, Any], kernel: Mapping[str, Any], name: str) -> Table:
    """A row for each version that was tried."""
    shown = [figure for figure in dict.fromkeys((document["on"], *_BESIDE)) if figure in TITLES]
    rows, tones = [], []
    for tried in kernel["tried"]:
        figures = [_figure(tried, figure) for figure in shown]
        codes = " or ".join(sorted({code for made in tried["made"] for code in made["codes"]}))
        rows.append((tried["version"], *figures, tried["reason"] or codes))
        tones.append(Tone.UNSURE if tried["changed"] is None else Tone.CHANGED if tried["changed"] else Tone.NEUTRAL)
    columns = ("ptxas", *(TITLES[figure] for figure in shown), "code")
    title = f"Versions tried{'' if len(document['kernels']) == 1 else f': {name}'}"
    return Table(title, columns, tuple(rows), tones=tuple(tones), words=(len(columns) - 1,))


def _figure(tried: Mapping[str, Any], figure: str) -> str:
    values = list(dict.fromkeys(made[figure] for made in tried["made"]))
    return " or ".join("not known" if value is None else number(value) for value in values)


def _how_many(document: Mapping[str, Any]) -> str:
    tried = {tried["version"] for kernel in document["kernels"] for tried in kernel["tried"]}
    among = f"versions from {document['good']} to {document['bad']}"
    return f"tried {len(tried):,} of the {len(document['versions']):,} {among}"
