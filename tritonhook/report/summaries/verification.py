"""The Summary of a verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tritonhook.report.format import count
from tritonhook.report.summary import Summary, Table, Tone

_TONES = {
    "CRASH": Tone.BAD,
    "HANG": Tone.BAD,
    "DIFFERENT": Tone.BAD,
    "NONDETERMINISTIC": Tone.UNSURE,
    "ROUNDING": Tone.CHANGED,
    "SAME": Tone.GOOD,
    "SKIPPED": Tone.NEUTRAL,
}
_BAD = ("CRASH", "HANG", "DIFFERENT")


def verification_summary(document: Mapping[str, Any]) -> Summary:
    """The document must fit its schema (report/schema)."""
    kernels = sorted(document["kernels"], key=lambda kernel: list(_TONES).index(kernel["verdict"]))
    bad = [kernel for kernel in kernels if kernel["verdict"] in _BAD]
    tables = [_table(kernels)]
    for kernel in bad:
        tables += _details(kernel)
    return Summary(
        "Verification",
        document["target"],
        *_verdict(document["counts"], len(kernels)),
        tuple(_facts(bad)),
        tuple(tables),
        tuple(_notes(document, kernels)),
    )


def _verdict(counts: Mapping[str, int], total: int) -> tuple[str, Tone]:
    present = [name for name in _TONES if counts.get(name)]
    ran = total - counts.get("SKIPPED", 0)
    if not ran:
        return "nothing could be run", Tone.UNSURE
    text = f"{count(ran, 'kernel')}: {', '.join(f'{counts[name]:,} {name}' for name in present)}"
    return text, _TONES[present[0]] if present[0] != "SAME" else Tone.GOOD


def _facts(bad: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for kernel in bad:
        yield f"{kernel['reason']} (kernel {kernel['kernel']}, input {kernel['input']})"
        if kernel["groups"]:
            sides = "; ".join(" = ".join(group) for group in kernel["groups"])
            yield f"builds of {kernel['kernel']} that stored the same: {sides}"


def _table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    rows = tuple(
        (kernel["kernel"], kernel["verdict"], _count(kernel["builds"]), _count(kernel["inputs"]), _why(kernel))
        for kernel in kernels
    )
    tones = tuple(_TONES[kernel["verdict"]] for kernel in kernels)
    return Table("Kernels", ("kernel", "verdict", "codes", "inputs", "why"), rows, 2, tones, (4,))


def _count(items: Sequence[Any]) -> str:
    return str(len(items)) if items else ""


def _why(kernel: Mapping[str, Any]) -> str:
    if kernel["verdict"] == "SKIPPED":
        return "; ".join(kernel["notes"]) or "not known"
    return "" if kernel["verdict"] == "SAME" else str(kernel["reason"])


def _details(kernel: Mapping[str, Any]) -> Iterator[Table]:
    """The first elements that differ, and where the code parts."""
    name = kernel["kernel"]
    found = next((f for f in kernel["findings"] if f["difference"] and f["verdict"] in _BAD), None)
    if found is not None:
        reference = kernel["builds"][0]["label"]
        rows = tuple((f"{e['index']:,}", *e["values"], *e["bits"]) for e in found["difference"]["first"])
        columns = ("element", reference, str(found["build"]), "bits", "bits")
        yield Table(f"First elements of {name} that differ", columns, rows, 0)
    region = kernel["region"]
    if region is not None:
        rows = tuple(
            (f"{side}  {offset:04x}", text)
            for side, code in (("<", region["a_code"]), (">", region["b_code"]))
            for offset, text in code
        )
        more = f", and {count(region['further'], 'further region')}" if region["further"] else ""
        title = f"Where the code of {name} parts: < {region['a']}, > {region['b']}{more}"
        yield Table(title, ("offset", "instruction"), rows, 2)


def _notes(document: Mapping[str, Any], kernels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if document["device"]:
        yield f"run on {document['device']}"
    for kernel in kernels:
        if kernel["verdict"] != "SKIPPED":
            yield from (f"{kernel['kernel']}: {note}" for note in kernel["notes"])
    failed: dict[str, str] = {}
    for kernel in kernels:
        for one in kernel["not_built"]:
            failed.setdefault(one["label"], one["reason"])
    yield from (f"{label} made no build of some kernels: {reason}" for label, reason in failed.items())
