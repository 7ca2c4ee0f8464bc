"""The Summary of a diff: verdict, resources, sections, scheduling, opcodes and loops of two kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tritonhook.compare.diff import WORSE_WHEN_GROWING
from tritonhook.report.format import number, percent_of, ratio, short, signed, trigger
from tritonhook.report.summary import Summary, Table, Tone

_TONES = {"same code": Tone.GOOD, "only scheduling differs": Tone.CHANGED, "different code": Tone.CHANGED}
_TAKEN = {True: "taken", False: "not taken", None: "cannot tell"}
_UNITS = {
    "registers": "per thread",
    "stack": "bytes per thread",
    "min_stack": "bytes per thread",
    "shared": "bytes per block",
    "dynamic_shared": "bytes per block, in shared",
    "threads": "per block",
    "spill_stores": "bytes",
    "spill_loads": "bytes",
    "local_stores": "bytes, spills among them",
    "local_loads": "bytes, spills among them",
}
_MOST_LOOPS = 12


def diff_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    verdict = str(document["verdict"])
    a, b = document["a"], document["b"]
    rows = resource_rows(document)
    worse = [row for row in rows if row["tone"] is Tone.BAD]
    tone = Tone.BAD if worse else _TONES.get(verdict, Tone.UNSURE)
    # The part of `summary` about resources is in the table.
    facts = [fact for fact in str(document["summary"]).removeprefix(f"{verdict}: ").split("; ") if " -> " not in fact]
    if worse:
        facts.insert(0, "more in b: " + ", ".join(f"{row['field']} {row['a']} → {row['b']}" for row in worse))
    tables = [Table("Sides", ("", "a", "b"), _identity(a, b), 3), _resources(rows)]
    if sections := _sections(document):
        tables.append(sections)
    if verdict != "same code":
        tables += [_code(document), _opcodes(document), _loops(document)]
    subject = f"{short(a['name'])} → {short(b['name'])}"
    return Summary("Diff", subject, verdict, tone, tuple(facts), tuple(tables), tuple(document.get("notes") or ()))


def _identity(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    control = ("control name", *("" if side["kernel"] == side["name"] else str(side["kernel"]) for side in (a, b)))
    return (
        ("kernel", str(a["name"]), str(b["name"])),
        *([control] if any(control[1:]) else []),
        ("target", str(a["arch"]), str(b["arch"])),
        ("ptxas", number(a["ptxas"]), number(b["ptxas"])),
        ("trigger", trigger(a["trigger"]), trigger(b["trigger"])),
        ("file", f"{number(a['file_bytes'])} bytes", f"{number(b['file_bytes'])} bytes"),
        ("sha256", str(a["sha256"])[:16], str(b["sha256"])[:16]),
    )


# --- resources and sections ----------------------------------------------------------------------


def resource_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each resource on both sides, with its change in figures and in words."""
    rows = []
    for item in document["resources"]:
        field, a, b = str(item["field"]), item["a"], item["b"]
        label = field.replace("_", " ").replace("min stack", "smallest stack")
        change, words, tone = _judged(field, a, b)
        row = {"field": label, "unit": _UNITS.get(field, ""), "a": number(a), "b": number(b)}
        rows.append(row | {"change": change, "words": words, "tone": tone})
    return rows


def _judged(field: str, a: Any, b: Any) -> tuple[str, str, Tone]:
    if a is None or b is None:
        return "", "" if a == b else "known on one side only", Tone.NEUTRAL
    if a == b:
        return "", "same", Tone.NEUTRAL
    if not (isinstance(a, int) and isinstance(b, int)):
        return "", "differs", Tone.CHANGED
    change = signed(b - a)
    if field not in WORSE_WHEN_GROWING:
        return change, "more" if b > a else "fewer", Tone.CHANGED
    relative = f", {percent_of(a, b)}" if a else ""
    return (change, f"worse{relative}", Tone.BAD) if b > a else (change, f"better{relative}", Tone.GOOD)


def _resources(rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        "Resources",
        ("resource", "a", "b", "change", ""),
        tuple((r["field"], r["a"], r["b"], r["change"], r["words"]) for r in rows),
        tones=tuple(r["tone"] for r in rows),
        words=(4,),
    )


def _sections(document: Mapping[str, Any]) -> Table | None:
    """Sections whose bytes differ. They can overlap, so that they need not add up to the file."""
    rows = [
        (str(s["role"]), *("absent" if s[side] is None else number(s[side]) for side in ("a_bytes", "b_bytes")),
         ratio(s["a_bytes"], s["b_bytes"]))
        for s in document["sections"]
        if s["changed"]
    ]  # fmt: skip
    sizes = [document[side]["file_bytes"] for side in ("a", "b")]
    rows.append(("the whole file", *map(number, sizes), ratio(*sizes)))
    return Table("Sections that differ (bytes)", ("section", "a", "b", "b/a"), tuple(rows)) if len(rows) > 1 else None


# --- code ----------------------------------------------------------------------------------------


def _code(document: Mapping[str, Any]) -> Table:
    s = document["sass"]
    rows = [
        ("instructions", number(s["instructions"]["a"]), number(s["instructions"]["b"])),
        ("in the same order", number(s["in_place"]), number(s["in_place"])),
        ("of these, equal in every letter", number(s["identical"]), number(s["identical"])),
        ("moved", number(s["moved"]), number(s["moved"])),
        ("only on this side", number(s["removed"]), number(s["added"])),
    ]
    title = "Code (compared without register numbers and branch targets)"
    return Table(title, ("", "a", "b"), tuple(rows) + scheduler_rows(document))


def scheduler_rows(document: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """How each side is scheduled, with what that was seen by: the image's records, else marks of loops."""
    s, sass = document["scheduler"], document["sass"]
    by_marks = ("loops with its mark", s["rescheduled_loops"])
    rows: list[tuple[str, Any]] = [
        by_marks if _judged_by_marks(document) else ("its records in .nv.capmerc", s["capmerc_records"]),
        ("yield bits", sass["yield_bits"]),
        ("stall cycles, static", sass["stall_cycles"]),
    ]
    other = s["other_scheduler"]
    return (
        ("ptxas's other scheduler", _TAKEN[other["a"]], _TAKEN[other["b"]]),
        *((label, number(pair["a"]), number(pair["b"])) for label, pair in rows),
    )


def _judged_by_marks(document: Mapping[str, Any]) -> bool:
    """Whether loops tell, whose yield bits are set throughout: an image has no records of the other scheduler."""
    return None in document["scheduler"]["capmerc_records"].values()


def changed_opcodes(document: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Opcodes whose count differs, with both counts; the largest differences first."""
    counts = [(name, pair["a"], pair["b"]) for name, pair in document["sass"]["opcodes"].items()]
    return sorted((c for c in counts if c[1] != c[2]), key=lambda c: (-abs(c[2] - c[1]), c[0]))


def _opcodes(document: Mapping[str, Any]) -> Table:
    rows = [(name, number(a), number(b), signed(b - a)) for name, a, b in changed_opcodes(document)]
    return Table("Opcodes whose count differs", ("opcode", "a", "b", "change"), tuple(rows or [("none", "", "", "")]))


def _loops(document: Mapping[str, Any]) -> Table:
    """The largest innermost loops that differ, each as "a → b"."""
    pairs = document["sass"]["loops"]
    changed = [pair for pair in pairs if _differs(pair)]
    largest = sorted(changed, key=lambda pair: -max(pair[s]["instructions"] for s in "ab" if pair[s]))[:_MOST_LOOPS]
    marked = _judged_by_marks(document)
    rows = tuple(_loop_row(pair) if marked else _loop_row(pair)[:-1] for pair in largest)
    title = f"Innermost loops that differ, of 8 instructions or more ({len(changed):,} of {len(pairs):,})"
    if len(changed) > len(rows):
        title += f", the {len(rows)} largest"
    columns = ("offset", "instructions", "yield bits", "stall cycles", *(("other scheduler's mark",) if marked else ()))
    return Table(title, columns, rows or (("none", *("" for _ in columns[1:])),), words=(4,) if marked else ())


def _differs(pair: Mapping[str, Any]) -> bool:
    a, b = pair["a"], pair["b"]
    fields = ("instructions", "yield_bits", "stall_cycles", "opcodes")
    return a is None or b is None or any(a[field] != b[field] for field in fields)


def _loop_row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    a, b = pair["a"], pair["b"]
    there = f"{a['offset']:#x}" if a else f"{b['offset']:#x} in b"
    figures = (
        " → ".join(number(side[field]) if side else "absent" for side in (a, b))
        for field in ("instructions", "yield_bits", "stall_cycles")
    )
    marks = ["yes" if side and side["rescheduled"] else "no" for side in (a, b)]
    return (there, *figures, " → ".join(marks))
