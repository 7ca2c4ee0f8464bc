"""The Summary of a sweep: which names change which kernels, under which ptxas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tritonhook._util.versions import version_key
from tritonhook.lab.name_templates import PRAGMA
from tritonhook.report.format import count
from tritonhook.report.summary import Summary, Table, Tone

SIGNS = ("X", "D", "~", ".", "-")  # the gravest first
MEANINGS = {
    "X": "ptxas crashes under the name only",
    "D": "the name changes the code",
    "~": "ptxas is unsteady",
    ".": "same",
    "-": "does not assemble",
    "": "not asked",
}
_CRASHES = ("crash", "timeout", "memory")
_VERDICTS = {"changed": "D", "unsteady": "~", "same": ".", "no answer": "-"}
_MEASURES = (
    *("code_bytes", "registers", "stack", "spill_stores", "spill_loads", "shared"),
    *("capmerc_records", "file_bytes"),
)
_MOST_REASONS = 5
_NAMES = "Names (* is the kernel's own)"
_PRAGMA = f'{PRAGMA} is the kernel with `.pragma "mma_throughput"`, under a name of meaningless letters'
_LEGEND = "; ".join(f"{sign} {MEANINGS[sign]}" for sign in SIGNS)


def probe_summary(document: Mapping[str, Any]) -> Summary:
    """`tritonhook probe`."""
    cells = list(probe_cells(document))
    base = _summary(cells, document["summary"])
    facts = base.facts
    if changed := [cell for cell in cells if cell["sign"] == "D"]:
        taken = Counter(cell["scheduler"][1] for cell in changed)
        facts += (
            f"ptxas's other scheduler: taken in {count(taken[True], 'changed cell')}, not taken in {taken[False]:,}, "
            f"cannot tell in {taken[None]:,}",
        )
    without_answer = [cell for cell in document["cells"] if cell["verdict"] == "no answer"]
    about = (_PRAGMA,) if any(cell["template"] == PRAGMA for cell in cells) else ()
    about = (f"signs: {_LEGEND}", *about, *map(str, document.get("notes", ())))
    notes = (*_quiet_names(cells), *about, *no_answers(without_answer))
    return replace(
        base,
        facts=(*facts, *_pragma_and_names(document["cells"])),
        tables=(*_telling_names(cells), *_matrix(cells), *_what_changes(cells)),
        notes=notes,
    )


def _pragma_and_names(cells: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Count the places where pragma and names agree: the pragma gives the code that the names give, or neither changes
    the code. Places without a steady answer are left out."""
    places: dict[tuple[str, ...], dict[bool, set[str | None]]] = {}
    for cell in cells:
        if (sign := sign_of(cell)) not in "~-":
            place = (cell["kernel"], cell["arch"], cell["ptxas"], *cell["options"])
            code = cell["with_name"].get("code_sha256", "no code") if sign != "." else None
            places.setdefault(place, {}).setdefault(cell["template"] == PRAGMA, set()).add(code)
    both = [(of[True], (of[False] - {None}) or {None}) for of in places.values() if len(of) == 2]
    if not both:
        return ()
    same = sum(bool(pragma & names) for pragma, names in both)
    return (f"the pragma does what the names do in {same:,} of {count(len(both), 'place')}",)


def name_trigger_summary(document: Mapping[str, Any]) -> Summary:
    """benchmarks/results/name_trigger.json: kernels by ptxas under one name, and counts over all names."""
    summary = document["summary"]
    places = ((text, len(where)) for text, where in document["triggers"].items())
    rows = tuple((name, f"{changed:,}", f"{asked:,}") for name, (changed, asked) in document["by_name"].items())
    base = _summary(list(name_trigger_cells(document)), summary)
    shown = f"shown below are the cells of {document['names'][0]}; {summary['cells']:,} were asked, over all names"
    return replace(
        base,
        facts=(*base.facts, shown),
        tables=(Table(_NAMES, ("name", "changed", "compared"), rows),),
        notes=tuple(f"{text}: in {count(n, 'place')}" for text, n in places),
    )


def _summary(cells: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Summary:
    """summary: the counts that the document gives; those of `name trigger` are over more cells than it keeps."""
    if "cells_compared" in summary:
        compared = summary["cells_compared"]
    else:
        compared = summary["cells"] - summary["cells_without_answer"]
    what = "the name or the pragma" if any(cell["template"] == PRAGMA for cell in cells) else "the name"
    changed, crashes, unsteady = summary["cells_changed"], summary["crashes"], summary.get("cells_unsteady")
    if not compared:
        verdict, tone = "nothing could be compared", Tone.UNSURE
    elif changed:
        verdict, tone = f"{what} changes {count(changed, 'cell')} of {compared:,}", Tone.CHANGED
    else:
        verdict, tone = f"{what} changes none of {count(compared, 'cell')}", Tone.GOOD
    facts = []
    if crashes:
        tone = Tone.BAD
        facts.append(f"ptxas crashes in {count(crashes, 'cell')} under the name only")
    if unsteady:
        facts.append(f"{count(unsteady, 'cell')} unsteady: the same name has several codes there")
    kernels, versions = ({cell[key] for cell in cells} for key in ("kernel", "ptxas"))
    subject = f"{count(len(kernels), 'kernel')}, {count(len(versions), 'ptxas version')}"
    return Summary("Sweep", subject, verdict, tone, tuple(facts))


# --- tables --------------------------------------------------------------------------------------


def names_tables(cells: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Each name with the number of its cells by sign; no table for a single name."""
    counts = _counts(cells)
    rows = tuple((name, *(f"{by_sign[sign]:,}" for sign in SIGNS)) for name, by_sign in counts.items())
    columns = ("name", "crash", "changed", "unsteady", "same", "no answer")
    return (Table(_NAMES, columns, rows),) if len(rows) > 1 else ()


def _counts(cells: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """How many cells of each name have each sign; names that change most first."""
    counts: dict[str, Counter[str]] = {}
    for cell in cells:
        counts.setdefault(cell["template"], Counter())[cell["sign"]] += 1
    return dict(sorted(counts.items(), key=lambda item: -(item[1]["D"] + item[1]["X"])))


def _telling_names(cells: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """The names that change something, or whose cells are unsteady."""
    quiet = _quiet(cells)
    return tuple(replace(t, rows=tuple(r for r in t.rows if r[0] not in quiet)) for t in names_tables(cells))


def _quiet_names(cells: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    quiet = _quiet(cells)
    return (f"without any effect: {', '.join(quiet)}",) if quiet else ()


def _quiet(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names with at least one cell that was compared, of which none is changed or unsteady."""
    return [name for name, found in _counts(cells).items() if found["."] and not found["D"] + found["X"] + found["~"]]


def _matrix(cells: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Kernels by ptxas version: the gravest sign under the names that change anything, else under all."""
    if all(cell["sign"] == "-" for cell in cells):
        return ()
    telling = {cell["template"] for cell in cells if cell["sign"] in "XD"}
    versions = sorted({cell["ptxas"] for cell in cells}, key=version_key)
    rows: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for cell in cells:
        if not telling or cell["template"] in telling:
            by_version = rows.setdefault((cell["kernel"], cell["arch"], cell["options"]), {})
            by_version.setdefault(cell["ptxas"], []).append(cell["sign"])
    shown = tuple((*key, *(gravest(of.get(v, ())) for v in versions)) for key, of in sorted(rows.items()))
    return (Table("Kernels by ptxas", ("kernel", "target", "options", *versions), shown, 3),)


def _what_changes(cells: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    rows = tuple((what, f"{n:,}") for what, n in differences(cells))
    return (Table("What changes", ("", "cells"), rows),) if rows else ()


def differences(cells: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """What differs in changed cells, and in how many of them; the most frequent first."""
    return Counter(name for cell in cells if cell["sign"] in "XD" for name in cell["differences"]).most_common()


def gravest(signs: Sequence[str]) -> str:
    """The gravest of several signs; empty for none."""
    return next((sign for sign in SIGNS if sign in signs), "")


def no_answers(cells: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Why cells of a document have no answer, the most frequent reasons first."""
    outcomes = (cell["with_control"] for cell in cells)
    reasons = Counter((o["kind"], o["message"] or o["signal"] or "") for o in outcomes)
    most = reasons.most_common(_MOST_REASONS)
    lines = [f"no answer in {count(n, 'cell')}: {kind}: {why}" for (kind, why), n in most]
    more = [f"and {len(reasons) - len(most)} other reasons"] if len(reasons) > len(most) else []
    return (*lines, *more)


# --- cells ---------------------------------------------------------------------------------------


def probe_cells(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of a sweep, each with its sign."""
    for cell in document["cells"]:
        yield {
            "kernel": str(cell["kernel"]),
            "arch": str(cell["arch"]),
            "ptxas": str(cell["ptxas"]),
            "options": telling_options(cell["options"]),
            "template": str(cell["template"]),
            "sign": sign_of(cell),
            "names": [cell["control"], cell["name"]],
            "differences": list(cell["differences"]),
            "draws": cell["draws"],
            "scheduler": [cell["other_scheduler"]["control"], cell["other_scheduler"]["name"]],
            "measures": _measures(cell["with_control"], cell["with_name"]),
            "messages": [_message(cell["with_control"]), _message(cell["with_name"])],
            "sections": [[role, *sizes] for role, sizes in cell["sections_changed"].items()],
            "code": cell.get("code"),
        }


def sign_of(cell: Mapping[str, Any]) -> str:
    """The sign of a cell of a document."""
    crashed = cell["differences"][:1] and cell["differences"][0] in _CRASHES
    return "X" if cell["verdict"] == "changed" and crashed else _VERDICTS[cell["verdict"]]


def telling_options(options: Iterable[str]) -> str:
    """ptxas's options without those that cannot change the code."""
    return " ".join(option for option in options if option not in ("-v", "-lineinfo"))


def _message(outcome: Mapping[str, Any]) -> str:
    details = [str(outcome[key]) for key in ("signal", "message") if outcome[key]]
    return ": ".join([outcome["kind"], *details]) if details or outcome["kind"] != "assembled" else ""


def _measures(control: Mapping[str, Any], named: Mapping[str, Any]) -> list[list[Any]]:
    """Rows of a measure's name and its value under the control and under the name; None: that side did not assemble."""
    measured = [key for key in _MEASURES if key in control or key in named]
    return [[key.replace("_", " "), control.get(key), named.get(key)] for key in measured]


def name_trigger_cells(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells that benchmarks/lab/name_trigger.py keeps: one name, with fewer fields."""
    for place, by_version in document["samples"].items():
        kernel, _, arch = place.rpartition(" ")
        for version, values in by_version.items():
            sign, what, taken, pairs = (*values, *[None] * 3)[:4]
            yield {
                "kernel": kernel,
                "arch": arch,
                "ptxas": version,
                "options": "",
                "template": str(document["names"][0]),
                "sign": sign,
                "names": None,
                "differences": what or [],
                "draws": None,
                "scheduler": [None, taken],
                "measures": [
                    [key.replace("_", " "), *pair] for key, pair in (pairs or {}).items() if pair != [None, None]
                ],
                "messages": ["", ""],
                "sections": [],
                "code": None,
            }
